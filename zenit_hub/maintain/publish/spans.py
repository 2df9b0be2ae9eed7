"""Where the values of a JSON text stand, and in which style they are written around there.

The text is valid JSON without repeated keys. What lies beside the way to a value is stepped over by the C
scanner, and no object or list is looked through twice.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_BLANK = re.compile(r"[ \t]*")
_BREAK = re.compile(r"\r\n|\n|\r")
_DECODER = json.JSONDecoder()
_USUAL_UNIT = "  "


@dataclass(frozen=True, slots=True)
class Child:
    """A member of an object or an entry of a list. ``at``: where it begins, with its key if it has one;
    ``value_at`` and ``end``: the value alone."""

    name: str | int
    at: int
    value_at: int
    end: int


@dataclass(frozen=True, slots=True)
class Container:
    """An object (``named``) or a list, from its opening bracket at ``at`` to after its closing one."""

    at: int
    end: int
    children: tuple[Child, ...]
    named: bool


@dataclass(frozen=True, slots=True)
class Style:
    """How a value is written. ``newline`` is ``None``: on one line; else its further lines begin with
    ``indent``, and what it holds one ``unit`` deeper."""

    newline: str | None
    indent: str
    unit: str
    colon: str
    comma: str
    ascii_only: bool

    def written(self, value: Any) -> str:
        """``value`` as JSON. Raises ``ValueError`` for ``NaN`` and the like."""
        if self.newline is None:
            return self._dumped(value, None, (self.comma, self.colon))
        lines = self._dumped(value, self.unit, (",", self.colon))
        return lines.replace("\n", f"{self.newline}{self.indent}")

    def _dumped(self, value: Any, indent: str | None, separators: tuple[str, str]) -> str:
        text = json.dumps(
            value, indent=indent, separators=separators, ensure_ascii=self.ascii_only, allow_nan=False
        )
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair has no UTF-8
            return json.dumps(value, indent=indent, separators=separators, allow_nan=False)
        return text


@dataclass(frozen=True, slots=True)
class Spans:
    """A JSON text and what is known by now of its objects and lists."""

    text: str
    _known: dict[int, Container | None] = field(default_factory=dict)

    def root(self) -> Container | None:
        """The document itself."""
        return self.container(self._skip(0))

    def container(self, at: int) -> Container | None:
        """The object or list that begins at ``at``; ``None``: another value begins there."""
        if at not in self._known:
            self._known[at] = self._read(at) if self.text[at] in "{[" else None
        return self._known[at]

    def separator(self, within: Container) -> str:
        """What stands between the last child of ``within`` and a new one after it."""
        *before, last = within.children
        if before:
            head, _, tail = self.text[before[-1].end : last.at].partition(",")
            return f"{_one_break(head)},{_one_break(tail)}"
        lead = self.text[within.at + 1 : last.at]
        return f",{_one_break(lead)}" if _BREAK.search(lead) else self._comma(within)

    def style_below(self, within: Container, around: Container | None) -> Style:
        """How a value is written that becomes a child of ``within``, which has none of its kind to follow.

        ``around`` holds ``within``: an empty object is opened up as what holds it is written.
        """
        root = self.root()
        outer = self._line_indent(within.at)
        unit = self._unit(within, outer) or (root and self._unit(root, "")) or _USUAL_UNIT
        model = within if within.children else around
        if model is None or not model.children:
            breaks = _BREAK.search(self.text.strip())
        else:
            breaks = _BREAK.search(self.text, model.at, model.children[0].at)
        return Style(
            newline=breaks[0] if breaks else None,
            indent=self._line_indent(within.children[-1].at) if within.children else outer + unit,
            unit=unit,
            colon=self._colon(within) or (root and self._colon(root)) or ": ",
            comma=self._comma(model or within),
            ascii_only=self.text.isascii(),
        )

    def style_like(self, within: Container, model: Child) -> Style:
        """How a value is written in the place of ``model``, or after it."""
        usual = self.style_below(within, None)
        like = self.container(model.value_at)
        if like is None or not like.children:
            return usual
        breaks = _BREAK.search(self.text, like.at, like.end)
        indent = self._line_indent(like.end - 1)
        return Style(
            newline=breaks[0] if breaks else None,
            indent=indent,
            unit=self._unit(like, indent) or usual.unit,
            colon=self._colon(like) or usual.colon,
            comma=self._comma(like),
            ascii_only=usual.ascii_only,
        )

    def _read(self, at: int) -> Container:
        text, named = self.text, self.text[at] == "{"
        children: list[Child] = []
        here = self._skip(at + 1)
        while text[here] not in "}]":
            begin = here
            name: str | int = len(children)
            if named:
                name, here = _DECODER.raw_decode(text, here)
                here = self._skip(self._skip(here) + 1)
            end = _DECODER.raw_decode(text, here)[1]
            children.append(Child(name, begin, here, end))
            here = self._skip(end)
            if text[here] == ",":
                here = self._skip(here + 1)
        return Container(at, here + 1, tuple(children), named)

    def _skip(self, at: int) -> int:
        space = _SPACE.match(self.text, at)
        return space.end() if space else at

    def _line_indent(self, at: int) -> str:
        """The white space at the begin of the line of ``at``."""
        begin = max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1
        blank = _BLANK.match(self.text, begin)
        return blank[0] if blank else ""

    def _unit(self, of: Container, outer: str) -> str:
        """By how much the children of ``of`` are indented more than ``outer``; empty: they are not."""
        if not of.children or not _BREAK.search(self.text, of.at, of.children[0].at):
            return ""
        inner = self._line_indent(of.children[0].at)
        return inner.removeprefix(outer) if inner.startswith(outer) else ""

    def _colon(self, of: Container) -> str:
        """What stands between key and value; empty: ``of`` holds none to see it from."""
        if not of.named or not of.children:
            return ""
        last = of.children[-1]
        between = self.text[_DECODER.raw_decode(self.text, last.at)[1] : last.value_at]
        return ": " if _BREAK.search(between) else between

    def _comma(self, of: Container) -> str:
        """What stands between two values on one line."""
        if len(of.children) > 1:
            between = self.text[of.children[-2].end : of.children[-1].at]
            if not _BREAK.search(between):
                return between
        inner = [self.container(child.value_at) for child in of.children]
        colons = [self._colon(of), *(self._colon(each) for each in inner if each is not None)]
        return "," if next(filter(None, colons), ": ") == ":" else ", "


def _one_break(space: str) -> str:
    """White space without its empty lines."""
    breaks = _BREAK.search(space)
    return f"{breaks[0]}{_BREAK.split(space)[-1]}" if breaks else space
