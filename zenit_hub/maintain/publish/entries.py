"""Measurements → the new values of a section. Pure; what may not be published says ``refusals``.

A rated profile gets its figure (``requires_free_bytes``: the largest current entry of the profile's own
layout), the entry of its card and layout, and the KV pin that the measurement added where it had none.

That a figure was never verified (``--allow-unverified``) is marked in its receipt (``verification``), and the
card shows it from there. The section has no field for it: every key of an entry moves vLLM's compile-cache
key, and a launch would decide the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from zenit_hub.errors import PublicationError
from zenit_hub.maintain.finding import Place
from zenit_hub.maintain.measurement import Measurement
from zenit_hub.maintain.view import layout_of
from zenit_hub.section import BUDGET_KEY, LAYOUT_FIELDS, ONE_DEVICE, PIN, Layout, section_key
from zenit_hub.text import gib, listed, printable

ENTRIES = "measurements"

Key = tuple[str, str] | tuple[str, str, str, Layout]
"""What a publication writes, wherever it stands in a list: ``(profile, key)``, and for an entry of a card
``(profile, "measurements", device, layout)``."""


@dataclass(frozen=True, slots=True)
class Changes:
    """``values``: place → new value, for :func:`~zenit_hub.maintain.publish.splice.splice`; empty: the
    config says it all already. ``lines``: what changes, a sentence each, for people. ``unverified``: profile
    and card of each figure to which no launch was held."""

    values: Mapping[Place, Any]
    lines: tuple[str, ...]
    unverified: tuple[str, ...] = ()


def changes(config: Mapping[str, Any], measurements: Sequence[tuple[Measurement, str]]) -> Changes:
    """What these measurements, each with the path of its receipt, change in ``config``.

    Each of them must have passed the refusals for this ``config``. Two of one profile, card and layout,
    or two that pin different KV caches, raise :class:`~zenit_hub.errors.PublicationError`.
    """
    values: dict[Place, Any] = {}
    lines: list[str] = []
    in_order = sorted(measurements, key=lambda pair: pair[0].profile.name)
    for name, group in groupby(in_order, key=lambda pair: pair[0].profile.name):
        of_profile = list(group)
        _agree([measurement for measurement, _ in of_profile])
        profile = profile_of(config, name) or {}
        new, said = _profile_changes(profile, of_profile)
        where = (section_key(config) or "", "profiles", name)
        values |= {(*where, *below): value for below, value in new.items()}
        lines += said
    unverified = tuple(label(measurement) for measurement, _ in measurements if not measurement.verified)
    return Changes(values, tuple(lines), unverified)


def written(config: Mapping[str, Any], measurements: Sequence[Measurement]) -> dict[Key, Any]:
    """The values that ``config`` has where these measurements write; ``None`` where it has none.

    Compared between two commits it tells whether somebody else wrote the same keys: entries are found by
    card and layout, not by their index.
    """
    found: dict[Key, Any] = {}
    for measurement in measurements:
        name, layout = measurement.profile.name, measurement.profile.layout
        profile = profile_of(config, name) or {}
        entries, own = _entries(profile), layout_in(profile, ONE_DEVICE)
        found[name, PIN] = profile.get(PIN)
        if layout == own:
            found[name, BUDGET_KEY] = profile.get(BUDGET_KEY)
        at = _index(entries, measurement, own)
        found[name, ENTRIES, measurement.device.name, layout] = None if at is None else entries[at]
    return found


def _agree(measurements: Sequence[Measurement]) -> None:
    """Of one profile: what cannot stand in it side by side."""
    seen: set[tuple[str, Layout]] = set()
    for measurement in measurements:
        card = (measurement.device.name, measurement.profile.layout)
        if card in seen:
            raise PublicationError(
                f"two measurements are both of {label(measurement)} with {card[1]} ranks",
                next_step="Name the one that counts.",
            )
        seen.add(card)
    pins = sorted({measurement.kv_cache_memory_bytes or 0 for measurement in measurements})
    if len(pins) > 1:
        name = printable(measurements[0].profile.name)
        raise PublicationError(
            f"the measurements of {name} pin different KV caches ({listed(pins)} bytes)",
            next_step=f"Publish one, then measure the others with its {PIN}.",
        )


def _profile_changes(
    profile: Mapping[str, Any], measurements: Sequence[tuple[Measurement, str]]
) -> tuple[dict[Place, Any], list[str]]:
    """Places below the profile → new values, in the order in which a profile shows them; and said."""
    own = layout_in(profile, ONE_DEVICE)
    old = _entries(profile)
    entries, lines = list(old), []
    for measurement, receipt in measurements:
        entry = new_entry(measurement, receipt, own)
        at = _index(entries, measurement, own)
        before = None if at is None else entries[at]
        if at is None:
            entries.append(entry)
        else:
            entries[at] = entry
        if entry != before:
            lines.append(f"{label(measurement)}: {f'{_told(before)} → ' if before else ''}{_told(entry)}")
    new: dict[Place, Any] = {}
    pin = measurements[0][0].kv_cache_memory_bytes
    if PIN not in profile:
        new[(PIN,)] = pin
    if any(measurement.profile.layout == own for measurement, _ in measurements):
        largest = max(_rating(entry, own) for entry in entries)
        if profile.get(BUDGET_KEY) != largest:
            new[(BUDGET_KEY,)] = largest
    if ENTRIES not in profile:
        new[(ENTRIES,)] = entries
    else:
        changed = (at for at, entry in enumerate(entries) if at >= len(old) or entry != old[at])
        new |= {(ENTRIES, at): entries[at] for at in changed}
    name = printable(measurements[0][0].profile.name)
    lines += [f"{name}: {key} {_from(profile, key)}{new[key,]}" for key in (PIN, BUDGET_KEY) if (key,) in new]
    return new, lines


def new_entry(measurement: Measurement, receipt: str, own: Layout) -> dict[str, Any]:
    """Without sizes it is of the profile's own layout; entries are kept small."""
    layout = measurement.profile.layout
    sizes = {} if layout == own else dict(zip(LAYOUT_FIELDS, (layout.tensor, layout.pipeline), strict=True))
    return {
        "device": measurement.device.name,
        **sizes,
        BUDGET_KEY: measurement.requires_free_bytes,
        "vllm": measurement.versions.vllm,
        "receipt": receipt,
    }


