"""``zenit-hub publish`` as people and machines call it."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.measurements import CARD, GIB
from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import OWNER, README, REPO, STRANGER, Publisher, measured
from zenit_hub.cli.main import main
from zenit_hub.maintain.measurement import to_json

pytest_plugins = ("tests.rigs.publishing_fixtures",)


@dataclass(frozen=True)
class Told:
    """What one call brought."""

    status: int
    out: str
    err: str


Command = Callable[..., Told]


@pytest.fixture
def command(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """``zenit-hub publish WORDS``, with what ``HF_ENDPOINT`` and ``HF_TOKEN`` do to the client."""
    monkeypatch.setattr(constants, "ENDPOINT", publisher.hub.url)
    template = f"{publisher.hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)

    def call(*words: str, token: str = OWNER) -> Told:
        monkeypatch.setenv("HF_TOKEN", token)
        status = main(["publish", *words])
        told = Told(status, *capsys.readouterr())
        assert token not in told.out + told.err
        return told

    return call


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A measurement of m256k, with its picture."""
    path = tmp_path / "m256k.json"
    path.write_text(to_json(measured("m256k")))
    path.with_suffix(".svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return str(path)


def test_published(command: Command, publisher: Publisher, file: str) -> None:
    """The address on stdout, what changes on stderr, and that serving machines recompile once."""
    told = command(file, "--repo", REPO, "--yes")

    assert told.status == 0
    head = publisher.hub.head(REPO)
    assert told.out == f"published to {REPO}, main: {publisher.hub.url}/{REPO}/commit/{head}\n"
    lines = told.err.splitlines()
    assert lines[:5] == [
        f"Reading {REPO}, main.",
        f"m256k on {CARD}: 24.00 GiB (vLLM 0.32.0)",
        f"m256k: requires_free_bytes is now {24 * GIB}",
        "  config.json",
        "  README.md",
    ]
    assert [line for line in lines if line.startswith("Hint: Serving machines recompile once")] == lines[-1:]
    card = publisher.hub.read(REPO, "README.md").decode()
    assert f"vllm serve {REPO}" in card
    paths = publisher.hub.repository(REPO).resolve("main").files
    assert sorted(Path(path).suffix for path in paths if path.startswith("serving_profiles/")) == [
        ".json",
        ".svg",
    ]
    assert Path(file).exists()


def test_published_again_is_nothing(command: Command, publisher: Publisher, file: str) -> None:
    """Exit 0, one line."""
    command(file, "--repo", REPO, "--yes", "--quiet")
    told = command(file, "--repo", REPO, "--yes")

    assert told.status == 0
    assert told.out.startswith(f"nothing to publish: {REPO} has all of it in main, at ")
    assert len(publisher.ours()) == 1


def test_quiet(command: Command, publisher: Publisher, file: str) -> None:
    """Only the address."""
    told = command(file, "--repo", REPO, "-y", "-q")
    assert told.out == f"{publisher.hub.url}/{REPO}/commit/{publisher.hub.head(REPO)}\n"
    assert told.err == ""


def test_json(command: Command, publisher: Publisher, file: str) -> None:
    """One object, with the same keys each time."""
    told = command(file, "--repo", REPO, "--yes", "--json")
    outcome = json.loads(told.out)

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
    again = json.loads(command(file, "--repo", REPO, "--yes", "--json").out)
    assert (again["outcome"], again["files"]) == ("nothing", [])


def test_a_dry_run(command: Command, publisher: Publisher, file: str) -> None:
    """Head and diff on stdout, without a question; nothing is sent."""
    told = command(file, "--repo", REPO, "--dry-run")

    assert told.status == 0
    out = told.out.splitlines()
    assert out[0] == f"head {publisher.first}"
    assert f'+        "requires_free_bytes": {24 * GIB},' in out
    assert told.err.endswith("Nothing was sent.\n")
    assert publisher.hub.head(REPO) == publisher.first
    shown = json.loads(command(file, "--repo", REPO, "--dry-run", "--json").out)
    assert (shown["outcome"], shown["commit"]) == ("dry_run", publisher.first)
    assert shown["diff"] in told.out


def test_a_pull_request(command: Command, publisher: Publisher, file: str) -> None:
    """Opened by a stranger, then nothing; what happens once it is merged is said."""
    told = command(file, "--repo", REPO, "--create-pr", "--yes", token=STRANGER)

    assert told.status == 0
    assert told.out == f"pull request 1 opened: {publisher.hub.url}/{REPO}/discussions/1\n"
    assert "Hint: Once it is merged: serving machines recompile once" in told.err
    again = command(file, "--repo", REPO, "--create-pr", "--yes", "--json", token=STRANGER)
    outcome = json.loads(again.out)
    assert (outcome["outcome"], outcome["pull_request"]) == ("nothing", 1)


def test_a_stranger_is_told_of_pull_requests(command: Command, publisher: Publisher, file: str) -> None:
    """Exit 1; the command to type is whole; as JSON, too."""
    told = command(file, "--repo", REPO, "--yes", token=STRANGER)
    assert told.status == 1
    assert told.out == ""
    reading, line = told.err.splitlines()
    assert reading.startswith("Reading ")
    assert line.startswith("Error: this token may not write to zenit/altay (403)")
    assert line.endswith(f"zenit-hub publish {file} --repo {REPO} --create-pr")

    told = command(file, "--repo", REPO, "--yes", "--json", token=STRANGER)
    outcome = json.loads(told.out)
    assert (outcome["outcome"], outcome["trouble"], outcome["tries"]) == ("failed", "forbidden", 1)
    assert outcome["error"] in told.err


def test_a_token_on_the_command_line(command: Command, publisher: Publisher, file: str) -> None:
    """It is used, and neither it nor a wrong one is shown."""
    told = command(file, "--repo", REPO, "--yes", "--token", OWNER, token=STRANGER)
    assert told.status == 0
    assert OWNER not in told.out + told.err
    for wrong in ("hf_secret value", "hf_sécret", "hf_secret\n", ""):
        told = command(file, "--repo", REPO, "--yes", "--token", wrong)
        assert told.status == 2
        assert "Error: --token holds no Hub token" in told.err
        assert "cret" not in told.err


SECRET = "hf_SESAMEsesameSESAME"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a.json", "--tokn", SECRET), "got --tokn …"),
        ((f"--tokn={SECRET}",), "got --tokn=…. See"),
        (("a.json", "--hf-token", "SESAME"), "got --hf-token …"),
        (
            ("--repo", f"https://user:{SECRET}@huggingface.co/{REPO}"),
            "got https://…@huggingface.co/zenit/altay",
        ),
        ((SECRET,), "No such file or directory: hf_…"),
        (("--json", SECRET), "No such file or directory: hf_…"),
    ],
)
def test_a_token_where_none_belongs(command: Command, file: str, words: tuple[str, ...], said: str) -> None:
    """With a slip of the finger, within an address as git takes it, as a file: it is not shown."""
    told = command(*words, file, "--yes", *(() if "--repo" in words else ("--repo", REPO)))

    assert told.status in (1, 2)
    assert said in told.err
    assert "sesame" not in (told.out + told.err).lower()
    assert "--json" not in words or json.loads(told.out)["error"] in told.err


