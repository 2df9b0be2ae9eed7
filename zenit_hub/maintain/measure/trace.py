"""What is kept of a boot: the curve of each device, its peak, and how far other processes moved."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from zenit_hub.maintain.measure.processes import name_of
from zenit_hub.maintain.measure.samplers import FOREIGN_LIMIT_BYTES

Key = TypeVar("Key", bound=Hashable)

SAMPLES_KEPT = 600
"""As the schema has it: what a picture can show and a receipt can carry."""


class Curves:
    """Bytes taken per device over time, in order: 16 bytes a sample, 8 more for each further device.

    Changed by one thread, read by any.
    """

    def __init__(self, devices: int) -> None:
        self.times_s = array("d")
        self.taken_bytes = tuple(array("q") for _ in range(devices))

    def append(self, time_s: float, taken_bytes: Sequence[int]) -> None:
        for curve, taken in zip(self.taken_bytes, taken_bytes, strict=True):
            curve.append(taken)
        self.times_s.append(time_s)

    def lift(self, since_s: float, until_s: float, more_bytes: int) -> None:
        """Add to the samples of that time, of every device."""
        for index in range(bisect_left(self.times_s, since_s), bisect_left(self.times_s, until_s)):
            for curve in self.taken_bytes:
                curve[index] += more_bytes

    def __len__(self) -> int:
        return len(self.times_s)

    def peaks_bytes(self, until_s: float | None = None) -> tuple[int, ...]:
        """The largest figure of each device, of the samples no later than ``until_s``; 0 where there is none."""
        count = len(self) if until_s is None else bisect_right(self.times_s, until_s)
        return tuple(max(curve[:count], default=0) for curve in self.taken_bytes)

    def largest_gap_s(self) -> float:
        return max((later - earlier for earlier, later in pairwise(self.times_s)), default=0.0)


def thin(
    times_s: Sequence[float], taken_bytes: Sequence[int], most: int = SAMPLES_KEPT
) -> tuple[tuple[float, int], ...]:
    """At most ``most`` pairs of seconds and bytes: each stretch of time by its lowest and highest sample.

    The first and the last sample stay, and so does every peak and every dip; what goes is what lies between.
    """
    count = len(times_s)
    if count <= most:
        chosen = list(range(count))
    else:
        # Two a stretch and the two ends.
        stretches = max(1, (most - 2) // 2)
        bounds = [count * number // stretches for number in range(stretches + 1)]
        chosen = sorted({0, count - 1, *_ends_of(taken_bytes, bounds)})
    return tuple((round(times_s[index], 3), int(taken_bytes[index])) for index in chosen)


def _ends_of(values: Sequence[int], bounds: Sequence[int]) -> set[int]:
    kept = set()
    for first, end in pairwise(bounds):
        places = range(first, end)
        kept |= {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
    return kept


class Moves(Generic[Key]):
    """How far the memory of each process that is not the engine's moved from where it was before the start.

    ``pid_of``: the process of a key; a key is whatever tells them apart.
    """

    def __init__(self, pid_of: Callable[[Key], int]) -> None:
        self._pid_of = pid_of
        self._there: frozenset[Key] = frozenset()
        self._first: dict[Key, int] = {}
        self._largest: dict[Key, int] = {}
        self._names: dict[Key, str] = {}

    def begin(self, figures: Mapping[Key, int]) -> None:
        """Who is there before the start, and with how many bytes."""
        self._first = dict(figures)
        self._there = frozenset(figures)

    def look(self, figures: Mapping[Key, int]) -> None:
        """All that are there now. Who is new came from nothing; who is gone went to nothing."""
        for key in self._first.keys() | figures.keys():
            move = abs(figures.get(key, 0) - self._first.setdefault(key, 0))
            if move > self._largest.get(key, 0):
                self._largest[key] = move
                if move > FOREIGN_LIMIT_BYTES and key not in self._names:
                    # Now, while it is there; whoever left before the first look past the limit has a number only.
                    self._names[key] = name_of(self._pid_of(key))

    def were_there(self) -> frozenset[Key]:
        """Who was there before the start: not the engine's, whatever it is."""
        return self._there

    def furthest(self, counts: Callable[[Key], bool] = lambda key: True) -> tuple[str | None, int]:
        """Who of those that count moved furthest, in words, and by how many bytes."""
        moves = {key: move for key, move in self._largest.items() if counts(key)}
        if not moves:
            return None, 0
        key = max(moves, key=moves.__getitem__)
        return self._names.get(key) or name_of(self._pid_of(key)), moves[key]
