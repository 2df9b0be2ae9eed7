"""Values inside a ``config.json`` changed, every other byte as it was.

Nothing is written anew but the values that change: key order, indentation, line ends, escapes, ``1e-06``
and a missing newline at the end stay. A whole file written anew would be a diff that nobody reads, and
somebody else's numbers spelled as we spell them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenit_hub.errors import PublicationError
from zenit_hub.maintain.document import read_document
from zenit_hub.maintain.finding import Place, pointer
from zenit_hub.maintain.publish.spans import Child, Container, Spans, Style


@dataclass(frozen=True, slots=True)
class _Edit:
    """``text[at:end]`` becomes ``written``."""

    at: int
    end: int
    written: str


def refusal(data: bytes) -> str | None:
    """Why nothing is written into these bytes, in one sentence; ``None``: they can be changed.

    Refused: a Git LFS pointer, a byte order mark, what is not UTF-8 or not JSON, ``NaN`` and the like, a
    repeated key, no object, more than 16 MiB, nested deeper than 64.
    """
    document = read_document(data)
    for note in document.notes:
        where = f"{pointer(note.where)}: " if note.where else ""
        line = f" (line {note.line})" if note.line is not None else ""
        return f"{where}{note.message}{line}; {note.fix}"
    for place, text in document.not_numbers:
        return f"{pointer(place)}: {text} is not JSON; write a number, or null"
    return None


def splice(data: bytes, changes: Mapping[Place, Any]) -> bytes:
    """``data`` with the values at the places of ``changes`` replaced or added, every other byte identical.

    A place is keys and indexes from the top: ``("serving_profiles", "profiles", "p", "measurements", 0)``.
    A member that is not there is added at the end of its object, the index after the last one at the end of
    its list; what should hold it must be there. Several new members of one object come in the order of
    ``changes``. No place may lie within another. No changes: the same bytes.

    Raises :class:`~zenit_hub.errors.PublicationError` with :func:`refusal`'s sentence, and ``LookupError``
    or ``ValueError`` for places that cannot be (a mistake of the program, not of the file).
    """
    _refuse(data)
    if not changes:
        return data
    _apart(changes)
    text = data.decode()
    edits = sorted(_edits(Spans(text), changes), key=lambda edit: (edit.at, edit.end))
    parts, here = [], 0
    for edit in edits:
        parts += [text[here : edit.at], edit.written]
        here = edit.end
    spliced = "".join([*parts, text[here:]])
    new = spliced.encode()
    _refuse(new)
    if _exact(spliced) != _expected(text, changes):
        raise ValueError("the changed text does not say what it should")  # never sent, whatever went wrong
    return new


def _refuse(data: bytes) -> None:
    why = refusal(data)
    if why is not None:
        raise PublicationError(f"the config cannot be changed: {why}")


def _apart(changes: Mapping[Place, Any]) -> None:
    """No place may be the top itself or lie within another one."""
    if () in changes:
        raise ValueError("the whole document is not replaced")
    for outer in changes:
        if any(outer == inner[: len(outer)] and outer != inner for inner in changes):
            raise ValueError(f"a change lies within the one at {pointer(outer)}")


def _edits(spans: Spans, changes: Mapping[Place, Any]) -> list[_Edit]:
    below: dict[Place, dict[str | int, Any]] = defaultdict(dict)
    for place, value in changes.items():
        below[place[:-1]][place[-1]] = value
    edits = []
    for parent, values in below.items():
        way = _way(spans, parent)
        within, around = way[-1], way[-2] if len(way) > 1 else None
        there = {child.name: child for child in within.children}
        edits += [
            _Edit(there[name].value_at, there[name].end, spans.style_like(within, there[name]).written(value))
            for name, value in values.items()
            if name in there
        ]
        added = {name: value for name, value in values.items() if name not in there}
        if added:
            _fitting(parent, within, list(added))
            edits.append(_addition(spans, within, around, added))
    return edits


def _way(spans: Spans, place: Place) -> list[Container]:
    """The containers from the top to the one at ``place``."""
    way: list[Container] = []
    node = spans.root()
    for depth in range(len(place) + 1):
        if node is None:
            raise LookupError(f"{pointer(place[:depth])} holds no values")
        way.append(node)
        if depth < len(place):
            child = _named(node, place[depth])
            if child is None:
                raise LookupError(f"{pointer(place[: depth + 1])} is not there")
            node = spans.container(child.value_at)
    return way


def _named(node: Container, name: str | int) -> Child | None:
    """A list has no member ``"0"`` and an object no entry ``0``."""
    return next(
        (child for child in node.children if child.name == name and isinstance(name, str) == node.named), None
    )


def _fitting(parent: Place, within: Container, names: Sequence[str | int]) -> None:
    """A list grows without gaps; an object grows by names."""
    count = len(within.children)
    fits = (
        all(isinstance(name, str) for name in names)
        if within.named
        else list(names) == list(range(count, count + len(names)))
    )
    if not fits:
        raise LookupError(f"{pointer(parent)} has no place for {names}")


def _addition(
    spans: Spans, within: Container, around: Container | None, added: Mapping[str | int, Any]
) -> _Edit:
    """New children after the last one, or the first of an empty object or list."""
    if not within.children:
        return _opened(spans, within, around, added)
    last = within.children[-1]
    style = spans.style_below(within, around) if within.named else spans.style_like(within, last)
    before = spans.separator(within)
    return _Edit(last.end, last.end, "".join(before + _child(style, *child) for child in added.items()))


def _opened(
    spans: Spans, within: Container, around: Container | None, added: Mapping[str | int, Any]
) -> _Edit:
    style = spans.style_below(within, around)
    children = [_child(style, *child) for child in added.items()]
    if style.newline is None:
        inner = style.comma.join(children)
    else:
        line = f"{style.newline}{style.indent}"
        outer = style.indent.removesuffix(style.unit)
        inner = f"{line}{f',{line}'.join(children)}{style.newline}{outer}"
    return _Edit(within.at + 1, within.end - 1, inner)


def _child(style: Style, name: str | int, value: Any) -> str:
    return (
        f"{style.written(name)}{style.colon}{style.written(value)}"
        if isinstance(name, str)
        else style.written(value)
    )


def _expected(text: str, changes: Mapping[Place, Any]) -> str:
    """What the changed document must say, worked out on its values instead of its text."""
    document = json.loads(text, parse_float=_as_written)
    for place, value in changes.items():
        node = document
        for step in place[:-1]:
            node = node[step]
        exact = json.loads(json.dumps(value), parse_float=_as_written)
        if isinstance(node, list) and place[-1] == len(node):
            node.append(exact)
        else:
            node[place[-1]] = exact
    return json.dumps(document)


def _exact(text: str) -> str:
    """A document's values, its order and the spelling of its numbers, without its white space."""
    return json.dumps(json.loads(text, parse_float=_as_written))


def _as_written(number: str) -> dict[str, str]:
    return {"float": number}
