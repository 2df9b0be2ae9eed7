"""``zenit-hub publish`` as people and machines call it, each call in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.measurements import CARD, GIB
from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import OWNER, README, REPO, STRANGER, Publisher, measured
from tests.rigs.reading import Reader, Told, cli
from zenit_hub.maintain.measurement import to_json

MODULES = (
    "zenit_hub.cli.publish",
    "zenit_hub.maintain.publish.publish",
    "huggingface_hub.file_download",
    "huggingface_hub.hf_api",
    "jsonschema",
    "jinja2",
)


@pytest.fixture(scope="module")
def hub() -> Iterator[LoopbackHub]:
    """One for all calls; each test has a fresh repo of the same name."""
    with LoopbackHub() as made:
        yield made


@pytest.fixture(scope="module")
def command(hub: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("publish")
    with Reader(folder, hub.environment(home=folder / "home"), MODULES) as made:
        yield made


@pytest.fixture
def publisher(hub: LoopbackHub) -> Publisher:
    hub._world.repos.clear()
    hub.heal()
    return Publisher(hub)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A measurement of m256k, with its picture."""
    path = tmp_path / "m256k.json"
    path.write_text(to_json(measured("m256k")))
    path.with_suffix(".svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return str(path)


def call(command: Reader, *words: str, token: str = OWNER) -> Told:
    """A whole command; the token comes from the environment, and is in nothing that is said."""
    told = command.ask(cli("publish", *words, environ={"HF_TOKEN": token}))
    assert told["raised"] is None
    assert token not in told["out"] + told["err"]
    assert "Traceback" not in told.said
    return told


def test_published(command: Reader, publisher: Publisher, file: str) -> None:
    """The address on stdout, what changes on stderr, and that serving machines compile once."""
    told = call(command, file, "--repo", REPO, "--yes")

    assert told["status"] == 0
    head = publisher.hub.head(REPO)
    assert told["out"] == f"published to {REPO}, main: {publisher.hub.url}/{REPO}/commit/{head}\n"
    lines = told["err"].splitlines()
    assert lines[:4] == [
        f"m256k on {CARD}: 24.00 GiB (vLLM 0.32.0)",
        f"m256k: requires_free_bytes is now {24 * GIB}",
        "  config.json",
        "  README.md",
    ]
    assert [line for line in lines if line.startswith("Hint: Serving machines compile once")] == lines[-1:]
    card = publisher.hub.read(REPO, "README.md").decode()
    assert f"vllm serve {REPO}" in card
    paths = publisher.hub.repository(REPO).resolve("main").files
    assert sorted(Path(path).suffix for path in paths if path.startswith("serving_profiles/")) == [
        ".json",
        ".svg",
    ]
    assert Path(file).exists()


def test_published_again_is_nothing(command: Reader, publisher: Publisher, file: str) -> None:
    """Exit 0, one line."""
    call(command, file, "--repo", REPO, "--yes", "--quiet")
    told = call(command, file, "--repo", REPO, "--yes")

    assert told["status"] == 0
    assert told["out"].startswith(f"nothing to publish: {REPO} has all of it in main, at ")
    assert len(publisher.ours()) == 1


def test_quiet(command: Reader, publisher: Publisher, file: str) -> None:
    """Only the address."""
    told = call(command, file, "--repo", REPO, "-y", "-q")
    assert told["out"] == f"{publisher.hub.url}/{REPO}/commit/{publisher.hub.head(REPO)}\n"
    assert told["err"] == ""


def test_json(command: Reader, publisher: Publisher, file: str) -> None:
    """One object, with the same keys each time."""
    told = call(command, file, "--repo", REPO, "--yes", "--json")
    outcome = json.loads(told["out"])

    head = publisher.hub.head(REPO)
    assert {
        key: outcome[key] for key in ("outcome", "repo", "revision", "commit", "pull_request", "tries")
    } == {
        "outcome": "published",
        "repo": REPO,
        "revision": "main",
        "commit": head,
        "pull_request": None,
        "tries": 1,
    }
    assert outcome["url"].endswith(head)
    assert outcome["files"][:2] == ["config.json", "README.md"]
    again = json.loads(call(command, file, "--repo", REPO, "--yes", "--json")["out"])
    assert (again["outcome"], again["files"]) == ("nothing", [])


def test_a_dry_run(command: Reader, publisher: Publisher, file: str) -> None:
    """Head and diff on stdout, without a question; nothing is sent."""
    told = call(command, file, "--repo", REPO, "--dry-run")

    assert told["status"] == 0
    out = told["out"].splitlines()
    assert out[0] == f"head {publisher.first}"
    assert f'+        "requires_free_bytes": {24 * GIB},' in out
    assert told["err"].endswith("Nothing was sent.\n")
    assert publisher.hub.head(REPO) == publisher.first
    shown = json.loads(call(command, file, "--repo", REPO, "--dry-run", "--json")["out"])
    assert (shown["outcome"], shown["commit"]) == ("dry_run", publisher.first)
    assert shown["diff"] in told["out"]


def test_a_pull_request(command: Reader, publisher: Publisher, file: str) -> None:
    """Opened by a stranger, then nothing; what happens once it is merged is said."""
    told = call(command, file, "--repo", REPO, "--create-pr", "--yes", token=STRANGER)

    assert told["status"] == 0
    assert told["out"] == f"pull request 1 opened: {publisher.hub.url}/{REPO}/discussions/1\n"
    assert "Hint: Once it is merged: serving machines compile once" in told["err"]
    again = call(command, file, "--repo", REPO, "--create-pr", "--yes", "--json", token=STRANGER)
    outcome = json.loads(again["out"])
    assert (outcome["outcome"], outcome["pull_request"]) == ("nothing", 1)


def test_a_stranger_is_told_of_pull_requests(command: Reader, publisher: Publisher, file: str) -> None:
    """Exit 1; the command to type is whole; as JSON, too."""
    told = call(command, file, "--repo", REPO, "--yes", token=STRANGER)
    assert told["status"] == 1
    assert told["out"] == ""
    (line,) = told["err"].splitlines()
    assert line.startswith("Error: this token may not write to zenit/altay (403)")
    assert line.endswith(f"zenit-hub publish {file} --repo {REPO} --create-pr")

    told = call(command, file, "--repo", REPO, "--yes", "--json", token=STRANGER)
    outcome = json.loads(told["out"])
    assert (outcome["outcome"], outcome["trouble"], outcome["tries"]) == ("failed", "forbidden", 1)
    assert outcome["error"] in told["err"]


def test_a_token_on_the_command_line(command: Reader, publisher: Publisher, file: str) -> None:
    """It is used, and neither it nor a wrong one is shown."""
    told = call(command, file, "--repo", REPO, "--yes", "--token", OWNER, token=STRANGER)
    assert told["status"] == 0
    assert OWNER not in told.said.replace(str(told["environ"]), "")
    for wrong in ("hf_secret value", "hf_sécret", ""):
        told = call(command, file, "--repo", REPO, "--yes", "--token", wrong)
        assert told["status"] == 2
        assert "Error: --token holds no Hub token" in told["err"]
        assert "cret" not in told["err"]


def test_what_goes_on_is_said(command: Reader, publisher: Publisher, file: str) -> None:
    """Waits and tries on stderr; nothing of it on stdout."""
    publisher.hub.fail("POST", "*/commit/*", retry_after_s=0)
    told = call(command, file, "--repo", REPO, "--yes")

    assert told["status"] == 0
    assert "The Hub: it answers too many requests already (429): told to fail. Waiting " in told["err"]
    assert "then try 2 of 6." in told["err"]
    assert len(told["out"].splitlines()) == 1


def test_nobody_can_be_asked(command: Reader, publisher: Publisher, file: str) -> None:
    """Without a terminal and without ``--yes``: exit 2, nobody is talked to, and what to type stands there."""
    asked = len(publisher.hub.requests)
    told = call(command, file, "--repo", REPO, "--create-pr")

    assert told["status"] == 2
    assert f"zenit-hub publish {file} --repo {REPO} --create-pr --dry-run" in told["err"]
    assert told["err"].rstrip().endswith("--create-pr --yes")
    assert len(publisher.hub.requests) == asked


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--repo", "altay"), "--repo names no Hub repo"),
        (("--repo", "https://hub/zenit/altay"), "--repo names no Hub repo"),
        (("--repo", REPO, "--revision", "refs%2Fpr%2F2"), "--revision names no branch"),
        (("--repo", REPO, "--revision", ""), "--revision names no branch"),
        (("--repo", REPO, "--revision", "a" * 40), "--revision names a commit"),
        (("--repo", REPO, "--revision", "refs/pr/2", "--create-pr"), "--create-pr goes to a branch"),
        (("--repo", REPO, "--json", "--quiet"), "--json and --quiet at once"),
    ],
)
def test_a_command_line_that_is_off(command: Reader, file: str, words: tuple[str, ...], why: str) -> None:
    """Exit 2, one line."""
    told = call(command, file, "--yes", *words)
    assert told["status"] == 2
    (line,) = told["err"].splitlines()
    assert line.startswith(f"Error: {why}")


