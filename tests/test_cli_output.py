"""Output formats, colours and widths: the same for every command."""

from __future__ import annotations

import argparse
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stage import GIB, config, needs, unrated
from zenit_hub.cli.main import main
from zenit_hub.cli.options import Format, add_output, settle
from zenit_hub.cli.output import Sink
from zenit_hub.errors import UsageError
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END

LONG = "a-name-of-64-letters-" + "x" * 43
CARD = {"name": "Card A", "total_bytes": 32 * GIB, "free_bytes": 30 * GIB, "compute_capability": "9.0"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with a long name in it, and a machine beside it."""
    folder = tmp_path / "model"
    folder.mkdir()
    profiles = {LONG: needs(40, 16384), "narrow": needs(10, 4096), "bare": unrated(8192)}
    (folder / "config.json").write_text(json.dumps(config(profiles)))
    (tmp_path / "machine.json").write_text(json.dumps({"devices": [CARD]}))
    return folder


def plan(model: Path, *words: str) -> int:
    return main(["plan", str(model), "--machine", str(model.parent / "machine.json"), *words])


def settled(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_output(parser, json="", quiet="", github="x")
    options = parser.parse_args(words)
    options.settled = settle(options)
    return options


# --- which format


@pytest.mark.parametrize(
    ("words", "form"),
    [
        ((), "auto"),
        (("--json",), "json"),
        (("-q",), "quiet"),
        (("--format", "json"), "json"),
        (("--format", "quiet", "--quiet"), "quiet"),
        (("--format", "github"), "github"),
        (("--format", "agent"), "agent"),
    ],
)
def test_the_short_forms_are_the_long_one(words: tuple[str, ...], form: str) -> None:
    """Whichever was typed, a command may ask any of the three."""
    options = settled(*words)

    assert options.settled == form
    assert (options.json, options.quiet) == (form == "json", form == "quiet")


@pytest.mark.parametrize(
    "words", [("--json", "-q"), ("--format", "human", "--json"), ("-q", "--format", "github")]
)
def test_two_formats_are_a_usage_error(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="at once; allowed: one of them"):
        settled(*words)


def test_json_and_format_json_are_the_same(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan(model, "--json")
    short = capsys.readouterr().out
    plan(model, "--format", "json")

    assert capsys.readouterr().out == short


def test_quiet_is_the_one_word_that_a_script_needs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """plan: the profile; validate: what is not valid."""
    good, bad = model.parent / "good.json", model.parent / "bad.json"
    good.write_text('{"profiles": {"p": {"max_model_len": 1}}}')
    bad.write_text('{"profiles": {"p": {}}}')

    assert plan(model, "-q") == 0
    assert capsys.readouterr().out == "narrow\n"
    assert main(["validate", "-q", str(good), str(bad)]) == 1
    assert capsys.readouterr() == (f"{bad}\n", "")


def test_quiet_and_no_profile_is_nothing(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "config.json").write_text("{}")

    assert plan(model, "-q") == 0
    assert capsys.readouterr() == ("", "")


def test_a_card_in_every_format(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Out of date, written, up to date; as JSON one object with the same keys."""
    readme = model / "README.md"
    readme.write_text(f"# Model\n{MARK_BEGIN}\n{MARK_END}\n")
    keys = ["file", "up_to_date", "line", "written", "block"]

    def told(*words: str) -> str:
        main(["card", str(model), *words])
        return capsys.readouterr().out

    assert told("--check", "-q") == f"{readme}\n"
    found = [json.loads(told(*words, "--json")) for words in ((), ("--check",), ("--write",), ("--check",))]
    assert [list(each) for each in found] == [keys] * 4
    assert [(each["up_to_date"], each["line"], each["written"]) for each in found] == [
        (None, None, False),
        (False, 3, False),
        (True, None, True),
        (True, None, False),
    ]
    assert found[0]["block"] in readme.read_text()
    assert told("--check", "-q") == ""


def test_hints_and_notes_are_not_for_scripts() -> None:
    """A warning is, and so is a question."""
    err = io.StringIO()
    sink = Sink(err, err)
    sink.suit("quiet")
    for say in (sink.hint, sink.note, sink.warning, sink.ask):
        say(say.__name__)

    assert err.getvalue() == "Warning: warning\nask\n"


# --- colours


@pytest.mark.parametrize(
    ("form", "variables", "coloured"),
    [
        ("auto", {}, True),
        ("human", {}, True),
        ("agent", {}, False),
        ("json", {}, False),
        ("auto", {"NO_COLOR": "1"}, False),
        ("auto", {"NO_COLOR": ""}, True),
        ("auto", {"TERM": "dumb"}, False),
        ("human", {"NO_COLOR": "yes"}, False),
    ],
)
def test_colours(
    monkeypatch: pytest.MonkeyPatch, form: Format, variables: dict[str, str], coloured: bool
) -> None:
    """On a terminal that wants them, for people."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal, pipe = Terminal(), io.StringIO()
    sink = Sink(terminal, terminal)
    sink.suit(form)
    sink.data(sink.paint("x", "red"))
    sink.error("y")
    Sink(pipe, pipe).error("z")

    assert ("\x1b[31mx\x1b[0m" in terminal.getvalue()) is coloured
    assert ("\x1b[31mError\x1b[0m: y" in terminal.getvalue()) is coloured
    assert pipe.getvalue() == "Error: z\n"


def test_on_a_real_terminal(model: Path) -> None:
    """The chosen row is bold, and with NO_COLOR nothing is."""
    words = [sys.executable, "-m", "zenit_hub.cli.main", "plan", str(model), "--machine", "machine.json"]

    def shown(**variables: str) -> str:
        ours, theirs = pty.openpty()
        environment = {"TERM": "xterm", "COLUMNS": "120", "PATH": os.environ["PATH"], **variables}
        subprocess.run(words, cwd=model.parent, env=environment, stdout=theirs, stderr=theirs, check=True)
        os.close(theirs)
        text = os.read(ours, 65536).decode()
        os.close(ours)
        return text

    assert "\x1b[1m→ narrow" in shown()
    assert "\x1b" not in shown(NO_COLOR="1")


# --- widths


def test_a_table_that_is_too_wide_is_stacked(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name stays whole; no line of it is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    assert plan(model) == 0

    rows = capsys.readouterr().out.split("\n\n")[1].splitlines()
    assert rows[:6] == [
        f"  {LONG}",
        "    window 16384, needs 40.00 GiB",
        "    too large by 10.75 GiB",
        "→ narrow",
        "    window 4096, needs 10.00 GiB",
        "    fits",
    ]


@pytest.mark.parametrize("words", [(), ("--format", "agent")])
@pytest.mark.parametrize("columns", ["", "wide", "0", "40"])
def test_without_a_terminal_nothing_is_shortened(
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    columns: str,
) -> None:
    """Unless COLUMNS says a width, and that is for people."""
    monkeypatch.setenv("COLUMNS", columns)
    plan(model, *words)

    is_table = f"  {LONG} 16384  40.00 GiB too large" in capsys.readouterr().out
    assert is_table == (columns != "40" or bool(words))
