"""What was measured against what the repo holds now: the profile's values and the files of the weights.

A figure is of values and weights, not of a commit: head may have moved in a README.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from zenit_hub.maintain.measurement import Measurement, WeightFile
from zenit_hub.section import BUDGET_KEY, PIN, compact
from zenit_hub.text import printable, shown

NOT_COMPARED = (BUDGET_KEY, "measurements", "description")
"""What a publication writes itself, and what is said to people alone."""

_SHOWN = 3
_HASH_DIGITS = 12


def changed_values(profile: Mapping[str, Any], measurement: Measurement) -> str | None:
    """How the profile differs from the one that was measured, both sides shown; ``None``: it does not.

    A pin that only measuring added is no difference, once it stands in the profile neither.
    """
    was = {key: value for key, value in measurement.profile.values.items() if key not in NOT_COMPARED}
    now = {key: value for key, value in profile.items() if key not in NOT_COMPARED}
    if PIN not in was and PIN in now and measurement.kv_cache_memory_bytes is not None:
        was[PIN] = measurement.kv_cache_memory_bytes
    differ = [key for key in {**was, **now} if _canonical(was, key) != _canonical(now, key)]
    return _some(f"{printable(key)} was {_said(was, key)}, is {_said(now, key)}" for key in differ)


def changed_weights(now: Sequence[WeightFile], was: Sequence[WeightFile]) -> str | None:
    """How the weight files differ from those that were measured, both sides shown; ``None``: they do not.

    Files are told apart by a hash that both sides know; one that cannot be compared counts as changed.
    """
    return _some(_weights({file.path: file for file in now}, {file.path: file for file in was}))


def _weights(now: Mapping[str, WeightFile], was: Mapping[str, WeightFile]) -> Iterator[str]:
    for path in sorted(was.keys() & now.keys()):
        before, after = was[path], now[path]
        if _same_content(before, after):
            continue
        yield f"{printable(path)} was {_identity(before)}, is {_identity(after)}"
    for path in sorted(now.keys() - was.keys()):
        yield f"{printable(path)} was added ({_identity(now[path])})"
    for path in sorted(was.keys() - now.keys()):
        yield f"{printable(path)} is gone (was {_identity(was[path])})"


def _same_content(before: WeightFile, after: WeightFile) -> bool:
    if before.sha256 is not None and after.sha256 is not None:
        return before.sha256 == after.sha256
    return before.blob_id is not None and before.blob_id == after.blob_id


def _identity(file: WeightFile) -> str:
    if file.sha256 is not None:
        return f"sha256 {file.sha256[:_HASH_DIGITS]}…"
    if file.blob_id is not None:
        return f"blob {file.blob_id[:_HASH_DIGITS]}…"
    return f"{file.size_bytes} bytes of unknown content"


def _canonical(values: Mapping[str, Any], key: str) -> str:
    """JSON does not tell 4096 from 4096.0, but true from 1."""
    return compact(_whole(values[key])) if key in values else ""


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(value[key]) for key in sorted(value)}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def _said(values: Mapping[str, Any], key: str) -> str:
    return shown(values[key]) if key in values else "not there"


def _some(sentences: Iterable[str]) -> str | None:
    """The first few of them, and how many more there are."""
    every = list(sentences)
    more = [f"and {len(every) - _SHOWN} more"] if len(every) > _SHOWN else []
    return "; ".join([*every[:_SHOWN], *more]) or None
