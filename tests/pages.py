"""The pages that people read, taken apart: code blocks with what is noted above them, and the commands in them.

A note is an HTML comment directly above a block:

``not run: WHY``   the block needs what is not here; it is read and not run
``at: clone``      it is typed in a clone of this repo, with the ``pip`` of an environment of its own
``desk: KIND``     from here on at a fresh desk (:class:`tests.rigs.desk.Desk`): ``fresh``, ``bare``, ``measured``
``is: FILE``       the block shows what FILE holds after the blocks before
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(f".docs/{file.name}" for file in (ROOT / ".docs").glob("*.md"))]
"""What is written by hand for people who use it. What is generated has its own tests."""

NOTES = ("not run", "at", "desk", "is")

_BLOCK = re.compile(
    r"(?P<notes>(?:^<!-- [^\n]* -->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NOTE = re.compile(r"<!-- (.+?): (.+) -->")
_SPAN = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_SEPARATORS = frozenset("();<>|&\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. ``follows``: only empty lines are between it and the block before."""

    page: str
    line: int
    language: str
    text: str
    notes: Mapping[str, str]
    follows: bool

    @property
    def runs(self) -> bool:
        return self.language == "bash" and "not run" not in self.notes

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command of a shell script, without redirections."""

    words: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


def source(page: str) -> str:
    return (ROOT / page).read_text("utf-8")


def blocks(page: str, language: str | None = None) -> list[Block]:
    """The blocks of a page in their order, of one language or all."""
    text, found, end = source(page), [], 0
    for match in _BLOCK.finditer(text):
        notes = dict(_NOTE.findall(match["notes"]))
        line = text.count("\n", 0, match.start("language")) + 1
        follows = bool(found) and not text[end : match.start()].strip()
        found.append(Block(page, line, match["language"], match["text"], notes, follows))
        end = match.end()
    return [block for block in found if language in (None, block.language)]


def prose(page: str) -> str:
    """What stands outside of the blocks."""
    return _BLOCK.sub("", source(page))


def spans(page: str) -> list[str]:
    """What stands between backticks in the prose, on one line."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]


def commands(script: str) -> Iterator[Command]:
    """The simple commands of a script, those in ``$(…)`` and ``sh -c '…'`` among them."""
    code = re.sub(r"(?m)(^|\s)#.*$", r"\1", script).replace("\\\n", " ")
    code = re.sub(r"(?<=\s)\d(?=[<>])", "", code)  # the number of what is redirected
    lexer = shlex.shlex(code, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    words: list[str] = []
    redirected = False
    for token in [*lexer, "\n"]:
        if set(token) <= _SEPARATORS:
            redirected = bool(set(token) & set("<>"))
            if not redirected:
                yield from _simple(words)
                words = []
        elif not redirected:
            words.append(token)
        else:
            redirected = False


def _simple(words: Sequence[str]) -> Iterator[Command]:
    for word in words:
        for inner in re.findall(r"\$\(([^)]*)\)", word):
            yield from commands(inner)
    rest = list(words)
    while rest and rest[0] in ("do", "then", "else", "if", "while", "exec", "time", "{"):
        rest.pop(0)
    variables = {}
    while rest and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", rest[0], re.DOTALL)):
        variables[match[1]] = match[2]
        rest.pop(0)
    if rest and Path(rest[0]).name == "sh" and rest[1:2] == ["-c"]:
        yield from commands(rest[2])
    elif rest or variables:
        yield Command(tuple(rest), variables)


# --- what is started by something else than a shell


@dataclass(frozen=True, slots=True)
class Started:
    """``vllm serve`` as a container, a unit or a manifest starts it: the words behind it, the names that are set."""

    where: str
    words: tuple[str, ...]
    variables: tuple[str, ...] = ()


_TAKES_A_VALUE = ("-p", "-v", "-t", "-e", "--env", "--env-file", "--entrypoint", "--gpus")
"""Of ``docker run``'s options those of these pages that have their value behind them."""


def in_shell(block: Block) -> Iterator[tuple[Command, str]]:
    """The commands of a shell block, those inside of a container or pod in the place of what starts it."""
    for command in commands(block.text):
        for inner in _inside(command):
            yield inner, str(block)


def _inside(command: Command) -> Iterator[Command]:
    words = command.words
    if words[:2] == ("docker", "run"):
        yield from _in_container(words[2:])
    elif words[:2] == ("kubectl", "exec"):
        yield Command(words[words.index("--") + 1 :])
    else:
        yield command


def _in_container(words: Sequence[str]) -> Iterator[Command]:
    rest, entry, variables = list(words), "", {}
    while rest[0].startswith("-"):
        option = rest.pop(0)
        value = rest.pop(0) if option in _TAKES_A_VALUE else ""
        if option == "--entrypoint":
            entry = value
        elif option == "--env":
            name, _, what = value.partition("=")
            variables[name] = what
    arguments = tuple(rest[1:])
    if entry == "sh":
        yield from commands(arguments[1])
    else:
        yield Command((entry, *arguments) if entry else ("vllm", "serve", *arguments), variables)


def in_yaml(where: str, content: object) -> Iterator[Started]:
    """The containers of a manifest or a Compose file, and the environment of a Ray Serve deployment."""
    if isinstance(content, list):
        for each in content:
            yield from in_yaml(where, each)
    elif isinstance(content, dict):
        if "image" in content or "build" in content:
            yield _container(where, content)
        elif "env_vars" in content:
            yield Started(where, (), tuple(content["env_vars"]))
        for each in content.values():
            yield from in_yaml(where, each)


def _container(where: str, content: Mapping[str, object]) -> Started:
    environment = content.get("env") or content.get("environment") or {}
    names = (
        tuple(environment) if isinstance(environment, dict) else tuple(each["name"] for each in environment)
    )
    entry = content.get("entrypoint") or (content.get("command") if "args" in content else None)
    words = content.get("args") or content.get("command") or ()
    is_vllm = entry is None and words and words[0] != "sh"
    return Started(where, tuple(words) if is_vllm else (), names)