def _index(entries: Sequence[Mapping[str, Any]], measurement: Measurement, own: Layout) -> int | None:
    """Where the entry of the same card and layout stands."""
    for at, entry in enumerate(entries):
        if (
            entry.get("device") == measurement.device.name
            and layout_in(entry, own) == measurement.profile.layout
        ):
            return at
    return None


def _rating(entry: Mapping[str, Any], own: Layout) -> int:
    """The figure of an entry of the profile's own layout, else 0."""
    figure = entry.get(BUDGET_KEY)
    return int(figure) if layout_in(entry, own) == own and isinstance(figure, (int, float)) else 0


def layout_in(values: Mapping[str, Any], default: Layout) -> Layout:
    """As :func:`layout_of`; sizes that are none, in a section that nobody validated, count as not named."""
    sizes = [values.get(key) for key in LAYOUT_FIELDS]
    return (
        layout_of(values, default)
        if all(s is None or isinstance(s, (int, float)) for s in sizes)
        else default
    )


def profile_of(config: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    body = config.get(section_key(config) or "")
    profiles = body.get("profiles") if isinstance(body, dict) else None
    profile = profiles.get(name) if isinstance(profiles, dict) else None
    return profile if isinstance(profile, dict) else None


def _entries(profile: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = profile.get(ENTRIES)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return []
    return entries


def label(measurement: Measurement) -> str:
    return f"{printable(measurement.profile.name)} on {printable(measurement.device.name)}"


def _told(entry: Mapping[str, Any]) -> str:
    figure = entry.get(BUDGET_KEY)
    size = gib(figure) if isinstance(figure, int) else "no figure"
    return f"{size} (vLLM {printable(entry.get('vllm', 'unknown'))})"


def _from(profile: Mapping[str, Any], key: str) -> str:
    return f"{printable(profile[key])} → " if key in profile else "is now "
