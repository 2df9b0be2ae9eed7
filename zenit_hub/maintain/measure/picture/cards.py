"""Which cards stand beside the figures, and what is said of each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zenit_hub.budget import budget_bytes
from zenit_hub.compat import engine_facts
from zenit_hub.maintain.card.cards import COMMON_CARDS
from zenit_hub.maintain.measure.picture.scale import unit_for
from zenit_hub.maintain.measure.picture.words import device_label, figure_bytes
from zenit_hub.maintain.measurement import MeasuredDevice, Measurement
from zenit_hub.text import printable

_MOST_CARDS = 6
_MOST_MEASURED = 3


@dataclass(frozen=True, slots=True)
class _Card:
    """``idle_free_bytes``: what a launch finds free with nothing else running."""

    label: str
    total_bytes: int
    idle_free_bytes: int


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card beside the bars. ``said``: how the figures go with it, in a few words."""

    label: str
    total_bytes: int
    said: str
    tone: str


def card_rows(measurements: Sequence[Measurement]) -> Sequence[CardRow]:
    """The devices that were measured on, and the common cards near the figures; by size."""
    measured = {
        (m.device.name, m.device.platform): _Card(
            _label(m.device), m.device.total_bytes, m.device.total_bytes
        )
        for m in measurements
    }
    shown = [(card, True) for card in list(measured.values())[:_MOST_MEASURED]]
    # What the CPU platform takes of a host says nothing about a card.
    on_cards = all(m.device.platform == "cuda" for m in measurements)
    rated = [m for m in measurements if figure_bytes(m) is not None and on_cards]
    if rated:
        others = [
            _Card(card.label, card.total_bytes, card.idle_free_bytes)
            for card in COMMON_CARDS
            if (card.name, "cuda") not in measured
        ]
        near = _near([figure_bytes(m) or 0 for m in rated], others)
        shown += [(card, False) for card in near[: _MOST_CARDS - len(shown)]]
    rows = [_row(card, rated, alone=len(measurements) == 1, here=here) for card, here in shown]
    return sorted(rows, key=lambda row: (row.total_bytes, row.label))


def _label(device: MeasuredDevice) -> str:
    if device.platform == "cpu":
        return "this host"
    return next(
        (card.label for card in COMMON_CARDS if card.name == device.name),
        printable(device_label(device.name), limit=40),
    )


def _row(card: _Card, rated: Sequence[Measurement], *, alone: bool, here: bool) -> CardRow:
    fits = sum(holds(card, measurement) for measurement in rated)
    if alone and here:
        said, tone = "measured", "soft"
    elif alone:
        said, tone = ("fits", "good") if fits else ("too small", "bad")
    else:
        said, tone = f"{fits} of {len(rated)} fit" if rated else "", "ink" if fits else "bad"
    return CardRow(card.label, card.total_bytes, said, tone)


def holds(card: _Card, measurement: Measurement) -> bool:
    """Whether a launch on an idle card of that kind takes the profile by itself: by the decision's own arithmetic."""
    pinned = measurement.kv_cache_memory_bytes is not None
    share = _utilization(measurement)
    budget = budget_bytes(card.idle_free_bytes, card.total_bytes, share, pinned=pinned)
    return budget >= (figure_bytes(measurement) or 0)


def _utilization(measurement: Measurement) -> float:
    """The profile's, else vLLM's own."""
    share = measurement.profile.values.get("gpu_memory_utilization")
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 < share <= 1:
        share = engine_facts(measurement.versions.vllm).defaults["gpu_memory_utilization"]
    return float(str(share))


def _near(figures: Sequence[int], cards: Sequence[_Card]) -> Sequence[_Card]:
    """Cards from half the smallest to twice the largest figure, nearest first, one that is larger among them."""
    low, high = max(min(figures), 1), max(*figures, 1)

    def distance(card: _Card) -> float:
        size = card.total_bytes
        return abs(math.log(size / low)) if size < low else max(0.0, math.log(size / high))

    ordered = sorted(cards, key=lambda card: (distance(card), card.total_bytes, card.label))
    near = [card for card in ordered if distance(card) <= math.log(2)]
    larger = next((card for card in ordered if card.total_bytes >= high), None)
    if larger is not None and larger not in near[: _MOST_CARDS - 1]:
        near.insert(0, larger)
    return near or ordered[:1]


def cards_in_words(rows: Sequence[CardRow]) -> str:
    """The rows for people who do not see them."""
    listed = [
        f"{row.label} {unit_for(row.total_bytes).text(row.total_bytes)}{': ' if row.said else ''}{row.said}"
        for row in rows
    ]
    return f"Devices, idle: {', '.join(listed)}."
