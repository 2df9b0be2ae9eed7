"""What a kind of device gives to the loop of a sampler: its size, how to read it, and what else was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Room:
    """A device before the start, in bytes."""

    free_bytes: int
    total_bytes: int


class Reading(Protocol):
    """Some samples in a row."""

    width: int
    """How many answers a sample has."""

    over: bool
    """Set by any thread: no more samples this way."""

    def collect(self, answers: list[Any], samples: int, pause_s: float) -> None:
        """At most so many samples, a pause before each: its answers, then ``time.monotonic()``.

        May raise in the middle; the samples that are complete by then count.
        """

    def taken_bytes(self, answers: Sequence[Any]) -> Sequence[int]:
        """What the answers of the next sample mean, per device; asked in order."""


@dataclass(frozen=True, slots=True)
class Others:
    """What the trace says of the processes: the fields of :class:`Trace`."""

    own_peak_bytes: int | None
    foreign_bytes: int | None
    foreign_process: str | None


class Allowance:
    """When something dear may be done again: each ``period_s``, and at most at ``share`` of a core."""

    def __init__(self, period_s: float, share: float) -> None:
        self._period_s = period_s
        self._share = share
        self._done_s = -period_s
        self._cost_s = 0.0

    def is_due(self, share: float | None = None) -> bool:
        """``share``: another one than usual, and then no period."""
        waited_s = time.monotonic() - self._done_s
        if share is not None:
            return waited_s >= self._cost_s / share
        return waited_s >= max(self._period_s, self._cost_s / self._share)

    def spend(self, work: Callable[[], None]) -> None:
        before_s = time.thread_time()
        work()
        self._cost_s = time.thread_time() - before_s
        self._done_s = time.monotonic()
