"""Shell completion: what a Tab gives, in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from zenit_hub.cli.main import main
from zenit_hub.cli.parser import COMMANDS
from zenit_hub.cli.words import all_commands

Complete = Callable[..., list[str]]

BASH = """
source ./script
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_zenit_hub
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.fixture
def complete(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash offers for the last word."""
    (tmp_path / "script").write_text(script("bash", capsys))

    def ask(*words: str) -> list[str]:
        told = subprocess.run(
            ["bash", "--norc", "-uc", BASH, "bash", "zenit-hub", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert told.stderr == ""
        return told.stdout.split()

    return ask


def test_commands(complete: Complete) -> None:
    """All of them, and those that begin so."""
    assert complete("") == ["--help", "--version", *COMMANDS]
    assert complete("pl") == ["plan"]
    assert complete("--v") == ["--version"]


def test_options_of_the_command_that_was_typed(complete: Complete) -> None:
    assert complete("plan", "--m") == ["--machine"]
    assert complete("plan", "./model", "--s") == ["--strict"]
    assert complete("validate", "--m") == []


@pytest.mark.parametrize("words", [("validate", "--format", "g"), ("validate", "--format", "=", "g")])
def test_choices_of_an_option(complete: Complete, words: tuple[str, ...]) -> None:
    """With a space or an equals sign, which bash takes for a word."""
    assert complete(*words) == ["github"]
    assert complete("validate", "--format", "=")[:2] == ["auto", "human"]


def test_choices_of_an_operand(complete: Complete) -> None:
    assert complete("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("words", [("plan", ""), ("plan", "--machine", ""), ("plan", "./m", "--", "--ma")])
def test_the_rest_is_left_to_the_shell(complete: Complete, words: tuple[str, ...]) -> None:
    """Files, and what is vLLM's own."""
    assert complete(*words) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_word_is_in_every_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So that none of the three is forgotten."""
    text = script(shell, capsys)

    for command in all_commands():
        assert command.name in text
        for name in (name for option in command.options for name in option.names):
            assert (
                f"-l {name[2:]}" if shell == "fish" and name.startswith("--") else name.lstrip("-")
            ) in text


@pytest.mark.parametrize("shell", [name for name in ("bash", "zsh", "fish") if shutil.which(name)])
def test_the_shell_reads_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each shell that is here; CI installs all three."""
    (tmp_path / "script").write_text(script(shell, capsys))

    told = subprocess.run([shell, "-n", "script"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_another_shell_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["completion", "tcsh"])
    assert ended.value.code == 2
