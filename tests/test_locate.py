"""From places in a JSON document to its lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenit_hub.maintain.finding import Place
from zenit_hub.maintain.locate import lines_of, occurrences_of

DOCUMENT = """{
  "plain": 1,
  "esc\\u0061ped \\"key\\"": {
    "inner": [
      "a, \\"b\\": {[",
      {"deep": null}
    ]
  },
  "plain": 2
}"""


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (("plain",), 9),
        (('escaped "key"',), 3),
        (('escaped "key"', "inner"), 4),
        (('escaped "key"', "inner", 0), 5),
        (('escaped "key"', "inner", 1, "deep"), 6),
        (('escaped "key"', "inner", 7, "deep"), 4),
        (("nowhere", "at all"), 1),
        ((), 1),
    ],
)
def test_a_place_is_found_and_a_missing_one_is_where_it_would_be(where: Place, line: int) -> None:
    assert lines_of(DOCUMENT, [where]) == {where: line}


def test_a_repeated_key_has_a_first_and_a_last_line() -> None:
    assert occurrences_of(DOCUMENT, [("plain",)]) == {("plain",): (2, 9)}


def test_a_number_that_python_does_not_read_is_stepped_over() -> None:
    text = '{"a": [1' + "0" * 10_000 + ', NaN],\n"b": 1}'

    assert lines_of(text, [("b",)]) == {("b",): 2}


VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


def places(value: object, where: Place = ()) -> list[Place]:
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [where, *(place for key, child in members for place in places(child, (*where, key)))]


@settings(max_examples=100, deadline=None)
@given(value=VALUES, unique=st.booleans())
def test_every_place_of_any_document_is_found_in_the_order_of_the_document(
    value: object, unique: bool
) -> None:
    asked = places(value)

    lines = lines_of(json.dumps(value, indent=1), asked, unique=unique)

    assert list(lines) == asked
    assert list(lines.values()) == sorted(lines.values())
    assert len({lines[where] for where in asked}) == len(asked)
