"""One profile held against one machine: what it needs there, what it may take, and whether it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from zenit_hub import budget
from zenit_hub.caller import Caller
from zenit_hub.compat import EngineFacts
from zenit_hub.section import PIN, UTILIZATION, Layout, Profile
from zenit_hub.visible import Card, Ranks, Sight, ranks

Verdict = Literal[
    "fits",
    "too_large",
    "unrated",
    "too_short",
    "other_layout",
    "compute_capability",
    "unknown_requirement",
    "invalid",
]


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement on one card, in bytes. Not ``exact``: of another layout, so an upper bound only."""

    bytes: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A profile in the layout in which it would be launched."""

    profile: Profile
    layout: Layout
    devices: int
    sight: Sight | None
    ranks: Ranks
    needs: tuple[Need, ...]
    """One a card; where no card is known, the profile's general figure alone; empty: unrated."""
    budgets_bytes: tuple[int, ...]
    utilization: float
    pinned: bool
    pin_bytes: int | None
    """The profile's own KV cache, where the launch will run with it."""
    figure_lacks_its_pin: bool

    @property
    def shared(self) -> bool:
        return self.sight is not None and self.sight.shared

    @property
    def stands_in(self) -> bool:
        """A one-device profile in a layout of the caller's: those of that layout come first."""
        return self.layout != self.profile.layout

    @property
    def memory_is_known(self) -> bool:
        return bool(self.ranks.cards) and self.ranks.unknown is None

    @property
    def worst(self) -> Card | None:
        """The rank with the smallest budget, of several the one with the least free memory."""
        if not self.memory_is_known:
            return None
        pairs = zip(self.budgets_bytes, self.ranks.cards, strict=True)
        return min(pairs, key=lambda pair: (pair[0], pair[1].free_bytes or 0))[1]

    @property
    def budget_bytes(self) -> int | None:
        return min(self.budgets_bytes, default=None) if self.memory_is_known else None

    @property
    def requirement_bytes(self) -> int | None:
        """The largest requirement of its ranks."""
        return max((need.bytes for need in self.needs), default=None)

    @property
    def _pool_excess_bytes(self) -> int:
        """By how much the pinned KV cache is larger than a whole device."""
        if self.pin_bytes is None or not self.memory_is_known:
            return 0
        return max(0, self.pin_bytes - min(card.total_bytes or 0 for card in self.ranks.cards))

    @property
    def need_bytes(self) -> int:
        """What a message names as needed: the requirement, or the pool that is larger than the card."""
        needed_bytes = self.requirement_bytes or 0
        return max(needed_bytes, self.pin_bytes or 0) if self._pool_excess_bytes else needed_bytes

    @property
    def short_bytes(self) -> int | None:
        """What the rank that is short of most lacks."""
        if not self.memory_is_known:
            return None
        short = [need.bytes - room for need, room in zip(self.needs, self.budgets_bytes, strict=False)]
        return max(0, self._pool_excess_bytes, *short)

    @property
    def more_free_bytes(self) -> int | None:
        """How much more must be free on the rank that is short of most; ``None``: no free memory helps."""
        most = 0
        for need, card in zip(self.needs, self.ranks.cards, strict=False):
            total_bytes = card.total_bytes or 0
            needed = budget.free_needed_bytes(need.bytes, total_bytes, self.utilization, pinned=self.pinned)
            if needed is None:
                return None
            most = max(most, needed - (card.free_bytes or 0))
        return None if self._pool_excess_bytes else most

    @property
    def verdict(self) -> Verdict | None:
        """What memory says of it; ``None`` where it says nothing."""
        if not self.memory_is_known:
            return None if self.needs else "unrated"
        if self._pool_excess_bytes:
            return "too_large"
        if not self.needs:
            return "unrated"
        return "too_large" if self.short_bytes else "fits"

    @property
    def is_known_not_to_fit(self) -> bool:
        """Too large, and not by an upper bound alone."""
        if not self.memory_is_known:
            return False
        if self._pool_excess_bytes:
            return True
        pairs = zip(self.needs, self.budgets_bytes, strict=False)
        return any(need.exact and need.bytes > room for need, room in pairs)

    @property
    def fits(self) -> bool | None:
        """Whether the launch as it will run fits; ``None`` where nobody can say."""
        if not self.memory_is_known:
            return None
        if self._pool_excess_bytes:
            return False
        if not self.needs or self.figure_lacks_its_pin:
            return None
        if self.is_known_not_to_fit:
            return False
        return None if self.short_bytes else True

    @property
    def lacks_capability(self) -> bool:
        needed = self.profile.requires_compute_capability
        return needed is not None and any(have < needed for have in self.ranks.capabilities)

    @property
    def tie(self) -> tuple[int, int, int, str]:
        """The order among profiles of one window."""
        requirement_bytes = self.requirement_bytes or 0
        if self.verdict == "fits":
            rank, figure = 0, -requirement_bytes
        elif self.verdict is None:
            rank, figure = 0, requirement_bytes
        elif self.verdict == "unrated":
            rank, figure = 1, 0
        else:
            rank, figure = 2, self.need_bytes
        return (self.layout.ranks, rank, figure, self.profile.name)

    @property
    def smallest_total_bytes(self) -> int:
        return min(card.total_bytes or 0 for card in self.ranks.cards)

    @property
    def gate(self) -> Fraction:
        """The largest utilization that vLLM will admit on every rank."""
        return min(budget.gate(card.free_bytes or 0, card.total_bytes or 0) for card in self.ranks.cards)


