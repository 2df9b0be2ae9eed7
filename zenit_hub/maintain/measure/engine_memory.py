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
from itertools import cycle, repeat
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

KERNELS_PERIOD_S = 1.0

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
    """Changed by the looking thread; :meth:`samples` and :meth:`without` are the sampling thread's."""

    def __init__(self) -> None:
        self._members: dict[int, _Member] = {}
        self._shares: dict[int, int] = {}
        self._exact_members: frozenset[int] = frozenset()
        self._shared_bytes = self._files_bytes = self._kernels_bytes = 0
        self._kernels_due_s = 0.0
        self._changing = threading.Lock()
        self._parts: list[_Part] = []
        self._beyond_bytes = 0
        self._samples = Samples((), 0)

    def samples(self) -> Samples:
        """The next samples; the sampling thread."""
        with self._changing:
            self._samples = Samples(self._parts, self._beyond_bytes)
            return self._samples

    def without(self, samples: Samples, answers: int) -> bool:
        """Whether a process ended after so many answers; it is left out from now on. The sampling thread."""
        ended = samples.asked_after(answers)
        with self._changing:
            self._parts = [part for part in self._parts if part is not ended]
        return ended is not None

    def now_bytes(self) -> int:
        """What all take now, read at once; the looking thread."""
        parts = ((member.counter.bytes(), member.more_bytes) for member in self._members.values())
        return self._beyond_bytes + sum(_worth_bytes(counted, more) for counted, more in parts)

    def follow(self, engine: Mapping[int, Process], sharing: Iterable[int], *, at_mark: bool) -> None:
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
        if come or gone or changed or at_mark or time.monotonic() >= self._kernels_due_s:
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
        known = {part.counter: part for part in self._parts}
        parts = [
            _Part(member.counter, member.more_bytes, known.get(member.counter))
            for member in self._members.values()
        ]
        with self._changing:
            self._parts = parts
            self._beyond_bytes = beyond_bytes if parts else 0
            self._samples.over = True


class _Part:
    """One process in the sum, as the sampling thread saw it last."""

    __slots__ = ("_more_bytes", "answer", "counter", "moves", "worth_bytes")

    def __init__(self, counter: Counter, more_bytes: int, before: _Part | None) -> None:
        self.counter = counter
        self.moves: bool = before is None or before.moves
        self.answer: bytes = b"0 0 0" if before is None else before.answer
        self._more_bytes = more_bytes
        self.worth_bytes = self._worth_bytes()

    def hear(self, answer: bytes) -> None:
        if answer != self.answer:
            self.answer = answer
            self.moves = True
            self.worth_bytes = self._worth_bytes()

    def _worth_bytes(self) -> int:
        return _worth_bytes(counted_anonymous_bytes(self.answer), self._more_bytes)


class Samples:
    """Some samples in a row: a :class:`~zenit_hub.maintain.measure.readings.Reading`.

    After a sleep each process costs 8 µs, so in each sample those are read whose counter moved during the
    samples before, and of the others one, in turn: a process that begins to move is seen within as many
    samples as there are processes at rest, and read each time from the next row on.
    """

    def __init__(self, parts: Sequence[_Part], beyond_bytes: int) -> None:
        self._beyond_bytes = beyond_bytes
        self._parts = parts
        self._moving = [part for part in parts if part.moves]
        self._resting = [part for part in parts if not part.moves]
        self._heard = 0
        self.over = False
        self.width = len(self._moving) + bool(self._resting)
        for part in parts:
            part.moves = False

    def collect(self, answers: list[Any], samples: int, pause_s: float) -> None:
        """The shortest loop: see ``sampling``."""
        moving = [part.counter.handle for part in self._moving]
        resting = [part.counter.handle for part in self._resting]
        turn = cycle(zip(resting)) if resting else repeat(())
        add, read, pause, now_s = answers.append, os.pread, time.sleep, time.monotonic
        for _ in range(samples):
            if self.over:
                return
            pause(pause_s)
            for handle in moving:
                add(read(handle, STATM_BYTES, 0))
            for handle in next(turn):
                add(read(handle, STATM_BYTES, 0))
            add(now_s())

    def taken_bytes(self, answers: Sequence[bytes]) -> Sequence[int]:
        """One device."""
        for part, answer in zip(self._moving, answers, strict=False):
            part.hear(answer)
        if self._resting:
            self._resting[self._heard % len(self._resting)].hear(answers[-1])
        self._heard += 1
        return (self._beyond_bytes + sum(part.worth_bytes for part in self._parts),)

    def asked_after(self, answers: int) -> _Part | None:
        """Whose answer was to come after so many."""
        sample, place = divmod(answers, self.width + 1)
        if place < len(self._moving):
            return self._moving[place]
        return self._resting[sample % len(self._resting)] if place < self.width else None


def _worth_bytes(counted_bytes: int, more_bytes: int) -> int:
    """A process that has ended and was not waited for has no memory, whatever was known of it."""
    return max(0, counted_bytes + more_bytes) if counted_bytes else 0