def test_a_files_name_is_shown_without_its_control_characters(command: Command, tmp_path: Path) -> None:
    """A shell's pattern finds what a stranger's archive put there."""
    told = command(str(tmp_path / "\x1b[31m.json"), "--repo", REPO, "--yes")
    assert told.err == f"Error: No such file or directory: {tmp_path}/\\u001b[31m.json\n"


def test_into_a_pull_request_by_its_revision(command: Command, publisher: Publisher, file: str) -> None:
    """Machines that serve compile anew once it is merged, not before."""
    command(file, "--repo", REPO, "--create-pr", "--yes")
    path = Path(file).with_name("other.json")
    path.write_text(to_json(measured("s32k", 11)))
    told = command(str(path), "--repo", REPO, "--revision", "refs/pr/1", "--yes")

    assert told.status == 0
    assert "Hint: Once it is merged: serving machines recompile once" in told.err


def test_what_goes_on_is_said(command: Command, publisher: Publisher, file: str) -> None:
    """Waits and tries on stderr; nothing of it on stdout."""
    publisher.hub.fail("POST", "*/commit/*", retry_after_s=0)
    told = command(file, "--repo", REPO, "--yes")

    assert told.status == 0
    assert "The Hub: it has been asked too often (429): told to fail. Waiting " in told.err
    assert "then try 2 of 6." in told.err
    assert len(told.out.splitlines()) == 1


