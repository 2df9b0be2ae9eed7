"""What becomes of the words behind the options of ``vllm serve``: one reader for each type of value.

Each follows a function of vLLM 0.33.0, named beside it; they read alike in every version since 0.25.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from zenit_hub.errors import UsageError
from zenit_hub.redact import redacted_text
from zenit_hub.serve_options import ServeOption
from zenit_hub.text import printable

_DECIMAL = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SUFFIXES = "256k is 256000, 256K is 262144, 25.6k is 25600"

_BAD_VALUE = (ValueError, TypeError, OverflowError, RecursionError)
"""What a malformed word makes of the readers. ``OverflowError``: 400 digits and a ``k``."""


def human_int(word: str) -> int:
    """``256k`` = 256000, ``256K`` = 262144, ``25.6k`` = 25600 (``human_readable_int``).

    Raises ``ValueError``, also for a decimal with a binary suffix; ``OverflowError`` beyond a float.
    """
    word = word.strip()
    suffixed = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", word)
    if suffixed is None:
        return int(word)
    number, suffix = suffixed.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    count = int(number) * _BINARY[suffix]
    float(count)  # too large for a float is too large, whatever the suffix
    return count


def human_int_or_auto(word: str) -> int:
    """As :func:`human_int`; ``auto`` and ``-1`` are −1 (``human_readable_int_or_auto``)."""
    word = word.strip()
    return -1 if word == "-1" or word.lower() == "auto" else human_int(word)


def json_or_text(word: str) -> Any:
    """What stands in braces is JSON, everything else a name (``union_dict_and_str``)."""
    return json.loads(word) if re.match(r"(?s)^\s*{.*}\s*$", word) else word


def json_object(word: str) -> dict[str, Any]:
    """A JSON object, in it numbers with suffixes (``parse_dataclass``). vLLM also checks its members."""
    parts = re.split(r'("(?:[^"\\]|\\.)*")', word)
    parts[::2] = [
        re.sub(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b", lambda number: str(human_int(number[0])), outside_text)
        for outside_text in parts[::2]
    ]
    value = json.loads("".join(parts))
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def device_ids(word: str) -> list[int | str]:
    """``0,1,GPU-…``: indices as numbers, the rest as it stands (``--device-ids``)."""
    parts = (part.strip() for part in word.split(","))
    return [int(part) if part.isdigit() else part for part in parts]


READERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "str": (str, "any text"),
    "int": (int, "a whole number, without a suffix"),
    "float": (float, "a number"),
    "int_k": (human_int, f"a whole number; {_SUFFIXES}"),
    "int_k_auto": (human_int_or_auto, f"a whole number, auto or -1; {_SUFFIXES}"),
    "json": (json.loads, "JSON"),
    "json_or_str": (json_or_text, "a name, or a JSON object in braces"),
    "object": (json_object, 'a JSON object such as {"key": "value"}'),
    "device_ids": (device_ids, "indices or UUIDs with commas between them"),
    "str_lower": (lambda word: word.lower().replace("-", "_"), "a name"),
    "str_or_none": (lambda word: "" if word.lower() == "none" else word, "a name, or none"),
}
"""Type in the table → its reader, and the words for what it allows. A ``?`` behind a type: ``None``, too."""


def reader(option: ServeOption) -> Callable[[str], Any]:
    """The function that makes a value of a word; it raises :class:`UsageError` where vLLM refuses."""
    optional = option.type.endswith("?")
    read, allowed = READERS[option.type.removesuffix("?")]
    choices = ", ".join(str(choice) for choice in option.choices if choice is not None)

    def value(word: str) -> Any:
        try:
            found = None if optional and word in ("", "None") else read(word)
        except _BAD_VALUE:
            raise malformed(option.flags[0], word, allowed) from None
        if option.choices and found not in option.choices:
            raise malformed(option.flags[0], word, choices)
        return found

    return value


def malformed(flag: str, word: str, allowed: str) -> UsageError:
    """The refusal of ``word`` behind ``flag``, in one line."""
    return UsageError(
        f"vllm serve would refuse the value of {flag}",
        # What was meant to be JSON and is none cannot be looked through for secrets.
        got=None if "JSON" in allowed and len(word) > 1 else repr(printable(redacted_text(word), limit=80)),
        allowed=allowed,
        next_step=f"Mend {flag}, or leave it out.",
    )
