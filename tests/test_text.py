"""Strings of strangers on their way to people, and figures."""

from __future__ import annotations

import pytest

from zenit_hub.text import gib, listed, printable, shown, whole

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("Ünïcode 中 ×", "Ünïcode 中 ×"),
        ("\x1b[31m", "\\u001b[31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x7f\x85", "\\u007f\\u0085"),
        ("\u202e\u2066\u200b\ufeff", "\\u202e\\u2066\\u200b\\ufeff"),
        ("\u2028\u2029", "\\u2028\\u2029"),
        ("\ud800", "\\ud800"),
        ("\U000e0001", "\\ue0001"),
        ("\ue000", "\\ue000"),
        (None, "None"),
        (7, "7"),
        (b"\x00", "b'\\x00'"),
        ("", ""),
    ],
)
def test_what_moves_a_cursor_or_hides_is_escaped(text: object, shown: str) -> None:
    """Control, bidirectional, invisible and unpaired characters; letters of all scripts stay."""
    assert printable(text) == shown


def test_a_long_string_is_cut_with_a_mark() -> None:
    """At the limit it is whole, beyond it ends with ``…``; escapes count as they are shown."""
    assert printable("x" * 200) == "x" * 200
    assert printable("x" * 201) == "x" * 199 + "…"
    assert printable("x" * 10**6, limit=5) == "xxxx…"
    assert len(printable("\x1b" * 100, limit=50)) == 50


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0.00 GiB"),
        (GIB, "1.00 GiB"),
        (31_943_819_264, "29.75 GiB"),
        (GIB + GIB // 200 + 1, "1.01 GiB"),
        (GIB // 200 - 1, "0.00 GiB"),
        (-GIB, "-1.00 GiB"),
        (10**30, "931322574615478515625.00 GiB"),
    ],
)
def test_bytes_are_gib_with_two_decimals(size_bytes: int, text: str) -> None:
    """Exact for integers of any length."""
    assert gib(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (10**400, "a whole number of 1329 bits"),
        (True, "true"),
        (None, "null"),
        ("a\n", '"a\\n"'),
        ("x" * 100, '"' + "x" * 58 + "…"),
        (float("nan"), "NaN"),
        ([1, "a"], '[1, "a"]'),
        ({(1, 2): 3}, "a dict that cannot be shown"),
    ],
)
def test_a_strangers_value_is_shown_short(value: object, text: str) -> None:
    """As JSON, where it is JSON; a number of any length without Python's limit."""
    assert shown(value) == text


def test_a_number_is_digits_up_to_256_bits() -> None:
    """Nobody reads more, and Python writes no more than 4,300 digits."""
    assert whole(10**5000) == "a whole number of 16610 bits"
    assert whole(2**256 - 1) == str(2**256 - 1)
    assert whole(2**256) == "a whole number of 257 bits"


def test_names_are_listed_each_printable() -> None:
    """In their order."""
    assert listed(["b", "a\n"]) == "b, a\\n"
    assert listed([]) == ""