def test_files_that_are_none(command: Reader, publisher: Publisher, tmp_path: Path) -> None:
    """Exit 1, one line each; the Hub is not asked."""
    asked = len(publisher.hub.requests)
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "pipe.json").unlink(missing_ok=True)
    os.mkfifo(tmp_path / "pipe.json")
    for name, why in (
        ("other.json", "is no measurement"),
        ("absent.json", "No such file"),
        ("pipe.json", "no regular file"),
        (".", "directory"),
    ):
        told = call(command, str(tmp_path / name), "--repo", REPO, "--yes")
        assert told["status"] == 1
        (line,) = told["err"].splitlines()
        assert why in line
    assert len(publisher.hub.requests) == asked


def test_a_card_without_markers(command: Reader, publisher: Publisher, file: str) -> None:
    """C5-01: refused with what to type; with ``--init-card`` they come at the end, the rest as it was."""
    plain = README.split(b"<!--")[0]
    publisher.hub.commit(REPO, {"README.md": plain})
    told = call(command, file, "--repo", REPO, "--yes")
    assert told["status"] == 1
    assert "--init-card" in told["err"]

    told = call(command, file, "--repo", REPO, "--yes", "--init-card")
    assert told["status"] == 0
    assert publisher.hub.read(REPO, "README.md").startswith(plain)


