"""The engine's own account beside the figure from outside; what neither explains is called unaccounted."""

from __future__ import annotations

from zenit_hub.maintain.measure.boot import Seen
from zenit_hub.maintain.measure.engine_report import EngineReport
from zenit_hub.maintain.measurement import Breakdown

_NOTHING = EngineReport(None, None, None, None, None)


def breakdown_of(seen: Seen) -> Breakdown:
    """The parts of one boot's drop, in bytes on the worst device. They add up to it."""
    report, total_bytes = seen.report or _NOTHING, seen.trace.drop_bytes
    parts = (
        report.weights_bytes,
        report.kv_cache_bytes,
        report.activation_peak_bytes,
        report.cuda_graphs_bytes,
        seen.resting_bytes,
    )
    explained_bytes = sum(part for part in parts if part is not None)
    return Breakdown(*parts, unaccounted_bytes=total_bytes - explained_bytes, total_bytes=total_bytes)
