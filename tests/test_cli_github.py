"""GitHub workflows: annotations at their line, and nothing of a stranger's that the runner would carry out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rigs.github import log_commands, names
from tests.stage import config, needs, unrated
from zenit_hub.cli.github import annotation, in_checkout, inert
from zenit_hub.cli.main import main
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END

EVIL = ("::set-output name=a::b", "##[set-output name=a]b", " ::stop-commands::x", "x ##[add-mask]y")
FORMATS = ("human", "agent", "json", "quiet", "github")

PIECES = [*"ab:#[]%,=\r\n \u2028\x85", "::", "##[", "set-output", "error", "%0A"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.fixture
def workflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkout of a workflow, in which the command runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    return tmp_path


def write(file: Path, content: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return file


def test_findings_are_annotations_at_their_lines(workflow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors and warnings, the remedy on a line of its own; what is said last is no command."""
    write(workflow / "model" / "config.json", config({"p": {"max_model_len": 0}}, repo="a/b"))

    assert main(["validate", "model", "--format", "github", "--repo", "org/model"]) == 1
    out, err = capsys.readouterr()
    commands = log_commands(out)
    assert err == ""
    assert [(each.name, each.properties["file"], each.properties["line"]) for each in commands] == [
        ("error", "model/config.json", "8"),
        ("error", "model/config.json", "11"),
    ]
    assert commands[0].data == (
        "/serving_profiles/profiles/p/max_model_len: `max_model_len` is 0, "
        "allowed: a whole number from 1 to 2147483647\nfix: write a whole number from 1 to 2147483647"
    )
    assert out.splitlines()[-1] == "model/config.json: not valid (2 errors)"


def test_a_valid_file_gives_no_annotation(workflow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(workflow / "config.json", config({"p": unrated(8)}))

    assert main(["validate", str(file), "--format", "github"]) == 0
    assert capsys.readouterr().out == f"{file}: valid\n"


def test_files_are_named_from_the_checkout(workflow: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the command was started, and absolute ones too; what is outside stays as it is."""
    (workflow / "model").mkdir()
    monkeypatch.chdir(workflow / "model")

    assert in_checkout("config.json") == "model/config.json"
    assert in_checkout(workflow / "x.json") == "x.json"
    assert in_checkout("../../x.json") == "../../x.json"
    assert in_checkout("x.json", {}) == "x.json"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("evil", EVIL)
def test_a_sections_strings_command_nothing(
    workflow: Path, form: str, evil: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As key, as name, as value, as description, as file name; with findings and with a plan."""
    section = config(
        {
            evil: {"max_model_len": 1},
            "p": unrated(8, description=evil, **{evil: 1, f"\n{evil}": 2}),
            "q": unrated(9, kv_cache_dtype=evil, cuda_alloc_conf=evil),
        },
        repo=evil,
        default_profile=evil,
    )
    section["architectures"] = [evil]
    write(workflow / evil.replace("/", "_") / "config.json", section)
    folder = evil.replace("/", "_")

    assert main(["validate", "--format", form, "--", folder, f"{evil}\n{evil}"]) == 1
    main(["card", "--format", form, "--check", "--", folder])
    if form != "github":
        main(["plan", folder, "--machine", str(write(workflow / "machine.json", {})), "--format", form])
    told = "".join(capsys.readouterr())

    assert set(names(log_commands(told))) <= {"error", "warning"}
    assert (log_commands(told) != []) == (form == "github")


def test_json_in_a_workflow_is_the_same_json(workflow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What would begin a command is escaped as JSON escapes."""
    write(workflow / "config.json", config({"p": unrated(8, **{EVIL[1]: 1})}))

    assert main(["validate", "config.json", "--json"]) == 1
    out = capsys.readouterr().out
    assert EVIL[1] in json.loads(out)["findings"][0]["message"]
    assert EVIL[1] not in out


def test_a_card_that_is_out_of_date_is_an_annotation(
    workflow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the first line that differs; one that is up to date is none."""
    write(workflow / "config.json", config({"p": needs(20, 9000, kv_cache_memory_bytes=2**30)}, repo="a/b"))
    (workflow / "README.md").write_text(f"# Model\n\n{MARK_BEGIN}\n{MARK_END}\n")

    assert main(["card", ".", "--check", "--format", "github"]) == 1
    (command,) = log_commands("".join(capsys.readouterr()))
    assert (command.name, command.properties) == ("error", {"file": "README.md", "line": "4"})
    assert "zenit-hub card . --write" in command.data
    assert main(["card", ".", "--write", "-q"]) == 0
    assert main(["card", ".", "--check", "--format", "github"]) == 0
    assert log_commands("".join(capsys.readouterr())) == []


def test_what_stops_the_command_is_an_annotation_too(
    workflow: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is no file to put it at."""
    assert main(["validate", "config.json", "--format", "github", "--repo", "no repo"]) == 2
    (command,) = log_commands(capsys.readouterr().err)
    assert (command.name, command.properties) == ("error", {})


def test_outside_a_workflow_text_stays_as_it_is(tmp_path: Path) -> None:
    """The replacement is for runners alone."""
    file = write(tmp_path / "config.json", config({"p": unrated(8, **{EVIL[1]: 1})}))

    told = subprocess.run(
        [sys.executable, "-m", "zenit_hub.cli.main", "validate", str(file)],
        env={"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert EVIL[1] in told.stdout


@given(TEXT)
def test_inert_text_commands_nothing(text: str) -> None:
    assert log_commands(inert(text)) == []


@given(TEXT, TEXT)
def test_an_annotation_is_one_command_and_arrives_whole(message: str, file: str) -> None:
    """Whatever the message and the file's name."""
    told = log_commands(annotation("error", message, file=file, line=3))

    assert names(told) == ["error"]
    assert told[0].data == message
    assert told[0].properties == ({"file": file, "line": "3"} if file else {})
