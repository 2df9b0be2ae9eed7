"""``zenit-hub init``: what is printed, what is written, what reaches the Hub."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.rigs.hub import LoopbackHub
from zenit_hub import files
from zenit_hub.cli.main import main

pytest_plugins = ("tests.rigs.hub.fixtures",)

REPO, TOKEN = "org/model", "hf_owner"
CONFIG = (
    b'{\r\n    "architectures": ["LlamaForCausalLM"],\r\n    "eps": 1e-06,\r\n'
    b'    "max_position_embeddings": 131072\r\n}'
)
README = b"---\nlicense: mit\n---\n# M\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder; its config has four spaces, CRLF, 1e-06 and no newline at the end."""
    (tmp_path / "config.json").write_bytes(CONFIG)
    return tmp_path


@pytest.fixture
def org(hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoopbackHub:
    """A hub with a repo without a section, and its owner at this machine."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.create(REPO, {"config.json": CONFIG, "README.md": README}, token=TOKEN)
    return hub


def section_of(data: bytes) -> object:
    return json.loads(data)["serving_profiles"]


# --- a folder


def test_the_section_is_printed_and_nothing_is_written(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(model), "--repo", REPO]) == 0

    told = capsys.readouterr()
    section = json.loads(told.out)["serving_profiles"]
    assert (section["repo"], section["default_profile"]) == (REPO, "128k")
    assert f"Hint: Put it into config.json: zenit-hub init {model} --write" in told.err
    assert (model / "config.json").read_bytes() == CONFIG


def test_dry_run_prints_the_change(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(model), "--write", "--dry-run"]) == 0

    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[:2] == ["--- a/config.json", "+++ b/config.json"]
    assert '+    "serving_profiles": {' in lines
    assert [line for line in lines[2:] if line.startswith("-")] == ['-    "max_position_embeddings": 131072']
    assert "Nothing was written." in told.err
    assert (model / "config.json").read_bytes() == CONFIG


def test_write_puts_it_at_the_end_and_leaves_every_byte(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = model / "config.json"
    file.chmod(0o640)

    assert main(["init", str(model), "--write", "--window", "32768"]) == 0

    told, after = capsys.readouterr(), file.read_bytes()
    assert after.startswith(
        CONFIG[:-3] + b',\r\n    "serving_profiles": {\r\n        "schema_version": 1,\r\n'
    )
    assert after.endswith(b"    }\r\n}")
    assert after.count(b"\n") == after.count(b"\r\n")
    assert list(json.loads(after)["serving_profiles"]["profiles"]) == ["32k"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(model) == ["config.json"]
    assert told.out == f"{file}: `serving_profiles` is written\n"
    assert f"zenit-hub measure {model}" in told.err
    assert main(["validate", str(model)]) == 0


def test_a_second_time_is_refused_with_what_to_type(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(model), "--write"]) == 0
    written = (model / "config.json").read_bytes()
    capsys.readouterr()

    assert main(["init", str(model), "--write"]) == 1

    assert f"`zenit-hub validate {model}` checks them" in capsys.readouterr().err
    assert (model / "config.json").read_bytes() == written


def test_json_tells_what_was_proposed_and_done(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(model / "config.json"), "--write", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["key"], told["outcome"]) == (
        str(model / "config.json"),
        "serving_profiles",
        "written",
    )
    assert told["section"] == section_of((model / "config.json").read_bytes())


def test_a_write_that_fails_leaves_the_file_and_nothing_else(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", no_space)

    assert main(["init", str(model), "--write"]) == 1

    assert "No space left on device" in capsys.readouterr().err
    assert os.listdir(model) == ["config.json"]
    assert (model / "config.json").read_bytes() == CONFIG


def test_a_link_stays_a_link_and_its_file_is_written(model: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.json").symlink_to(model / "config.json")

    assert main(["init", str(elsewhere), "--write"]) == 0

    assert (elsewhere / "config.json").is_symlink()
    assert section_of((model / "config.json").read_bytes())


def test_the_hub_clients_cache_is_not_written_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot's config.json is a link to a blob that is named after its content."""
    blob = tmp_path / "models--org--model" / "blobs" / "0123"
    snapshot = tmp_path / "models--org--model" / "snapshots" / ("a" * 40)
    blob.parent.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    blob.write_bytes(CONFIG)
    (snapshot / "config.json").symlink_to(Path("../../blobs/0123"))

    assert main(["init", str(snapshot), "--write"]) == 2

    assert "is the Hub client's cache" in capsys.readouterr().err
    assert blob.read_bytes() == CONFIG


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--create-pr"], "--create-pr is for a Hub repo"),
        (["--yes"], "--yes is for a Hub repo"),
        (["--revision", "main"], "--revision is for a Hub repo"),
        (["--token", ""], "--token is for a Hub repo"),
        (["--repo", "no repo"], "--repo names no Hub repo"),
        (["--repo", "gpt2"], "--repo names no Hub repo"),
    ],
)
def test_a_folder_is_not_asked_what_only_the_hub_can_do(
    words: list[str], said: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(model), *words]) == 2
    assert said in capsys.readouterr().err
    assert (model / "config.json").read_bytes() == CONFIG


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["org/model", "--write"], 2, "--write is for a folder on this machine"),
        (["org/model", "--create-pr", "--revision", "refs/pr/2"], 2, "--create-pr goes to a branch"),
        (["org/model", "--yes", "--revision", "a" * 40], 2, "--revision names a commit"),
        (["org/model", "--revision", ""], 2, "--revision names no branch"),
        (["org/model", "--token", "a b"], 2, "--token holds no Hub token"),
        (["https://user:hf_SESAMEsesameSESAME@hub/org/model"], 1, "got https://…@hub/org/model; allowed"),
        (["./no/where"], 1, "there is no such model"),
        (["org/model:Q4"], 1, "there is no such model"),
    ],
)
def test_a_hub_id_is_not_asked_what_only_a_folder_can_do(
    words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *words]) == status
    assert said in capsys.readouterr().err


