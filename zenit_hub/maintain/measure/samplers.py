"""Memory seen from the outside: what a sampler gives, and the facts that everything above it reads.

A sampler runs beside the engine, in the tool's process, at 100 Hz or faster, and costs less than a hundredth
of a core. It never takes part in the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PERIOD_S = 0.008
"""125 times a second, so that a late wake-up still leaves a hundred."""

FOREIGN_LIMIT_BYTES = 16 * 2**20
"""Another process's memory that moves by more makes a boot contaminated (specification, ``measuring``)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What was seen during one boot. Lists are parallel: ``taken_bytes[i]`` at ``times_s[i]``.

    ``taken_bytes``: on the device where the fall was largest (``worst``, an index into the sampled devices).
    ``own_peak_bytes`` and ``foreign_bytes`` are ``None`` where the driver gives no figures per process.
    ``foreign_bytes``: the largest move, up or down, of any one process that is not the engine's, and of the
    device as a whole between the moments before the start and after the end, where that is larger.
    ``cost_share``: of one core, measured.
    """

    times_s: Sequence[float]
    taken_bytes: Sequence[int]
    free_bytes: int
    total_bytes: int
    worst: int = 0
    drop_bytes: int = 0
    own_peak_bytes: int | None = None
    foreign_bytes: int | None = None
    foreign_process: str | None = None
    sampled_hz: float = 0.0
    cost_share: float = 0.0

    @property
    def contaminated(self) -> bool:
        return (self.foreign_bytes or 0) > FOREIGN_LIMIT_BYTES


class Sampler(Protocol):
    """Samples from :meth:`start` to :meth:`stop`. Not started twice."""

    def start(self) -> None:
        """Take the baseline, then sample in the background. Call before the engine's first process starts."""

    def engine_is(self, root_pid: int) -> None:
        """The engine's processes are ``root_pid`` and what descends from it."""

    def mark(self, name: str) -> None:
        """A phase begins: take the dear figures once (PSS, per-process figures)."""

    def taken_now_bytes(self) -> int:
        """The latest sample, for the live curve."""

    def at_mark_bytes(self, name: str) -> int | None:
        """What was taken at the first mark of that name."""

    def stop(self) -> Trace:
        """End sampling, after the engine's last process is gone, and say what was seen."""