def candidate(
    profile: Profile, caller: Caller, engine: EngineFacts, sight: Sight | None, *, drop_pin: bool
) -> Candidate:
    """Hold ``profile`` against what was seen. ``drop_pin``: this launch leaves its KV cache's size open."""
    layout = caller.layout or profile.layout
    devices = layout.ranks * max(1, caller.local_engines)
    under = ranks(sight, devices) if sight is not None else Ranks()
    pin_bytes = profile.pin_bytes
    if drop_pin or caller.has(PIN) or PIN in engine.fields_absent:
        pin_bytes = None
    pinned = pin_bytes is not None or caller.pins
    utilization = effective_utilization(profile, caller, engine)
    known = bool(under.cards) and under.unknown is None
    return Candidate(
        profile=profile,
        layout=layout,
        devices=devices,
        sight=sight,
        ranks=under,
        needs=_needs(profile, layout, under.cards if known else ()),
        budgets_bytes=tuple(
            budget.budget_bytes(card.free_bytes or 0, card.total_bytes or 0, utilization, pinned=pinned)
            for card in (under.cards if known else ())
        ),
        utilization=utilization,
        pinned=pinned,
        pin_bytes=pin_bytes,
        figure_lacks_its_pin=profile.pin_bytes is not None and not pinned,
    )


def effective_utilization(profile: Profile, caller: Caller, engine: EngineFacts) -> float:
    """The caller's, else the profile's, else the installed engine's default."""
    default = engine.defaults[UTILIZATION]
    if caller.has(UTILIZATION):
        return _number(caller.value(UTILIZATION)) or _number(default) or 0.0
    own = None if UTILIZATION in engine.fields_absent else profile.arguments.get(UTILIZATION)
    return _number(own if own is not None else default) or 0.0


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def requirement_of(profile: Profile, card_name: str | None, layout: Layout) -> Need | None:
    """What ``profile`` needs on a card: this card's own measurement, else the general figure."""
    for entry in profile.measurements:
        if entry.requires_free_bytes is not None and entry.device == card_name and entry.layout == layout:
            return Need(entry.requires_free_bytes, exact=True)
    if profile.requires_free_bytes is None:
        return None
    return Need(profile.requires_free_bytes, exact=layout == profile.layout)


def _needs(profile: Profile, layout: Layout, cards: tuple[Card, ...]) -> tuple[Need, ...]:
    names: list[str | None] = [card.name for card in cards] or [None]
    found = [requirement_of(profile, name, layout) for name in names]
    needs = tuple(need for need in found if need is not None)
    return needs if len(needs) == len(found) else ()
