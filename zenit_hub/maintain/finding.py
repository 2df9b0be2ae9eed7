"""What is found in a file: where, what, and what to type next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from zenit_hub.text import printable

Level = Literal["error", "warning"]
Place = tuple[str | int, ...]

MAX_SHOWN = 100
"""Findings of one file that are listed; a file of a stranger may hold a million."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``path`` is a JSON pointer; ``line`` counts from 1, ``None`` where there is no line to name.

    A pointer is exact for names of up to 80 printable characters; others stand escaped and shortened.
    """

    level: Level
    path: str
    line: int | None
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Note:
    """A finding before its line is known. ``line`` is set only where no place in the document says it."""

    level: Level
    where: Place
    message: str
    fix: str
    line: int | None = None


def error(where: Place, message: str, fix: str, *, line: int | None = None) -> Note:
    return Note("error", where, message, fix, line)


def warning(where: Place, message: str, fix: str, *, line: int | None = None) -> Note:
    return Note("warning", where, message, fix, line)


def pointer(where: Place) -> str:
    """``where`` as a JSON pointer (RFC 6901), fit for a terminal."""
    return "".join(f"/{_token(part)}" for part in where)


def _token(part: str | int) -> str:
    return printable(str(part)[:200].replace("~", "~0").replace("/", "~1"), limit=80)


def place(
    notes: Sequence[Note], lines_of: Callable[[Iterable[Place]], dict[Place, int]]
) -> tuple[Finding, ...]:
    """The notes as findings in the order of the file, those past :data:`MAX_SHOWN` counted in a last one."""
    shown = sorted(notes, key=lambda note: note.level)[:MAX_SHOWN]
    lines = lines_of({note.where for note in shown if note.where and note.line is None})
    findings = [
        Finding(
            note.level,
            pointer(note.where),
            note.line if note.line is not None else lines.get(note.where),
            note.message,
            note.fix,
        )
        for note in shown
    ]
    findings.sort(key=lambda finding: finding.line or 0)
    rest = len(notes) - len(shown)
    if rest:
        level: Level = "error" if sum(note.level == "error" for note in notes) > MAX_SHOWN else "warning"
        findings.append(
            Finding(
                level,
                "",
                None,
                f"at least {rest} more findings are not listed",
                "mend these first, then validate again",
            )
        )
    return tuple(findings)
