"""The words of all pages: commands and options that are understood, variables and files that are there.

They are read here; typed they are in ``test_docs_run.py`` and ``test_docs_models.py``.
"""

from __future__ import annotations

import configparser
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import pages
from tests.pages import PAGES, ROOT, Block, Command, Started
from zenit_hub import env, say
from zenit_hub.arguments import read_arguments
from zenit_hub.cli.parser import COMMANDS, build_parser
from zenit_hub.cli.words import all_commands
from zenit_hub.compat import NEWEST_SUPPORTED
from zenit_hub.decision import CAUTIONS
from zenit_hub.resources import schema
from zenit_hub.serve_options import serve_options

ALL = [block for page in PAGES for block in pages.blocks(page)]
LINKED = [*PAGES, "SECURITY.md", "CONTRIBUTING.md", "model_card/README.md", "tests/examples/README.md"]
LANGUAGES = {"bash", "dockerfile", "ini", "json", "markdown", "python", "text", "yaml"}
OTHERS = {"HF_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "VLLM_ENABLE_STARTUP_PLAN", say.REPAIR_ID}
"""Names of other programs, which their own pages explain; those of vLLM are held against it in tests/engine."""

_NAME = re.compile(r"\b(?:ZENIT|VLLM|HF|CUDA|PYTORCH|RAY|NVIDIA)_[A-Z0-9_]+\b")


def of(language: str) -> list[Block]:
    return [block for block in ALL if block.language == language]


def by_name(block: Block) -> str:
    return str(block)


def test_every_page_is_looked_at() -> None:
    """And every block in a language that something here reads."""
    assert len(PAGES) >= 13
    assert {block.language for block in ALL} <= LANGUAGES
    fences = sum(pages.source(page).count("\n```") for page in PAGES)
    assert fences == 2 * len(ALL)


@pytest.mark.parametrize("block", ALL, ids=by_name)
def test_a_note_is_one_that_is_read(block: Block) -> None:
    """What is not run says why."""
    assert set(block.notes) <= set(pages.NOTES)
    if "not run" in block.notes:
        assert block.language == "bash"
        assert block.notes["not run"].startswith("needs ")


# --- what is typed


def shell_commands() -> Iterator[tuple[Command, str]]:
    for block in of("bash"):
        yield from pages.in_shell(block)
    for block in of("ini"):
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read_string(block.text)
        line = unit["Service"]["ExecStart"].replace("$$", "$")
        yield from ((each, str(block)) for each in pages.commands(line))


TYPED = list(shell_commands())
STARTED = [
    started for block in of("yaml") for started in pages.in_yaml(str(block), yaml.safe_load(block.text))
]


def vllm_lines() -> list[Started]:
    """Every ``vllm serve`` of the pages, its model in front; without those whose words a variable or a file holds."""
    lines = [
        Started(where, command.words[2:], tuple(command.variables))
        for command, where in TYPED
        if (Path(command.words[0]).name if command.words else "") == "vllm"
    ]
    return [
        line for line in (*lines, *STARTED) if line.words and not line.words[0].startswith(("-", "$ZENIT"))
    ]


@pytest.mark.parametrize(
    ("command", "where"), [each for each in TYPED if each[0].words[:1] == ("zenit-hub",)]
)
def test_a_command_of_ours_is_understood(command: Command, where: str) -> None:
    """By the parser itself, and by vLLM's rules what stands behind ``--``."""
    name, *words = command.words[1:]
    assert name in COMMANDS, where
    ours, rest = words, []
    if "--" in words:
        at = words.index("--")
        ours, rest = words[:at], words[at + 1 :]
    build_parser([name]).parse_args([name, *ours])
    assert read_arguments(rest).unknown == ()


@pytest.mark.parametrize("line", vllm_lines(), ids=lambda line: line.where)
def test_the_words_behind_vllm_serve_are_vllms(line: Started) -> None:
    """Of the newest version that is supported."""
    model, *words = line.words

    assert model in ("org/model", "./model")
    assert read_arguments(words).unknown == ()


def test_there_are_enough_of_them() -> None:
    """The reader of shell blocks finds what a person sees."""
    assert len(vllm_lines()) >= 25
    assert sum(command.words[:1] == ("zenit-hub",) for command, _ in TYPED) >= 50
    assert len(STARTED) >= 5


def known_options() -> set[str]:
    ours = {name for command in all_commands() for option in command.options for name in option.names}
    return ours | {flag for option in serve_options(NEWEST_SUPPORTED) for flag in option.flags} | OF_OTHERS


OF_OTHERS = {
    "--domain",
    "--env",
    "--env-file",
    "--gpus",
    "--from-env-file",
    "--no-deps",
    "--hook",
    "--help",
    "--version",
}


@pytest.mark.parametrize("page", PAGES)
def test_options_and_commands_in_the_text_are_there(page: str) -> None:
    """What stands between backticks: an option, a command of ours with its options."""
    known = known_options()
    said = [span for span in pages.spans(page) if span.startswith(("--", "-tp", "zenit-hub ", "vllm serve "))]
    for span in said:
        words = shlex.split(span.replace("…", "x"))
        flags = {word.partition("=")[0] for word in words if word.startswith("-") and word != "--"}
        assert {flag for flag in flags if flag not in known} == set(), span
        if words[0] == "zenit-hub" and not words[1].startswith("-"):
            assert words[1] in COMMANDS, span


# --- what is set


def declared() -> set[str]:
    return {value for value in vars(env).values() if isinstance(value, str) and _NAME.fullmatch(value)}


@pytest.mark.parametrize("page", PAGES)
def test_a_variable_is_declared(page: str) -> None:
    """In ``env.py``, or it is somebody else's."""
    known = declared() | set(env.PUBLISHED) | OTHERS

    assert {name for name in _NAME.findall(pages.source(page)) if name not in known} == set()


def test_names_that_are_set_beside_a_launch_are_variables() -> None:
    """Also in manifests, where a slip of the finger sets nothing."""
    known = declared() | set(env.PUBLISHED) | OTHERS | {"PYTHONPATH", "IFS", "commit", "refs", "said"}
    set_there = {name for command, _ in TYPED for name in command.variables}
    set_there |= {name for started in STARTED for name in started.variables}

    assert set_there - known == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_code_of_a_warning_is_one(page: str) -> None:
    """In brackets after a word about warnings: ``(`nothing_fits`)``."""
    codes = re.findall(r"\(`([a-z]+_[a-z_]+)`[,)]", pages.prose(page))

    assert [
        code for code in codes if code not in {*CAUTIONS, *schema()["$defs"]["profile"]["properties"]}
    ] == []


# --- where links lead


def anchors(file: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"(?ms)^```.*?^```$", "", file.read_text("utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED)
def test_links_lead_somewhere(page: str) -> None:
    """Within this repo, to a file and a heading that are there; pictures as well."""
    file = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", file.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        if "://" not in target:
            leads = (file.parent / path) if path else file
            assert leads.exists(), target
            assert not anchor or leads.suffix != ".md" or anchor in anchors(leads), target


def test_the_index_names_every_page() -> None:
    index = pages.source(".docs/README.md")

    assert [page for page in PAGES if f"]({Path(page).name}" not in index and "README" not in page] == []


def test_the_readme_is_read_in_one_sitting() -> None:
    assert len(pages.source("README.md").splitlines()) <= 200
