"""What the engine's processes take of the host, together: counters at every sample, corrected by what is exact.

Forks share pages that each of them counts. What each is really worth is in PSS, which is dear; the difference
to the counters stays until it is looked at again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenit_hub.maintain.measure.process_memory import (
    PAGE_BYTES,
    STATM_BYTES,
    Counter,
    Exact,
    counted_anonymous_bytes,
    read_exact,
    read_kernels_bytes,
)
from zenit_hub.maintain.measure.processes import Process
from zenit_hub.maintain.measure.sampling import Reading

KERNELS_PERIOD_S = 1.0

SMALL_BYTES = 16 * 2**20
"""A process with less is read at looks only: resource trackers, shells. Once it has grown, at every sample."""

STEADY_BYTES = 2**20
"""A process that grows by more while its pages are looked at is looked at again."""

TRIES = 3

_PROCESSORS = os.cpu_count() or 1
DRIFT_BYTES = _PROCESSORS * max(32, 2 * _PROCESSORS) * PAGE_BYTES
"""How far a counter may be off: before 6.17 the kernel leaves that many pages of each processor uncounted."""


@dataclass(slots=True)
class _Member:
    """A process of the engine. ``more_bytes``: what is exact less what is counted; negative where forks share."""

    counter: Counter
    more_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """``grown_bytes``: by how much the memory that no counter shows has grown since the last exact look.

    0 where processes came or went meanwhile. ``untold``: processes of which the kernel says nothing exact.
    """

    grown_bytes: int
    swapped_bytes: int
    untold: int


class EngineMemory:
    """Changed by the looking thread; :meth:`reading` and :meth:`without` are the sampling thread's as well."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._shares: dict[int, int] = {}
        self._exact_members: frozenset[int] = frozenset()
        self._shared_bytes = self._files_bytes = self._kernels_bytes = 0
        self._kernels_due_s = 0.0
        self._small: set[int] = set()
        self._changing = threading.Lock()
        self._sum = _Sum((), 0)

    def reading(self) -> Reading:
        return self._sum

    def without(self, reading: Reading, place: int) -> None:
        """The process in that place of the reading has ended."""
        with self._changing:
            if reading is self._sum:
                self._sum = self._sum.without(place)

    def follow(self, engine: Mapping[int, Process], sharing: Iterable[int]) -> None:
        """Count those that came, no longer those that went; ``sharing``: those that are forks of each other."""
        come = [
            (pid, counter) for pid in engine.keys() - self._members.keys() if (counter := Counter.of(pid))
        ]
        gone = self._members.keys() - engine.keys()
        self._members |= {pid: _Member(counter) for pid, counter in come}
        for pid in gone:
            del self._members[pid]
        shares = {pid: engine[pid].image for pid in sharing if pid in self._members}
        changed = (
            () if shares == self._shares else (shares.keys() | self._shares.keys()) & self._members.keys()
        )
        self._shares = shares
        for pid in changed:
            self._members[pid].more_bytes, _ = self._more_bytes(pid, self._members[pid])
            self._exact_members = frozenset()
        grown = any(
            self._members[pid].counter.bytes() >= SMALL_BYTES for pid in self._small & self._members.keys()
        )
        if come or gone or changed or grown or time.monotonic() >= self._kernels_due_s:
            self._kernels_due_s = time.monotonic() + KERNELS_PERIOD_S
            self._kernels_bytes = sum(read_kernels_bytes(pid) for pid in self._members)
            self._publish()

    def look_exactly(self, with_files: bool) -> Found:
        """``with_files``: whether what is mapped now is what the engine needs."""
        before_bytes = self._uncounted_bytes()
        exact: list[Exact] = []
        untold = 0
        for pid, member in self._members.items():
            member.more_bytes, each = self._more_bytes(pid, member)
            if each is not None:
                exact.append(each)
            elif member.counter.bytes():
                untold += 1
        self._shared_bytes = sum(each.shared_bytes for each in exact)
        if with_files:
            self._files_bytes = sum(each.file_bytes for each in exact)
        members = frozenset(self._members)
        grown_bytes = self._uncounted_bytes() - before_bytes if members == self._exact_members else 0
        self._exact_members = members
        self._publish()
        return Found(grown_bytes, sum(each.swapped_bytes for each in exact), untold)

    def close(self) -> None:
        self._members.clear()
        self._publish()

    def _uncounted_bytes(self) -> int:
        return (
            self._shared_bytes + self._files_bytes + sum(each.more_bytes for each in self._members.values())
        )

    def _more_bytes(self, pid: int, member: _Member) -> tuple[int, Exact | None]:
        """What is exact less what is counted, and all that is exact. The process may grow meanwhile."""
        exact, more_bytes = None, member.more_bytes
        for _ in range(TRIES):
            before_bytes = member.counter.bytes()
            exact = read_exact(pid)
            after_bytes = member.counter.bytes()
            if exact is None or not after_bytes:
                break
            if min(before_bytes, after_bytes) <= exact.anonymous_bytes <= max(before_bytes, after_bytes):
                more_bytes = 0
                break
            if abs(after_bytes - before_bytes) <= STEADY_BYTES:
                more_bytes = exact.anonymous_bytes - after_bytes
                break
        if pid not in self._shares:
            # Less than counted, and no fork of it is known: one that is about to become another program.
            more_bytes = max(more_bytes, -DRIFT_BYTES)
        return more_bytes, exact

    def _publish(self) -> None:
        """All at once, so that no sample has the pages of a fork twice."""
        beyond_bytes = self._shared_bytes + self._files_bytes + self._kernels_bytes
        parts = []
        self._small.clear()
        for pid, member in self._members.items():
            counted_bytes = member.counter.bytes()
            if counted_bytes >= SMALL_BYTES:
                parts.append((member.counter, member.more_bytes))
            elif counted_bytes:
                beyond_bytes += max(0, counted_bytes + member.more_bytes)
                self._small.add(pid)
        with self._changing:
            self._sum = _Sum(tuple(parts), beyond_bytes if self._members else 0)


class _Sum:
    """What is added up in a sample: a :class:`~zenit_hub.maintain.measure.sampling.Reading`."""

    def __init__(self, parts: tuple[tuple[Counter, int], ...], beyond_bytes: int) -> None:
        self.width = len(parts)
        self._parts = parts
        self._beyond_bytes = beyond_bytes
        self._last: tuple[Sequence[bytes], tuple[int]] = ((), (beyond_bytes,))

    def without(self, place: int) -> _Sum:
        return _Sum(self._parts[:place] + self._parts[place + 1 :], self._beyond_bytes)

    def collect(self, answers: list[Any], samples: int, pause_s: float) -> None:
        handles = [counter.handle for counter, _ in self._parts]
        add, read, pause, now_s = answers.append, os.pread, time.sleep, time.monotonic
        for _ in range(samples):
            pause(pause_s)
            for handle in handles:
                add(read(handle, STATM_BYTES, 0))
            add(now_s())

    def taken_bytes(self, answers: Sequence[bytes]) -> Sequence[int]:
        """One device. Mostly nothing has changed since the sample before."""
        known, result = self._last
        if answers != known:
            taken_bytes = self._beyond_bytes
            for answer, (_, more_bytes) in zip(answers, self._parts, strict=True):
                counted_bytes = counted_anonymous_bytes(answer)
                # A process that has ended and was not waited for has no memory, whatever was known of it.
                if counted_bytes:
                    taken_bytes += max(0, counted_bytes + more_bytes)
            result = (taken_bytes,)
            self._last = (answers, result)
        return result
