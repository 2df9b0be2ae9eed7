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

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_BREAK = re.compile(r"\r\n|\n|\r")
_HEADER_EDGE = "---"
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
    what = "there is no README.md" if no_file else "README.md has no markers between which the card belongs"
    return PublicationError(
        what, next_step=f"`--init-card` adds them at the end. Or write them where it belongs. {_MEND}"
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
    lines = list(_lines(text))
    begins, ends = (_marked(lines, mark) for mark in (MARK_BEGIN, MARK_END))
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
    header_end = _header_end(lines)
    if begin.number <= header_end:
        raise _wrong("the card begins within the YAML header", begin)
    return _Between(begin.end, end.at, _BREAK.findall(text[begin.at : begin.end])[0])


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(_LINE.finditer(text), start=1):
        yield _Line(number, line.start(), line.end(), line[0].strip())


def _marked(lines: list[_Line], mark: str) -> list[_Line]:
    """The lines that are this marker."""
    found = [line for line in lines if mark in line.text]
    for line in found:
        if line.text != mark:
            raise _wrong(f"the marker {mark} shares its line with other text", line)
    return found


def _header_end(lines: list[_Line]) -> int:
    """The number of the line that closes the YAML header; 0: there is none."""
    written = [line for line in lines if line.text.removeprefix("\ufeff")]
    if not written or written[0].text.removeprefix("\ufeff") != _HEADER_EDGE:
        return 0
    return next((line.number for line in written[1:] if line.text == _HEADER_EDGE), 0)


def _wrong(what: str, line: _Line) -> PublicationError:
    return PublicationError(f"README.md, line {line.number}: {what}", next_step=_MEND)


def _with_markers(text: str) -> tuple[str, _Between]:
    """``text`` with both markers at its end, after an empty line."""
    found = _BREAK.search(text)
    newline = found[0] if found else "\n"
    last = next(reversed(list(_lines(text))), None)
    gap = ""
    if last is not None:
        gap = ("" if _BREAK.search(text, last.at) else newline) + (newline if last.text else "")
    head = f"{text}{gap}{MARK_BEGIN}{newline}"
    return f"{head}{MARK_END}{newline}", _Between(len(head), len(head), newline)


def _plain(block: str) -> str:
    return _BREAK.sub("\n", block).removesuffix("\n")
