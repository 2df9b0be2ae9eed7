"""The help of every command: examples, exit statuses, a width that suits, and words that are understood."""

from __future__ import annotations

import re
import shlex

import pytest

from zenit_hub.cli.main import main
from zenit_hub.cli.parser import COMMANDS, build_parser, commands_of
from zenit_hub.cli.words import Command, all_commands

ALL = {command.name: command for command in all_commands()}


def shown(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", [*COMMANDS, ""])
@pytest.mark.parametrize("columns", ["80", "100", "200"])
def test_no_line_is_wider_than_the_terminal(
    name: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And none wider than a person reads."""
    monkeypatch.setenv("COLUMNS", columns)
    lines = shown(*filter(None, [name]), capsys=capsys).splitlines()

    assert [line for line in lines if len(line) > min(int(columns), 100)] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_says_how_it_ends(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(name, capsys=capsys)

    assert "exit status: 0 " in text
    assert len(examples(ALL[name])) >= 2
    assert "usage: zenit-hub" in text


def examples(command: Command) -> list[str]:
    """The lines below ``examples:`` that call us, without their comments."""
    _, _, below = command.epilog.partition("examples:\n")
    block = below.partition("\n\n")[0]
    return [line.strip() for line in block.splitlines() if "zenit-hub " in line]


@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, command in ALL.items() for line in examples(command)]
)
def test_the_examples_are_understood(name: str, line: str) -> None:
    """By the parser itself: no option that is not there, nothing missing."""
    call = re.search(r"zenit-hub ([^#|>)]*)", line)
    assert call is not None
    words = shlex.split(call[1].rstrip('"'))
    assert words[0] == name
    ours = words[: words.index("--")] if "--" in words and ALL[name].takes_rest else words

    options = build_parser([name]).parse_args(ours)
    assert options.command == name


@pytest.mark.parametrize("command", ALL.values(), ids=lambda command: command.name)
def test_every_argument_says_what_it_is(command: Command) -> None:
    """Without placeholders that were not filled in."""
    assert [each for each in command.arguments if not each.help.strip() or "%" in each.help] == []


def test_the_main_help_names_all_commands_and_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys=capsys)

    assert [name for name in COMMANDS if f"\n    {name}" not in text] == []
    assert all(str(status) in text for status in (0, 1, 2, 3, 130))


def test_a_call_configures_its_own_command_alone() -> None:
    """The others cost nothing."""
    parsers = commands_of(build_parser(["plan"]))

    assert list(parsers) == list(COMMANDS)
    assert parsers["plan"].epilog
    assert not parsers["validate"].epilog
