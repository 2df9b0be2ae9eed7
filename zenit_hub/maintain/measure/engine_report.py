"""The engine's own account of its memory: what it is started with for that, and what it says.

The other ends are ``engine/measured.py`` and ``engine/ledger.py``, inside the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zenit_hub import env
from zenit_hub.errors import MeasurementError

ACCOUNT_FILE = "kv_cache.json"
EXTENSION = "zenit_hub.engine.ledger.WorkerAccount"
METHOD = "zenit_hub_memory"

_PARTS = ("weights_bytes", "kv_cache_bytes", "activation_peak_bytes", "cuda_graphs_bytes")


class Asked(Protocol):
    """What is needed of an engine here."""

    def request(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 120) -> Any:
        """The JSON of the answer. Raises :class:`MeasurementError`."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """Per device, of the rank that holds most. ``None``: this engine does not tell.

    ``needed_kv_bytes``: the smallest ``kv_cache_memory_bytes`` under which one request of the whole window
    runs, and with recurrent layers ``max_num_seqs`` requests at once; in whole MiB.
    """

    weights_bytes: int | None
    kv_cache_bytes: int | None
    activation_peak_bytes: int | None
    cuda_graphs_bytes: int | None
    needed_kv_bytes: int | None


def report_words() -> tuple[str, ...]:
    """Further words of ``vllm serve``."""
    return ("--worker-extension-cls", EXTENSION)


def report_environment(folder: Path) -> dict[str, str]:
    """Variables for the engine, which writes into ``folder``.

    vLLM opens ``/collective_rpc`` in its development mode only. ``spawn`` is what ``vllm serve`` takes by
    itself: a forked engine core would not load plug-ins a second time.
    """
    return {
        env.MEASURE_REPORT: str(folder),
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    }


def read_report(engine: Asked, folder: Path) -> EngineReport:
    """What the running engine says, after the workload. What it does not say is ``None``."""
    ranks = [_parts(result) for result in _results(engine)]
    most = max(ranks, key=lambda parts: sum(part or 0 for part in parts.values()), default=_parts(None))
    return EngineReport(**most, needed_kv_bytes=_whole(_account(folder).get("needed_bytes")))


def _results(engine: Asked) -> list[Any]:
    """One per rank."""
    try:
        answer = engine.request("/collective_rpc", {"method": METHOD})
    except MeasurementError:
        return []
    results = answer.get("results") if isinstance(answer, dict) else None
    return results if isinstance(results, list) else []


def _parts(result: Any) -> dict[str, int | None]:
    said = result if isinstance(result, dict) else {}
    return {name: _whole(said.get(name)) for name in _PARTS}


def _account(folder: Path) -> dict[str, Any]:
    try:
        account = json.loads((folder / ACCOUNT_FILE).read_bytes())
    except (OSError, ValueError):
        return {}
    return account if isinstance(account, dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
