"""Which window on which card: what the decision itself answers on described machines.

There is no second formula here. A window is what :func:`~zenit_hub.decide.decide` chooses; the free memory
from which it is chosen is where a candidate of that decision says that its budget begins to hold its need.
Machines are described with the newest supported vLLM, and nobody types anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from zenit_hub import budget
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate, candidate
from zenit_hub.compat import NEWEST_SUPPORTED, engine_facts
from zenit_hub.decide import decide
from zenit_hub.decision import Reason
from zenit_hub.errors import CardError
from zenit_hub.machine import Device, Host, Machine, Surroundings
from zenit_hub.maintain.card.cards import COMMON_CARDS, CommonCard
from zenit_hub.section import InvalidSection, OtherArchitecture, Profile, Section, read_section
from zenit_hub.visible import Sight, see_cards

_AROUND = Surroundings("cuda", engine_facts(NEWEST_SUPPORTED))
_NOTHING_TYPED = Caller()

_LARGEST = max((card for card in COMMON_CARDS if not card.integrated), key=lambda card: card.total_bytes)
_NEWER_THAN_ANY = (999, 999)
_MOST_CARDS = 16
"""More than one machine holds. A layout of more ranks runs on several, where memory chooses nothing."""

Capability = tuple[int, int]

Basis = Literal["this_card", "another_card", "stated", "not_measured"]
"""Where the figure of a choice comes from; ``stated``: the section names one and no measurement of it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a launch gets. Bytes are per card.

    ``floor_bytes``: the free memory from which the profile fits there; ``None``: no free memory does, or it is
    not rated. ``free_bytes``: what is free in this case.
    """

    chosen: Candidate | None
    reason: Reason
    basis: Basis
    free_bytes: int
    floor_bytes: int | None = None

    @property
    def profile(self) -> Profile | None:
        return self.chosen.profile if self.chosen else None

    @property
    def name(self) -> str | None:
        return self.chosen.profile.name if self.chosen else None

    @property
    def ranks(self) -> int:
        return self.chosen.layout.ranks if self.chosen else 1

    @property
    def fits(self) -> bool:
        return self.reason == "widest_fitting"

    @property
    def spare_bytes(self) -> int:
        """What others may take of the free memory before another window is chosen."""
        return self.free_bytes - self.floor_bytes if self.floor_bytes is not None else 0


@dataclass(frozen=True, slots=True)
class CardRow:
    """``cards`` of one answer, each idle and with its outcome; ``count`` of them in the machine."""

    cards: tuple[CommonCard, ...]
    count: int
    outcomes: tuple[Outcome, ...]

    @property
    def outcome(self) -> Outcome:
        """Of several the one that leaves the least to others."""
        return min(self.outcomes, key=lambda outcome: outcome.spare_bytes)


@dataclass(frozen=True, slots=True)
class Step:
    """From ``outcome.free_bytes`` on, on each of ``count`` cards, a launch gets ``outcome``.

    ``until_bytes``: where another choice begins; ``None``: nowhere. ``below``: on cards of a lower compute
    capability than that.
    """

    count: int
    below: Capability | None
    outcome: Outcome
    until_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Cap:
    """A profile may take no more than ``utilization`` of a card, so that one must have ``total_bytes`` in all."""

    profile: Profile
    utilization: float
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the card says of a section."""

    section: Section
    cards: tuple[CardRow, ...]
    steps: tuple[Step, ...]
    caps: tuple[Cap, ...]


def gather(config: Mapping[str, Any]) -> Facts:
    """The facts of a model's config. Raises :class:`CardError` where it has no section that can be used."""
    section = usable_section(config)
    steps = tuple(_steps(section))
    caps = {step.outcome.name: cap for step in steps if (cap := _cap(step.outcome))}
    return Facts(section, tuple(_card_rows(section)), steps, tuple(caps.values()))


def usable_section(config: Mapping[str, Any]) -> Section:
    """The section as a launch reads it. Raises :class:`CardError` where there is none, or nothing valid in it."""
    reading = read_section(config, _AROUND.engine.kv_cache_dtypes)
    if isinstance(reading, Section) and reading.profiles:
        return reading
    if isinstance(reading, Section):
        why = "no profile of the section is valid"
    elif isinstance(reading, OtherArchitecture):
        why = "the section speaks for another architecture than the config's"
    elif isinstance(reading, InvalidSection):
        why = reading.why
    else:
        why = "the config carries no section"
    raise CardError(
        f"there are no serving profiles to show: {why}",
        next_step="`zenit-hub validate` shows every error with its line.",
    )


# --- the decision, asked


