"""From places in a JSON document to its lines, read only when there is something to say about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from zenit_hub.maintain.finding import Place

_SPACE = re.compile(r"[ \t\n\r]*")
_SIMPLE_MEMBER = re.compile(
    r'"([^"\\]*)"[ \t\n\r]*:[ \t\n\r]*(?:"[^"\\]*"|[^"\[{,} \t\n\r]+)[ \t\n\r]*(?:,[ \t\n\r]*)?'
)
"""A key with a plain string, number or word after it, in one step: most members of a large config."""


def _nothing(_: str) -> None:
    """Numbers are stepped over, never built: one of a million digits must not stop the reading."""


_DECODER = json.JSONDecoder(parse_int=_nothing, parse_float=_nothing, parse_constant=_nothing)


@dataclass(slots=True)
class _Wanted:
    """A place that is asked for, or that lies on the way to one."""

    where: Place
    below: dict[str | int, _Wanted] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None


def lines_of(text: str, places: Iterable[Place], *, unique: bool = False) -> dict[Place, int]:
    """The line of each place: of the key for a member, of the value for an entry of a list.

    ``text`` must be valid JSON. Where a key stands twice, the last counts, as it does for every JSON
    reader; ``unique``: no key does, which spares reading on. A place that does not exist gets the line of
    what would hold it.
    """
    return {where: last for where, (_, last) in occurrences_of(text, places, unique=unique).items()}


def occurrences_of(
    text: str, places: Iterable[Place], *, unique: bool = False
) -> dict[Place, tuple[int, int]]:
    """The first and the last line at which a place begins: they differ where a key is repeated."""
    root = _Wanted(())
    ways = {where: _way(root, where) for where in places}
    if root.below:
        walk = _Walk(
            text, stop_after=len({id(step) for way in ways.values() for step in way[1:]}) if unique else 0
        )
        with suppress(_AllFoundError):
            walk.value(_skip(text, 0), root)
    found = {}
    for where, way in ways.items():
        nearest = next(wanted for wanted in reversed(way) if wanted.last is not None or not wanted.where)
        found[where] = (_line(text, nearest.first), _line(text, nearest.last))
    return found


def _line(text: str, offset: int | None) -> int:
    return text.count("\n", 0, offset or 0) + 1


def _way(root: _Wanted, where: Place) -> list[_Wanted]:
    way = [root]
    for depth, part in enumerate(where, start=1):
        way.append(way[-1].below.setdefault(part, _Wanted(where[:depth])))
    return way


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


class _AllFoundError(Exception):
    """Ends a walk whose rest nobody needs."""


@dataclass(slots=True)
class _Walk:
    """A descent to the wanted places; everything beside the way is stepped over by the C scanner.

    ``stop_after``: the number of places on the way after which nothing can follow; 0: read to the end.
    """

    text: str
    stop_after: int
    found: int = 0

    def _found(self, wanted: _Wanted, offset: int) -> None:
        wanted.first = offset if wanted.first is None else wanted.first
        wanted.last = offset
        self.found += 1
        if self.found == self.stop_after:
            raise _AllFoundError

    def value(self, at: int, wanted: _Wanted | None) -> int:
        """Steps over the value that begins at ``at``; returns where it ends."""
        if wanted is not None and wanted.below:
            if self.text[at] == "{":
                return self._object(at, wanted)
            if self.text[at] == "[":
                return self._list(at, wanted)
        return self._scan(at)[1]

    def _scan(self, at: int) -> tuple[Any, int]:
        return _DECODER.raw_decode(self.text, at)

    def _object(self, at: int, wanted: _Wanted) -> int:
        at = _skip(self.text, at + 1)
        while self.text[at] != "}":
            simple = _SIMPLE_MEMBER.match(self.text, at)
            if simple is not None:
                member = wanted.below.get(simple[1])
                if member is not None:
                    self._found(member, at)
                at = simple.end()
                continue
            key_at = at
            key, at = self._scan(at)
            member = wanted.below.get(key)
            if member is not None:
                self._found(member, key_at)
            at = self._after(self.value(_skip(self.text, _skip(self.text, at) + 1), member))
        return at + 1

    def _list(self, at: int, wanted: _Wanted) -> int:
        end = self._scan(at)[1]
        last = max((index for index in wanted.below if isinstance(index, int)), default=-1)
        at, index = _skip(self.text, at + 1), 0
        while index <= last and self.text[at] != "]":
            entry = wanted.below.get(index)
            if entry is not None:
                self._found(entry, at)
            at, index = self._after(self.value(at, entry)), index + 1
        return end

    def _after(self, at: int) -> int:
        """Past a comma, if one follows."""
        at = _skip(self.text, at)
        return _skip(self.text, at + 1) if self.text[at] == "," else at
