"""The bytes of a config as a checked document.

Stricter than the reading at run time, which tolerates what Python's JSON reader tolerates: here a byte
order mark, a repeated key and a number that JSON does not know are said.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from zenit_hub.limits import MAX_DEPTH, deeper_than
from zenit_hub.maintain.finding import Note, Place, error
from zenit_hub.maintain.locate import occurrences_of
from zenit_hub.maintain.syntax import not_json, not_text
from zenit_hub.text import printable

_BOM = b"\xef\xbb\xbf"

MAX_ODD = 100
"""Repeated keys, and numbers that are none, that are told apart; a stranger's file may hold a million."""


@dataclass(frozen=True, slots=True)
class NotANumber:
    """Stands for a number that JSON does not know, or that nobody can read."""

    text: str


class RepeatedKeys(dict[str, Any]):
    """An object in which keys stand more than once; the last of each counts."""

    again: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """``value`` is ``None`` where the file could not be read; the notes say why.

    ``not_numbers``: places of ``NaN``, ``Infinity`` and of numbers beyond reading, with their text.
    ``unique_keys``: no object holds a key twice.
    """

    text: str
    value: dict[str, Any] | None
    notes: tuple[Note, ...] = ()
    not_numbers: tuple[tuple[Place, str], ...] = ()
    unique_keys: bool = True


def read_document(data: bytes) -> Document:
    """Reads the bytes of a ``config.json``; whatever is wrong with them is in the notes."""
    unread = not_text(data)
    if unread is not None:
        return Document("", None, (unread,))
    notes: tuple[Note, ...] = ()
    if data.startswith(_BOM):
        data = data.removeprefix(_BOM)
        what = "the file begins with a byte order mark, which JSON does not allow"
        notes = (error((), what, "save it as UTF-8 without BOM", line=1),)
    text = data.decode("utf-8")
    parser = _Parser()
    try:
        value = parser.parse(text)
    except json.JSONDecodeError as problem:
        return Document(text, None, (*notes, not_json(text, problem)))
    except RecursionError:
        return Document(text, None, (*notes, _too_deep()))
    if deeper_than(data, MAX_DEPTH):
        return Document(text, None, (*notes, _too_deep()))
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        problem_note = error(
            (), f"the file holds {kind}; a config is an object", "begin it with { and its keys", line=1
        )
        return Document(text, None, (*notes, problem_note))
    repeated = _repeated(text, value) if parser.repeated else ()
    not_numbers = _not_numbers(value) if parser.stand_ins else ()
    return Document(text, value, (*notes, *repeated), tuple(not_numbers), not parser.repeated)


class _Parser:
    """Python's JSON reader with stand-ins for what it would let pass.

    ``repeated`` counts objects with repeated keys, ``stand_ins`` holds the one stand-in of each text.
    """

    def __init__(self) -> None:
        self.repeated = 0
        self.stand_ins: dict[str, NotANumber] = {}

    def parse(self, text: str) -> Any:
        """The value. Raises ``JSONDecodeError`` and, nested without end, ``RecursionError``."""
        try:
            return json.loads(
                text,
                object_pairs_hook=self._members,
                parse_constant=self._stand_in,
                parse_float=self._float,
            )
        except json.JSONDecodeError:
            raise
        except ValueError:
            # A number of more digits than Python turns into an integer: once more, slower, with a stand-in.
            return json.loads(
                text,
                object_pairs_hook=self._members,
                parse_constant=self._stand_in,
                parse_float=self._float,
                parse_int=self._integer,
            )

    def _members(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        self.repeated += 1
        if self.repeated > MAX_ODD:
            return members
        seen: set[str] = set()
        again: dict[str, None] = {}
        for key, _ in pairs:
            if key in seen:
                again[key] = None
            seen.add(key)
        repeated = RepeatedKeys(members)
        repeated.again = tuple(islice(again, MAX_ODD))
        return repeated

    def _float(self, text: str) -> float | NotANumber:
        value = float(text)
        return self._stand_in(printable(text, limit=40)) if math.isinf(value) else value

    def _stand_in(self, text: str) -> NotANumber:
        return self.stand_ins.setdefault(text, NotANumber(text))

    def _integer(self, digits: str) -> int | NotANumber:
        try:
            return int(digits)
        except ValueError:
            return self._stand_in(f"a number of {len(digits.lstrip('-'))} digits")


def _too_deep() -> Note:
    what = f"the file is nested deeper than {MAX_DEPTH} and is not read"
    return error((), what, "take out the lists or objects that only wrap others")


def _repeated(text: str, value: dict[str, Any]) -> Iterator[Note]:
    repeated = ((where, node) for where, node in _nodes(value) if isinstance(node, RepeatedKeys))
    places = list(islice(((*where, key) for where, node in repeated for key in node.again), MAX_ODD))
    for where, (first, last) in occurrences_of(text, places).items():
        what = f"the key stands more than once in one object (first in line {first}); the last one counts"
        yield error(where, what, "keep one of them", line=last)


def _not_numbers(value: dict[str, Any]) -> Iterator[tuple[Place, str]]:
    strange = ((where, node.text) for where, node in _nodes(value) if isinstance(node, NotANumber))
    return islice(strange, MAX_ODD)


def _nodes(value: Any, where: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every object, list and stand-in of the document, in its order, with its place."""
    yield where, value
    members: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = enumerate(value)
    for key, child in members:
        if isinstance(child, (dict, list)):
            yield from _nodes(child, (*where, key))
        elif isinstance(child, NotANumber):
            yield (*where, key), child
