"""Bytes and seconds as places on the paper and as labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))
_STEPS_S = (
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    30,
    60,
    120,
    300,
    600,
    1200,
    1800,
    3600,
    7200,
    14400,
    28800,
    86400,
)
_HUNDREDTHS = 100


@dataclass(frozen=True, slots=True)
class Axis:
    """``start`` … ``end`` on the paper stand for 0 … ``maximum``."""

    start: float
    end: float
    maximum: float

    def at(self, value: float) -> float:
        share = min(max(value / self.maximum, 0), 1)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit for a whole picture, so that its figures can be added up."""

    name: str
    size_bytes: int

    def text(self, amount_bytes: int) -> str:
        """``29.75 GiB``; in a smaller unit where it would show as nothing."""
        unit = self
        if amount_bytes and abs(amount_bytes) * _HUNDREDTHS * 2 < self.size_bytes:
            unit = unit_for(abs(amount_bytes))
        return f"{unit.bare(amount_bytes)} {unit.name}"

    def bare(self, amount_bytes: int) -> str:
        """``29.75``, exact and rounded half up as everywhere."""
        sign = "−" if amount_bytes < 0 else ""
        if self.size_bytes == 1:
            return f"{sign}{abs(amount_bytes)}"
        hundredths = (abs(amount_bytes) * _HUNDREDTHS + self.size_bytes // 2) // self.size_bytes
        return f"{sign}{hundredths // _HUNDREDTHS}.{hundredths % _HUNDREDTHS:02d}"


def unit_for(largest_bytes: int) -> Unit:
    """The largest unit of which there is one. GiB up to ten thousand, as on every card and in every log."""
    for name, size_bytes in _UNITS:
        least = 10 * size_bytes if name == "TiB" else size_bytes
        if largest_bytes >= least:
            return Unit(name, size_bytes)
    return Unit("bytes", 1)


def byte_ticks(maximum_bytes: int, unit: Unit, most: int = 5) -> Sequence[int]:
    """Round amounts from 0 on, at most ``most`` above it."""
    step = _round_step(maximum_bytes / unit.size_bytes, most)
    size_bytes = max(1, round(step * unit.size_bytes))
    return [size_bytes * index for index in range(int(maximum_bytes // size_bytes) + 1)]


def byte_label(amount_bytes: int, unit: Unit) -> str:
    return f"{amount_bytes / unit.size_bytes:.6g} {unit.name}" if amount_bytes else "0"


def _round_step(maximum: float, most: int) -> float:
    step = 1e-6
    while True:
        for factor in (1, 2, 5):
            if maximum / (step * factor) <= most:
                return step * factor
        step *= 10


def time_ticks(maximum_s: float, most: int = 6) -> Sequence[float]:
    """Round times from 0 on."""
    step = next((step for step in _STEPS_S if maximum_s / step <= most), _STEPS_S[-1])
    while maximum_s / step > most:
        step *= 2
    return [step * index for index in range(int(maximum_s / step + 1e-9) + 1)]


def time_labels(ticks: Sequence[float]) -> Sequence[str]:
    """In the unit that the step is round in."""
    step = ticks[1] if len(ticks) > 1 else 1
    divisor, unit = (1.0, "s") if step < 60 else (60.0, "min") if step < 1800 else (3600.0, "h")
    return [f"{tick / divisor:.6g} {unit}" if tick else "0" for tick in ticks]