def test_what_is_contaminated_is_not_published(command: Reader, publisher: Publisher, tmp_path: Path) -> None:
    """Exit 1 with the reason, nothing sent."""
    path = tmp_path / "m256k.json"
    path.write_text(to_json(measured("m256k", verdict="contaminated", requires_free_bytes=None)))
    told = call(command, str(path), "--repo", REPO, "--yes", "--allow-unverified")

    assert told["status"] == 1
    assert "quiet device" in told["err"]
    assert publisher.ours() == []


@pytest.mark.parametrize(("typed", "status"), [("y", 0), ("", 1)])
def test_a_person_is_asked(publisher: Publisher, file: str, tmp_path: Path, typed: str, status: int) -> None:
    """On a terminal: what would be written, the question, and no is the answer where none is given."""
    told = on_a_terminal(publisher.hub, tmp_path, typed, "publish", file, "--repo", REPO)

    assert told["status"] == status
    assert f"Publish this to {REPO}, branch main, at {publisher.first[:12]}? [y/N]" in told["err"]
    assert (len(publisher.ours()) == 1) is (typed == "y")
    assert ("Nothing was sent." in told["err"]) is (typed == "")


def on_a_terminal(hub: LoopbackHub, folder: Path, typed: str, *words: str) -> dict[str, Any]:
    """The command with a terminal as stdin, on which something is typed when the question comes."""
    ours, theirs = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "ZENIT_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "zenit_hub.cli.main", *words],
        env={**inherited, **hub.environment(home=folder / "home", token=OWNER)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    err = b""
    try:
        while b"[y/N]" not in err:
            ready, _, _ = select.select([process.stderr], [], [], 60)
            chunk = os.read(process.stderr.fileno(), 65536) if ready else b""
            assert chunk, err
            err += chunk
        os.write(ours, f"{typed}\n".encode())
        out, rest = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return {"status": process.returncode, "out": out.decode(), "err": (err + rest).decode()}
