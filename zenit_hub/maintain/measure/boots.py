"""The boots of one profile, in order: cold, warm, with no more free than the figure, with 1 % less.

Every boot is tried again, at most twice, when another process moved memory meanwhile or when the engine saw
memory being freed under it; what such a boot found is kept as a record and never as a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.bench import Bench
from zenit_hub.maintain.measure.boot import Seen, Task, run_boot
from zenit_hub.maintain.measure.breakdown import breakdown_of
from zenit_hub.maintain.measure.confine import Confiner
from zenit_hub.maintain.measure.samplers import FOREIGN_LIMIT_BYTES
from zenit_hub.maintain.measure.watch import Watch
from zenit_hub.maintain.measurement import (
    Boot,
    BootKind,
    Breakdown,
    Contamination,
    Failure,
    Tried,
    Verdict,
    Verification,
)
from zenit_hub.text import gib

MAX_TRIES = 3
"""A boot that was contaminated or disturbed is repeated, at most twice (specification, ``measuring``)."""

MIB = 2**20
DISTURBED = ("contaminated", "disturbed")


@dataclass(frozen=True, slots=True)
class Plan:
    """``task``: how the profile is launched and asked; ``pin_bytes``: the profile's own, or ``None``: to be found.

    ``measuring_boots`` ≥ 1: the first is cold, the others are warm.
    """

    task: Task
    measuring_boots: int
    verify: bool
    pin_bytes: int | None
    fresh_folder: Callable[[], Path]


@dataclass(slots=True)
class Found:
    """What the boots of one profile gave."""

    boots: list[Seen] = field(default_factory=list)
    verdict: Verdict = "failed"
    requires_free_bytes: int | None = None
    pin_bytes: int | None = None
    verification: Verification | None = None
    failure: Failure | None = None

    @property
    def measuring(self) -> list[Seen]:
        """The boots that count for the figure."""
        return [seen for seen in self.boots if seen.counts and seen.boot.kind in ("cold", "warm")]

    @property
    def records(self) -> tuple[Boot, ...]:
        return tuple(seen.boot for seen in self.boots)

    @property
    def spread_bytes(self) -> int | None:
        drops = [seen.trace.drop_bytes for seen in self.measuring]
        return max(drops) - min(drops) if drops else None

    @property
    def breakdown(self) -> Breakdown | None:
        """The parts of the largest drop."""
        largest = max(self.measuring, key=lambda seen: seen.trace.drop_bytes, default=None)
        return None if largest is None else breakdown_of(largest)

    @property
    def contamination(self) -> Contamination:
        moves = [seen.trace.foreign_bytes for seen in self.measuring]
        return Contamination(
            limit_bytes=FOREIGN_LIMIT_BYTES,
            contaminated_boots=sum(seen.boot.outcome == "contaminated" for seen in self.boots),
            largest_bytes=max((move for move in moves if move is not None), default=None),
        )


def measure_boots(plan: Plan, bench: Bench, watch: Watch) -> Found:
    """All boots of one profile. Raises what stops the tool itself, nothing that the engine does."""
    boots = _Boots(plan, bench, watch)
    boots.measure()
    if boots.found.requires_free_bytes is not None and plan.verify:
        boots.verify()
    return boots.found


def planned_boots(measuring_boots: int, verify: bool) -> int:
    """Starts of the engine for one profile, without repeats."""
    return measuring_boots + (2 if verify else 0)


def to_mib(size_bytes: int) -> int:
    """Up to the next MiB."""
    return -(-size_bytes // MIB) * MIB


def one_percent_less(size_bytes: int) -> int:
    return size_bytes * 99 // 100


class NotSmall(Exception):
    """The device cannot be made that small; why."""


@dataclass(frozen=True, slots=True)
class _Small:
    """The device with no more than that free."""

    confiner: Confiner
    free_bytes: int

    @contextmanager
    def hold(self) -> Iterator[Path | None]:
        with ExitStack() as held:
            try:
                cgroup = held.enter_context(self.confiner.hold(self.free_bytes))
            except MeasurementError as error:
                raise NotSmall(str(error)) from error
            yield cgroup


class _Boots:
    """The boots of one profile while they go on."""

    def __init__(self, plan: Plan, bench: Bench, watch: Watch) -> None:
        self._plan = plan
        self._bench = bench
        self._watch = watch
        self.found = Found(pin_bytes=plan.pin_bytes)

    def measure(self) -> None:
        """The cold boot and the warm ones; the figure is the largest drop."""
        found = self.found
        for number in range(self._plan.measuring_boots):
            seen = self._boot("warm" if number else "cold")
            if not seen.counts:
                self._give_up(seen)
                return
            if found.pin_bytes is None:
                found.pin_bytes = seen.report.needed_kv_bytes if seen.report else None
            if found.pin_bytes is None:
                found.failure = _NO_PIN
                return
        found.requires_free_bytes = to_mib(max(seen.trace.drop_bytes for seen in found.measuring))
        found.verdict = "measured"

    def verify(self) -> None:
        """The launch with no more free than the figure, then with 1 % less.

        Where the figure is not enough it is raised by 1 % and tried again, instead of the fourth boot; what
        failed first is the outcome below then.
        """
        found, confiner = self.found, self._bench.confiner
        if isinstance(confiner, str):
            found.verification = Verification("none", None, "not_tried", None, "not_tried", confiner)
            self._watch.said(f"the figure is not verified: {confiner}")
            return
        figure = found.requires_free_bytes or 0
        try:
            found.verification = self._verified(figure, confiner)
        except NotSmall as why:
            found.verification = Verification(
                confiner.method, figure, "not_tried", None, "not_tried", str(why)
            )
            self._watch.said(f"the figure is not verified: {why}")

    def _verified(self, figure: int, confiner: Confiner) -> Verification:
        """Raises :class:`NotSmall`."""
        found, method = self.found, confiner.method
        first = self._boot("verification", _Small(confiner, figure))
        if first.counts:
            below = _Small(confiner, one_percent_less(figure))
            outcome = self._below(below)
            return Verification(method, figure, "answered", below.free_bytes, outcome)
        if first.boot.outcome in DISTURBED:
            why = f"{_why_again(first)}, in each of {MAX_TRIES} tries"
            return Verification(method, figure, "not_tried", None, "not_tried", why)
        raised = to_mib(figure * 101 // 100)
        self._watch.said(f"{gib(figure)} are not enough ({first.why_not}): once more with {gib(raised)}")
        second = self._boot("verification", _Small(confiner, raised))
        if second.counts:
            found.requires_free_bytes = raised
        why = "" if second.counts else second.why_not
        return Verification(method, raised, _tried(second), figure, "failed", why)

    def _below(self, small: _Small) -> Tried:
        """A figure that is verified stays so, whatever keeps less than it from being tried."""
        try:
            return _tried(self._boot("below", small))
        except NotSmall as why:
            self._watch.said(f"1 % less is not tried: {why}")
            return "not_tried"

    def _boot(self, kind: BootKind, small: _Small | None = None) -> Seen:
        """One boot, repeated where something else disturbed it. Each try makes the device small anew: a
        neighbour that came meanwhile is part of what holds the rest."""
        for attempt in range(1, MAX_TRIES + 1):
            with small.hold() if small else nullcontext() as cgroup:
                seen = run_boot(kind, attempt, self._task(cgroup), self._bench, self._watch)
            if small is not None:
                # What was left to the launch: on a host the sampler sees all of it.
                seen = replace(seen, boot=replace(seen.boot, free_bytes=small.free_bytes))
            self.found.boots.append(seen)
            if seen.boot.outcome not in DISTURBED:
                break
            if attempt < MAX_TRIES:
                self._watch.said(f"{_why_again(seen)}: once more")
        return seen

    def _task(self, cgroup: Path | None) -> Task:
        order = replace(self._plan.task.order, folder=self._plan.fresh_folder(), cgroup=cgroup)
        if self._plan.pin_bytes is None and self.found.pin_bytes is not None:
            pin = ("--kv-cache-memory-bytes", str(self.found.pin_bytes))
            order = replace(order, arguments=(*order.arguments, *pin))
        return replace(self._plan.task, order=order)

    def _give_up(self, seen: Seen) -> None:
        self.found.failure = seen.boot.failure
        if seen.boot.outcome in DISTURBED:
            self.found.verdict = "contaminated"
            why = f"{_why_again(seen)}, in each of {MAX_TRIES} tries"
            self.found.failure = Failure("contaminated", why, "measure while nothing else uses the device")


_NO_PIN = Failure(
    "cannot_start",
    "the engine did not say what one request of the whole window needs",
    "pin kv_cache_memory_bytes in the profile and measure again",
)


def _why_again(seen: Seen) -> str:
    if seen.boot.outcome == "disturbed":
        return f"somebody else freed memory while the engine looked ({seen.why_not})"
    whose = seen.trace.foreign_process or "another process"
    moved = gib(seen.boot.foreign_bytes or 0)
    return f"{whose} moved {moved} meanwhile, more than {gib(FOREIGN_LIMIT_BYTES)}"


def _tried(seen: Seen) -> Tried:
    if seen.counts:
        return "answered"
    return "not_tried" if seen.boot.outcome in DISTURBED else "failed"