@dataclass(frozen=True, slots=True)
class Bench:
    """``count`` cards of one kind, and the section that is asked what it would give on them."""

    section: Section
    card: CommonCard
    count: int = 1

    def machine(self, free_bytes: int) -> Machine:
        """The machine with ``free_bytes`` free on each card; an integrated one has its host's memory."""
        card = self.card
        devices = tuple(
            Device(
                index=index,
                uuid=f"GPU-{index}",
                name=card.name,
                compute_capability=card.compute_capability,
                total_bytes=None if card.integrated else card.total_bytes,
                free_bytes=None if card.integrated else free_bytes,
                integrated=card.integrated,
            )
            for index in range(self.count)
        )
        host = Host(card.total_bytes, free_bytes) if card.integrated else None
        return Machine("machine", devices, host=host)

    def outcome(self, free_bytes: int) -> Outcome:
        """What a launch gets with ``free_bytes`` free on each card."""
        found = decide(self.section, _NOTHING_TYPED, _AROUND, self._sight(free_bytes))
        chosen = found.chosen
        if chosen is None:
            return Outcome(None, found.reason, "not_measured", free_bytes)
        basis = _basis(chosen, self.card.name)
        return Outcome(chosen, found.reason, basis, free_bytes, self.floor_bytes(chosen.profile))

    def floor_bytes(self, profile: Profile) -> int | None:
        """The free memory from which the profile's budget holds what it needs; ``None``: it is not reached."""
        weighed = candidate(profile, _NOTHING_TYPED, _AROUND.engine, self._sight(0), drop_pin=False)
        return weighed.more_free_bytes if weighed.memory_is_known and weighed.needs else None

    def changes(self) -> list[int]:
        """Where, from none to all, a choice may become another one."""
        floors = (self.floor_bytes(profile) for profile in self.section.profiles.values())
        return sorted({0, *(floor_bytes for floor_bytes in floors if floor_bytes is not None)})

    def _sight(self, free_bytes: int) -> Sight:
        return see_cards(self.machine(free_bytes), {}, None)


def _basis(chosen: Candidate, card_name: str) -> Basis:
    if chosen.requirement_bytes is None:
        return "not_measured"
    measured = [entry.device for entry in chosen.profile.measurements if entry.layout == chosen.layout]
    if card_name in measured:
        return "this_card"
    return "another_card" if measured else "stated"


def _counts(section: Section) -> list[int]:
    """One card, and the numbers of cards that profiles are for."""
    ranks = {profile.layout.ranks for profile in section.profiles.values()}
    return sorted({1, *(count for count in ranks if count <= _MOST_CARDS)})


# --- which card


def _card_rows(section: Section) -> Iterator[CardRow]:
    """Each card alone; then as many of them as a profile is for, where one card is not enough."""
    rows: dict[str, list[CommonCard]] = {}
    for card in COMMON_CARDS:
        rows.setdefault(card.row, []).append(card)
    for cards in rows.values():
        for count in _counts(section):
            found = [
                (card, outcome)
                for card in cards
                if count == 1 or not card.integrated
                for outcome in [Bench(section, card, count).outcome(card.idle_free_bytes)]
                if count in (1, outcome.ranks)
            ]
            yield from _merged(found, count)


def _merged(found: list[tuple[CommonCard, Outcome]], count: int) -> Iterator[CardRow]:
    """One row where all answers are the same, else a row a card."""
    rows = [found]
    if len({(outcome.name, outcome.reason, outcome.basis) for _, outcome in found}) > 1:
        rows = [[each] for each in found]
    for row in filter(None, rows):
        yield CardRow(tuple(card for card, _ in row), count, tuple(outcome for _, outcome in row))


# --- which free memory


def _steps(section: Section) -> Iterator[Step]:
    """For any card: one of them, then several, then older ones; a ladder that repeats the newer card's is left out."""
    asked = {profile.requires_compute_capability for profile in section.profiles.values()}
    before: dict[int, list[tuple[int, str | None]]] = {}
    for below in (None, *sorted((c for c in asked if c is not None), reverse=True)):
        for count in _counts(section):
            ladder = _ladder(section, count, below)
            plain = [(step.outcome.free_bytes, step.outcome.name) for step in ladder]
            if before.get(count) != plain:
                yield from ladder
            before[count] = plain


def _ladder(section: Section, count: int, below: Capability | None) -> list[Step]:
    """The choices on a card that no measurement names, from much free memory to none.

    The largest common card stands for any: four-place utilizations round off most on it, so that what is
    enough there is enough on each smaller one that reaches the profile at all.
    """
    bench = Bench(section, replace(_LARGEST, name="", compute_capability=_just_below(below)), count)
    steps: list[Step] = []
    until_bytes: int | None = None
    for free_bytes in reversed(bench.changes()):
        outcome = bench.outcome(free_bytes)
        if steps and (steps[-1].outcome.name, steps[-1].outcome.reason) == (outcome.name, outcome.reason):
            steps[-1] = replace(steps[-1], outcome=outcome)
        else:
            steps.append(Step(count, below, outcome, until_bytes))
        until_bytes = free_bytes
    return [step for step in steps if count in (1, step.outcome.ranks)]


def _cap(outcome: Outcome) -> Cap | None:
    """The card that the chosen profile must have; ``None``: what must be free says it all."""
    chosen = outcome.chosen
    if chosen is None or not outcome.fits:
        return None
    need_bytes = chosen.requirement_bytes or 0
    low, high = 0, _LARGEST.total_bytes
    while low < high:
        middle = (low + high) // 2
        room_bytes = budget.budget_bytes(middle, middle, chosen.utilization, pinned=chosen.pinned)
        low, high = (middle + 1, high) if room_bytes < need_bytes else (low, middle)
    return Cap(chosen.profile, chosen.utilization, high) if high > outcome.free_bytes else None


def _just_below(capability: Capability | None) -> Capability:
    """The newest card that lacks ``capability``; ``None``: one that lacks none."""
    if capability is None:
        return _NEWER_THAN_ANY
    major, minor = capability
    return (major, minor - 1) if minor else (major - 1, 999)
