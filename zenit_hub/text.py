"""Strings of strangers on their way to a log or a terminal, and figures on their way to people."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories that move a cursor, reorder a line or show nothing."""

_MAX_SHOWN_BITS = 256

GIB_SHOWN_BYTES = 2**30 // 100
"""The smallest amount that ``gib`` shows as more than nothing."""


def printable(text: object, *, limit: int = 200) -> str:
    """``text`` on one line, control and bidirectional characters as escapes, at most ``limit`` characters."""
    shown = []
    for character in str(text)[: limit + 1]:
        if unicodedata.category(character) in _HIDDEN:
            shown.append(json.dumps(character)[1:-1] if ord(character) < 0x80 else f"\\u{ord(character):04x}")
        else:
            shown.append(character)
    line = "".join(shown).replace("\x7f", "\\u007f")
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def shown(value: object, *, limit: int = 60) -> str:
    """A stranger's JSON value, short: a number of 10^400 by its size, what has no end by its kind."""
    if isinstance(value, int) and not isinstance(value, bool):
        return whole(value)
    try:
        return printable(json.dumps(value, ensure_ascii=False, default=str), limit=limit)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__} that cannot be shown"


def whole(number: int) -> str:
    """``number`` in digits, or its size where nobody would read them (Python stops at 4,300)."""
    return (
        str(number)
        if number.bit_length() <= _MAX_SHOWN_BITS
        else f"a whole number of {number.bit_length()} bits"
    )


def gib(size_bytes: int) -> str:
    """``size_bytes`` as ``12.34 GiB`` (GiB = 2³⁰ bytes), exact for integers of any length."""
    sign = "-" if size_bytes < 0 else ""
    hundredths = (abs(size_bytes) * 100 + 2**29) // 2**30
    return f"{sign}{hundredths // 100}.{hundredths % 100:02d} GiB"


def listed(names: Iterable[object]) -> str:
    """Names of strangers as ``a, b, c``, each printable."""
    return ", ".join(printable(name) for name in names)
