"""The options of ``vllm serve``, version by version: the typed view of ``serve_options.json``.

That file is generated from vLLM's own parsers (``tools/serve_options.py``), so that abbreviations, the words
that an option takes and the values that it allows are vLLM's where vLLM is not installed, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from zenit_hub.compat import release

_TABLE = Path(__file__).with_name("serve_options.json")

SWITCH = "switch"
"""Type of an option that is there or not and has a ``--no-…`` beside it; ``pair``: a ``--disable-…``, too."""

Choice = str | int | None


@dataclass(frozen=True, slots=True)
class ServeOption:
    """One option of ``vllm serve``."""

    dest: str
    """Where the value goes: the name of the engine argument, for those that are one."""
    flags: tuple[str, ...]
    """Every way to type it, those that switch it off included."""
    type: str
    """What becomes of a word: a key of :data:`zenit_hub.serve_values.READERS`, ``flag`` or :data:`SWITCH`."""
    off: frozenset[str] = frozenset()
    """Of ``flags``, those that switch it off."""
    nargs: str | None = None
    """``+`` and ``?`` as in argparse, ``append`` for one to be typed repeatedly, ``None`` for one word."""
    choices: tuple[Choice, ...] = ()
    """The values that it allows; empty: any."""


@cache
def _table() -> Mapping[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def minor_version(version: str) -> str:
    """The minor version whose parser stands for ``version``: its own, else the nearest that was read."""
    read = [release(minor) for minor in _table()["versions"]]
    wanted = release(version)[:2] or read[-1]
    return ".".join(map(str, max((minor for minor in read if minor <= wanted), default=read[0])))


def is_newer_than_read(version: str) -> bool:
    """Whether ``version`` may know options and values that the table has never heard of."""
    return release(version)[:2] > release(_table()["versions"][-1])


def records(version: str) -> list[dict[str, Any]]:
    """The table's entries for ``version``, spelled out: ``dest``, ``flags``, ``type`` and so on."""
    now = release(minor_version(version))
    return [
        spelled_out({key: value for key, value in entry.items() if key not in ("from", "to")})
        for entry in _table()["options"]
        if release(entry.get("from", "0")) <= now <= release(entry.get("to", "999"))
    ]


def spelled_out(entry: dict[str, Any]) -> dict[str, Any]:
    """``entry`` with the flags that follow from ``dest``, which the file leaves out."""
    name = entry["dest"].replace("_", "-")
    flags = entry.get("flags", [f"--{name}"])
    if entry["type"] not in (SWITCH, "pair"):
        return {**entry, "flags": flags}
    off = [f"--no-{name}"]
    if entry["type"] == "pair":
        prefix, _, rest = name.partition("-")
        off.append(f"--{ {'enable': 'disable', 'disable': 'enable'}[prefix] }-{rest}")
    return {**entry, "type": SWITCH, "flags": [*flags, *off], "off": off}


@cache
def serve_options(version: str) -> tuple[ServeOption, ...]:
    """The options that ``version`` of ``vllm serve`` knows."""
    lenient = is_newer_than_read(version)
    return tuple(
        ServeOption(
            dest=entry["dest"],
            flags=tuple(entry["flags"]),
            type=entry["type"],
            off=frozenset(entry.get("off", ())),
            nargs=entry.get("nargs"),
            choices=() if lenient else tuple(entry.get("choices", ())),
        )
        for entry in records(version)
    )


@cache
def known_flags() -> frozenset[str]:
    """Every flag of every version that was read."""
    return frozenset(_flags(spelled_out(entry) for entry in _table()["options"]))


def _flags(entries: Iterable[dict[str, Any]]) -> Iterable[str]:
    return (flag for entry in entries for flag in entry["flags"])