def test_nobody_can_be_asked(command: Command, publisher: Publisher, file: str) -> None:
    """Without a terminal and without ``--yes``: exit 2, nobody is talked to, and what to type stands there."""
    asked = len(publisher.hub.requests)
    told = command(file, "--repo", REPO, "--create-pr")

    assert told.status == 2
    assert f"zenit-hub publish {file} --repo {REPO} --create-pr --dry-run" in told.err
    assert told.err.rstrip().endswith("--create-pr --yes")
    assert len(publisher.hub.requests) == asked


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--repo", "altay"), "--repo names no Hub repo"),
        (("--repo", "https://hub/zenit/altay"), "--repo names no Hub repo"),
        (("--repo", REPO, "--revision", "refs%2Fpr%2F2"), "--revision names no branch"),
        (("--repo", REPO, "--revision", ""), "--revision names no branch"),
        (("--repo", REPO, "--revision", ".."), "--revision names no branch"),
        (("--repo", REPO, "--revision", "a//b"), "--revision names no branch"),
        (("--repo", REPO, "--revision", "a" * 40), "--revision names a commit"),
        (("--repo", REPO, "--revision", "refs/pr/2", "--create-pr"), "--create-pr goes to a branch"),
        (("--repo", REPO, "--json", "--quiet"), "--json and --quiet at once"),
    ],
)
def test_a_command_line_that_is_off(command: Command, file: str, words: tuple[str, ...], why: str) -> None:
    """Exit 2, one line."""
    told = command(file, "--yes", *words)
    assert told.status == 2
    (line,) = told.err.splitlines()
    assert line.startswith(f"Error: {why}")


def test_files_that_are_none(command: Command, publisher: Publisher, tmp_path: Path) -> None:
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
        told = command(str(tmp_path / name), "--repo", REPO, "--yes")
        assert told.status == 1
        (line,) = told.err.splitlines()
        assert why in line
    assert len(publisher.hub.requests) == asked


def test_a_card_without_markers(command: Command, publisher: Publisher, file: str) -> None:
    """C5-01: refused with what to type; with ``--init-card`` they come at the end, the rest as it was."""
    plain = README.split(b"<!--")[0]
    publisher.hub.commit(REPO, {"README.md": plain})
    told = command(file, "--repo", REPO, "--yes")
    assert told.status == 1
    assert "--init-card" in told.err

    told = command(file, "--repo", REPO, "--yes", "--init-card")
    assert told.status == 0
    assert publisher.hub.read(REPO, "README.md").startswith(plain)


def test_what_is_contaminated_is_not_published(
    command: Command, publisher: Publisher, tmp_path: Path
) -> None:
    """Exit 1 with the reason, nothing sent."""
    path = tmp_path / "m256k.json"
    path.write_text(to_json(measured("m256k", verdict="contaminated", requires_free_bytes=None)))
    told = command(str(path), "--repo", REPO, "--yes", "--allow-unverified")

    assert told.status == 1
    assert "quiet device" in told.err
    assert publisher.ours() == []


def test_a_person_says_yes(publisher: Publisher, file: str, tmp_path: Path) -> None:
    """On a terminal: what would be written, then the question."""
    told = on_a_terminal(publisher.hub, tmp_path, "y", "publish", file, "--repo", REPO, "--quiet")

    assert told.status == 0
    assert f"m256k: requires_free_bytes is now {24 * GIB}" in told.err
    assert f"Publish this to {REPO}, branch main, at {publisher.first[:12]}? [y/N]" in told.err
    assert len(publisher.ours()) == 1


@pytest.mark.parametrize("typed", ["", "\n", "n\n", "yes please\n"])
def test_anything_but_yes_is_no(
    command: Command, publisher: Publisher, file: str, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    """Also an input that ends: exit 1, and nothing was sent."""
    stdin = io.StringIO(typed)
    monkeypatch.setattr(stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", stdin)
    told = command(file, "--repo", REPO)

    assert (told.status, told.out) == (1, "")
    assert told.err.endswith("Nothing was sent.\n")
    assert publisher.ours() == []


def test_ctrl_c(command: Command, publisher: Publisher, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 130, and what to do about a commit that may have been on its way."""

    class Interrupted(io.StringIO):
        def isatty(self) -> bool:
            return True

        def readline(self, *_: object) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    told = command(file, "--repo", REPO)

    assert told.status == 130
    assert "the same command finds out whether a commit landed" in told.err
    assert publisher.ours() == []
    told = command(file, "--repo", REPO, "--json")
    assert (told.status, json.loads(told.out)["outcome"]) == (130, "interrupted")


def on_a_terminal(hub: LoopbackHub, folder: Path, typed: str, *words: str) -> Told:
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
    return Told(process.returncode, out.decode(), (err + rest).decode())
