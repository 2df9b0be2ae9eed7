"""Memory seen from the outside: what a sampler gives, and the facts that everything above it reads.

A sampler runs beside the engine, in the tool's process, at 100 Hz or faster, and costs less than a hundredth
of a core. It never takes part in the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

PERIOD_S = 0.0098
"""102 times a second, on the average: what a late wake-up takes comes off the next pauses."""

FOREIGN_LIMIT_BYTES = 16 * 2**20
"""Another process's memory that moves by more makes a boot contaminated (specification, ``measuring``)."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What was seen during one boot. Lists are parallel: ``taken_bytes[i]`` at ``times_s[i]``.

    ``times_s``: seconds since :meth:`Sampler.start`, which was at ``started_s`` of ``time.monotonic``.
    ``taken_bytes``: on the device where the fall was largest (``worst``, an index into the sampled devices).
    ``drop_bytes``: its largest figure, until the first mark named ``ending`` where there is one.
    ``own_peak_bytes`` is ``None`` where the driver gives no figures of the engine's processes.
    ``foreign_bytes``: the largest move, up or down, of any one process that is not the engine's, and of a
    device as a whole between the moments before the start and after the end, where that is larger; the second
    alone where there are no figures per process. ``foreign_process``: whose move it was, in words.
    ``cost_share``: of one core, measured. ``notes``: what went wrong without spoiling the figures, a sentence each.
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
    started_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def contaminated(self) -> bool:
        return (self.foreign_bytes or 0) > FOREIGN_LIMIT_BYTES


class Sampler(Protocol):
    """Samples from :meth:`start` to :meth:`stop`. Not started twice."""

    def start(self) -> None:
        """Take the baseline, then sample in the background. Call before the engine's first process starts.

        Raises :class:`MeasurementError` where the memory cannot be seen.
        """

    def engine_is(self, root_pid: int) -> None:
        """The engine's processes are ``root_pid`` and what descends from it."""

    def mark(self, name: str) -> None:
        """A phase begins: take the dear figures once (PSS, per-process figures). Returns when they are there."""

    def taken_now_bytes(self) -> int:
        """The latest sample, for the live curve."""

    def at_mark_bytes(self, name: str) -> int | None:
        """What was taken at the first mark of that name."""

    def stop(self) -> Trace:
        """End sampling, after the engine's last process is gone, and say what was seen.

        Raises :class:`MeasurementError` where sampling ended before: there is no figure then.
        """
