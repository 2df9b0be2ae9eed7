"""Our reading of a command line against vLLM's own parser, option by option. No engine starts here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.argument_lines import FILES, KNOWN_LINES, write_files
from zenit_hub.arguments import read_arguments
from zenit_hub.errors import UsageError
from zenit_hub.installed import vllm_version

CHILD = Path(__file__).with_name("vllm_parser.py")
TOOL = Path(__file__).parents[2] / "tools" / "serve_options.py"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What vLLM reads otherwise than we do, by the line's own text."""
    folder = tmp_path_factory.mktemp("lines")
    write_files(folder)
    lines = [[word.replace("{dir}", str(folder)) for word in line] for line in KNOWN_LINES]
    asked = [{"words": line, "values": values_or_none(line)} for line in lines]
    run = subprocess.run(
        [sys.executable, str(CHILD)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(run.stdout.splitlines()[-1])
    return {" ".join(line): answer for line, answer in zip(KNOWN_LINES, found, strict=True)}


def values_or_none(line: list[str]) -> dict[str, object] | None:
    """Our reading. Options that this version does not have pass us by; vLLM refuses them."""
    try:
        read = read_arguments(line, vllm_version() or "")
    except UsageError:
        return None
    return None if read.unknown else dict(read.values)


@pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: " ".join(line)[:70])
def test_a_line_is_read_as_vllm_reads_it(line: list[str], answers: dict[str, str]) -> None:
    """The same values of the same types, nothing else set, or refused by both."""
    assert answers[" ".join(line)] == ""


def test_there_are_lines_of_every_kind() -> None:
    """Enough lines, and files among them."""
    assert len(KNOWN_LINES) >= 60
    assert FILES


def test_the_table_of_options_is_the_installed_vllm_s() -> None:
    """Every flag, type, arity and choice of the installed version stands in serve_options.json, and no other."""
    run = subprocess.run(
        [sys.executable, str(TOOL), "--check"], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
