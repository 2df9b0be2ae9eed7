"""The block between our two markers in a model card; every other byte of it stays as it was.

Never through a YAML library: that reorders the header, drops its comments and reads ``1.10`` as ``1.1``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from zenit_hub.errors import PublicationError
from zenit_hub.limits import LFS_MARK

MARK_BEGIN = "<!-- zenit-hub card: begin -->"
MARK_END = "<!-- zenit-hub card: end -->"

_BREAK = re.compile(r"\r\n|\n|\r")
_HEADER_EDGE = "---"
_FENCE = re.compile(r" {0,3}(?:(`{3,})[^`\r\n]*|(~{3,})[^\r\n]*)(?![^\r\n])")
"""The edge of a block of code, as CommonMark has it."""

_TELLING = re.compile(f"zenit-hub card:|```|~~~|{_HEADER_EDGE}")
_MEND = f"Each stands once, on a line of its own, below the YAML header: {MARK_BEGIN} and then {MARK_END}."


@dataclass(frozen=True, slots=True)
class _Line:
    """``text`` without its white space; ``at`` and ``end`` with it and with the line end."""

    number: int
    at: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Between:
    """What stands between the markers, from ``at`` to ``end``. ``newline``: the one behind the begin marker."""

    at: int
    end: int
    newline: str


def block_of(readme: bytes) -> str | None:
    """What stands between the markers, with ``\\n`` as line end and without the last one; ``None``: no markers.

    Raises :class:`~zenit_hub.errors.PublicationError` like :func:`with_block`.
    """
    text = _text(readme)
    between = _between(text)
    return None if between is None else _plain(text[between.at : between.end])


def with_block(readme: bytes | None, block: str, *, init_card: bool = False) -> bytes:
    """``readme`` with ``block`` between its markers, in the file's own line ends. ``None``: there is no README.

    Without markers it is refused, unless ``init_card``: then both are added at the end, after an empty line.

    Raises :class:`~zenit_hub.errors.PublicationError`, with the line where there is one: no markers, only one
    of the two, more than one pair, the end before the begin, a marker in the YAML header or beside other text,
    a Git LFS pointer, not UTF-8.
    """
    if MARK_BEGIN in block or MARK_END in block:
        raise PublicationError("the card's block holds a marker of the card itself")
    text = "" if readme is None else _text(readme)
    between = _between(text)
    if between is None:
        if not init_card:
            raise _no_place(readme is None)
        text, between = _with_markers(text)
    plain = _plain(block)
    inner = "".join(f"{line}{between.newline}" for line in plain.split("\n")) if plain else ""
    return f"{text[: between.at]}{inner}{text[between.end :]}".encode()


def _no_place(no_file: bool) -> PublicationError:
    if no_file:
        return PublicationError("there is no README.md", next_step="`--init-card` makes one.")
    return PublicationError(
        "README.md has no markers between which the card belongs",
        next_step=f"`--init-card` adds them at the end. Or write them where it belongs. {_MEND}",
    )


def _text(readme: bytes) -> str:
    if readme.startswith(LFS_MARK):
        raise PublicationError("README.md is a Git LFS pointer, not the file itself")
    try:
        return readme.decode("utf-8")
    except UnicodeDecodeError as error:
        line = readme.count(b"\n", 0, error.start) + 1
        raise PublicationError(
            f"README.md is not UTF-8 (line {line})", next_step="Save it as UTF-8."
        ) from error


def _between(text: str) -> _Between | None:
    """Where the block stands; ``None``: there are no markers. Raises :class:`PublicationError`."""
    lines = list(_telling(text))
    header_end = _header_end(text, lines)
    outside, _ = _outside_code(text, lines, header_end)
    begins, ends = (_marked(outside, mark) for mark in (MARK_BEGIN, MARK_END))
    if not begins and not ends:
        return None
    for found, mark, other in ((begins, MARK_BEGIN, ends), (ends, MARK_END, begins)):
        if not found:
            raise _wrong(f"the marker {mark} is missing, the other one is there", other[0])
        if len(found) > 1:
            raise _wrong(f"the marker {mark} stands there {len(found)} times", found[1])
    begin, end = begins[0], ends[0]
    if end.number < begin.number:
        raise _wrong("the card ends before it begins", end)
    if begin.number <= header_end:
        raise _wrong("the card begins within the YAML header", begin)
    return _Between(begin.end, end.at, _BREAK.findall(text[begin.at : begin.end])[0])


def _telling(text: str) -> Iterator[_Line]:
    """The lines that may hold a marker, or an edge of the header or of a block of code."""
    number, here = 1, 0
    for word in _TELLING.finditer(text):
        if word.start() < here:  # in the line before
            continue
        begin = max(text.rfind(end, here, word.start()) for end in "\r\n") + 1 or here
        number += len(_BREAK.findall(text, here, begin))
        breaks = _BREAK.search(text, word.end())
        here = breaks.end() if breaks else len(text)
        yield _Line(number, begin, here, text[begin:here].strip())
        number += 1


def _outside_code(text: str, lines: list[_Line], header_end: int) -> tuple[list[_Line], _Line | None]:
    """The lines but those of blocks of code, where a marker is only shown; and the line that opens such a block
    and none closes. What stands in the card itself opens nothing: it is replaced.
    """
    outside: list[_Line] = []
    opened, fence, in_card = None, "", False
    for line in lines:
        found = None if in_card or line.number <= header_end else _FENCE.match(text, line.at)
        edge = (found[1] or found[2]) if found else ""
        if opened is not None:
            opened = None if edge.startswith(fence) and line.text == edge else opened
        elif edge:
            opened, fence = line, edge
        else:
            outside.append(line)
            in_card = (in_card or line.text == MARK_BEGIN) and line.text != MARK_END
    return outside, opened


def _marked(lines: list[_Line], mark: str) -> list[_Line]:
    """The lines that are this marker."""
    found = [line for line in lines if mark in line.text]
    for line in found:
        if line.text != mark:
            raise _wrong(f"the marker {mark} shares its line with other text", line)
    return found


def _header_end(text: str, lines: list[_Line]) -> int:
    """The number of the line that closes the YAML header; 0: there is none."""
    edges = [line for line in lines if line.text.removeprefix("\ufeff") == _HEADER_EDGE]
    if not edges or text[: edges[0].at].strip("\ufeff \t\r\n"):
        return 0
    return next((line.number for line in edges[1:]), 0)


def _wrong(what: str, line: _Line) -> PublicationError:
    return PublicationError(f"README.md, line {line.number}: {what}", next_step=_MEND)


def _with_markers(text: str) -> tuple[str, _Between]:
    """``text`` with both markers at its end, after an empty line."""
    lines = list(_telling(text))
    _, opened = _outside_code(text, lines, _header_end(text, lines))
    if opened is not None:
        raise PublicationError(
            f"README.md, line {opened.number}: the block of code that begins here does not end, and a card below it "
            f"would be a part of it",
            next_step="Close it.",
        )
    found = _BREAK.search(text)
    newline = found[0] if found else "\n"
    body = text.removesuffix("\n").removesuffix("\r")
    last = body[max(body.rfind("\n"), body.rfind("\r")) + 1 :].strip()
    gap = (newline if text and body == text else "") + (newline if last else "")
    head = f"{text}{gap}{MARK_BEGIN}{newline}"
    return f"{head}{MARK_END}{newline}", _Between(len(head), len(head), newline)


def _plain(block: str) -> str:
    return _BREAK.sub("\n", block).removesuffix("\n")