def test_a_folder_without_a_config_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"Error: No such file or directory: {tmp_path / 'config.json'}\n"


# --- the Hub, with the real client


def test_a_hub_repo_is_read_and_left_alone(org: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed and previewed, with its own id as the section's repo; nothing is sent."""
    head = org.head(REPO)

    assert main(["init", REPO]) == 0
    printed = json.loads(capsys.readouterr().out)["serving_profiles"]
    assert main(["init", REPO, "--create-pr", "--dry-run"]) == 0

    assert printed["repo"] == REPO
    assert capsys.readouterr().out.startswith("--- a/config.json\n")
    assert org.head(REPO) == head
    assert org.count("POST", "*/commit/*") == 0


def test_yes_commits_it_and_only_the_config_changes(
    org: LoopbackHub, capsys: pytest.CaptureFixture[str]
) -> None:
    first = org.head(REPO)

    assert main(["init", REPO, "--yes"]) == 0

    out = capsys.readouterr().out
    repo = org.repository(REPO)
    assert out == f"committed to {REPO}: {org.url}/{REPO}/commit/{org.head(REPO)}\n"
    assert repo.resolve("main").parent == first
    assert org.read(REPO, "config.json").startswith(CONFIG[:-3])
    assert section_of(org.read(REPO, "config.json"))
    assert org.read(REPO, "README.md") == README
    assert main(["init", REPO, "--yes"]) == 1
    assert len(list(repo.history(repo.resolve("main")))) == 2


def test_create_pr_proposes_it_once(org: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    """A second time the same pull request is found, and nothing is sent."""
    head = org.head(REPO)

    assert main(["init", REPO, "--create-pr"]) == 0
    assert capsys.readouterr().out == f"pull request 1 opened: {org.url}/{REPO}/discussions/1\n"
    assert main(["init", REPO, "--create-pr"]) == 0

    assert "has it already" in capsys.readouterr().out
    assert org.head(REPO) == head
    assert len(org.pulls(REPO)) == 1
    assert org.count("POST", "*/commit/*") == 1
    assert section_of(org.read(REPO, "config.json", "refs/pr/1"))


def test_a_stranger_is_told_that_a_pull_request_works(
    org: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", org.account("ann"))

    assert main(["init", REPO, "--yes"]) == 1
    assert f"zenit-hub init {REPO} --create-pr" in capsys.readouterr().err
    assert main(["init", REPO, "--create-pr", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["outcome"], told["pull_request"], told["key"]) == ("pull_request", 1, "serving_profiles")


def test_a_lost_answer_is_no_second_commit(org: LoopbackHub, capsys: pytest.CaptureFixture[str]) -> None:
    """The commit lands and answers 500: read again, the section is there."""
    org.fail("POST", f"/api/models/{REPO}/commit/*", status=500, after_effect=True)

    assert main(["init", REPO, "--yes"]) == 0

    assert f"committed to {REPO}" in capsys.readouterr().out
    assert org.count("POST", "*/commit/*") == 1


def test_a_token_that_is_typed_is_used(
    org: LoopbackHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For reading and for sending, before the one of the environment; it is not shown."""
    monkeypatch.setenv("HF_TOKEN", "hf_nobody")
    typed = org.account("ann")

    assert main(["init", REPO, "--create-pr", "--token", typed]) == 0
    out, err = capsys.readouterr()
    assert typed not in out + err
    assert org.pulls(REPO)[0].author == "ann"


def test_another_section_is_found_with_what_to_type(
    org: LoopbackHub, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where it stands in our open pull request."""
    assert main(["init", REPO, "--create-pr"]) == 0
    assert main(["init", REPO, "--create-pr", "--window", "4096"]) == 1
    assert f"`zenit-hub validate {REPO}` checks them" in capsys.readouterr().err
