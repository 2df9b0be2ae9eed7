"""What a measured engine's KV cache needs: asked of vLLM itself, pinned, and written down.

Only for an engine that ``zenit-hub measure`` starts, whose environment names a folder (``env.MEASURE_REPORT``).
In the engine core it asks vLLM what the KV cache needs, before memory is profiled, and pins that where the
profile pins nothing: this boot is then the one that the published profile makes. The workers keep a ledger
(:mod:`zenit_hub.engine.ledger`). Read in vLLM 0.28.0 to 0.33.0; what a version lacks is ``None`` in the account,
and the engine runs on.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zenit_hub import env, say
from zenit_hub.engine.ledger import watch, watch_loading
from zenit_hub.text import printable

ACCOUNT_FILE = "kv_cache.json"

_MARK = "_zenit_hub_measured"
_MIB = 2**20
_SHORT_TOKENS = 128
"""A short request of the workload, with what it generates."""
_LARGEST_POOL_BYTES = 2**50

_log = logging.getLogger(say.LOGGER)


def install() -> bool:
    """Patch what this process has of an engine. ``False``: it has no executor, or it is patched already.

    vLLM loads plug-ins in the engine core before it makes its executor (``EngineCore.__init__``).
    """
    watch_loading()
    executor = getattr(sys.modules.get("vllm.v1.executor.abstract"), "Executor", None)
    if executor is None or getattr(executor.__init__, _MARK, False):
        return False
    original = executor.__init__

    @functools.wraps(original)
    def made(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        account = _Account(self, vllm_config, Path(os.environ[env.MEASURE_REPORT]))
        original(self, vllm_config, *args, **kwargs)
        account.begin()

    setattr(made, _MARK, True)
    executor.__init__ = made
    return True


class _Account:
    """Between one executor and its engine core: it sees the KV specs, and acts before memory is profiled."""

    def __init__(self, executor: Any, vllm_config: Any, folder: Path) -> None:
        self._executor = executor
        self._config = vllm_config
        self._folder = folder
        self._specs: list[Any] = []
        self._given_bytes: int | None = vllm_config.cache_config.kv_cache_memory_bytes
        self._pinned = self._given_bytes is not None and not _is_the_hosts(self._given_bytes)
        if not self._pinned:
            # A start with a pin does not ask for gpu_memory_utilization of the device (cpu_worker.py), and
            # the published profile has one. The real one takes its place before anything is allocated.
            vllm_config.cache_config.kv_cache_memory_bytes = _MIB

    def begin(self) -> None:
        self._get_specs, self._executor.get_kv_cache_specs = (
            self._executor.get_kv_cache_specs,
            self._see_specs,
        )
        self._profile, self._executor.determine_available_memory = (
            self._executor.determine_available_memory,
            self._pin_and_profile,
        )

    def _see_specs(self) -> Any:
        self._specs = self._get_specs()
        return self._specs

    def _pin_and_profile(self) -> Any:
        needed_bytes = _or_none("what the KV cache needs", needed_kv_bytes, self._config, self._specs)
        pin_bytes = self._given_bytes if self._pinned or needed_bytes is None else needed_bytes
        self._config.cache_config.kv_cache_memory_bytes = pin_bytes
        # A function goes to the workers by its name, whether they have our extension or not.
        _or_none("where its memory is", self._executor.collective_rpc, watch, None, (pin_bytes,))
        _or_none(
            "what its KV cache needs", self._write, {"needed_bytes": needed_bytes, "pinned_bytes": pin_bytes}
        )
        return self._profile()

    def _write(self, account: dict[str, int | None]) -> None:
        file = self._folder / ACCOUNT_FILE
        unfinished = file.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(account), encoding="utf-8")
        unfinished.replace(file)


def _is_the_hosts(pin_bytes: int) -> bool:
    """Whether the pin is ``VLLM_CPU_KVCACHE_SPACE``, which on a CPU takes the place of any other (cpu.py)."""
    from zenit_hub.engine.facts import platform

    space = os.environ.get(env.CPU_KV_SPACE, "")
    return platform() == "cpu" and space.isdigit() and int(space) * 2**30 == pin_bytes


def _or_none(what: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        why = printable(f"{type(error).__name__}: {error}")
        _log.warning("%s", say.prefixed(f"this vLLM does not tell zenit-hub measure {what}: {why}"))
        return None


def needed_kv_bytes(vllm_config: Any, specs: Sequence[Any]) -> int | None:
    """The smallest pin, per device in whole MiB, under which the engine does what the profile promises.

    That is: one request of ``max_model_len`` runs, and with recurrent layers, whose states no request can do
    without, ``max_num_seqs`` requests run at once. Found by trying it on vLLM's own planner. ``None`` where
    the length or the pool does not come from the profile, or where no pool is enough.
    """
    if not any(specs) or vllm_config.cache_config.num_gpu_blocks_override is not None:
        return None
    if getattr(vllm_config.model_config, "original_max_model_len", None) == -1:
        return None
    with _without_log():
        plan = _planner(vllm_config, specs)
        enough_mib = 1
        while not _holds(plan, vllm_config, enough_mib):
            enough_mib *= 2
            if enough_mib * _MIB > _LARGEST_POOL_BYTES:
                return None
        too_few_mib = enough_mib // 2
        while enough_mib - too_few_mib > 1:
            between = (enough_mib + too_few_mib) // 2
            if _holds(plan, vllm_config, between):
                enough_mib = between
            else:
                too_few_mib = between
    return enough_mib * _MIB


def _planner(vllm_config: Any, specs: Sequence[Any]) -> Callable[[int], list[Any]]:
    """Bytes per device → the workers' ``KVCacheConfig``; ``ValueError`` where vLLM would not start.

    Up to 0.32 it groups the layers itself (``kv_cache_utils.py``), since 0.33 it is given the groups
    (``kv_cache_planning.py``).
    """
    core = sys.modules["vllm.v1.engine.core"]
    make_groups = getattr(core, "get_global_kv_cache_groups", None)
    groups = () if make_groups is None else (make_groups(vllm_config, specs),)

    def plan(pool_bytes: int) -> list[Any]:
        planned: list[Any] = core.get_kv_cache_configs(vllm_config, specs, [pool_bytes] * len(specs), *groups)
        return planned

    return plan


def _holds(plan: Callable[[int], list[Any]], vllm_config: Any, pool_mib: int) -> bool:
    try:
        planned = plan(pool_mib * _MIB)
    except ValueError:
        return False
    window = vllm_config.model_config.max_model_len
    needed = max(_blocks(vllm_config, config, window) for config in planned)
    if any(getattr(config, "has_mamba_layers", False) for config in planned):
        begun = max(_blocks(vllm_config, config, min(window, _SHORT_TOKENS)) for config in planned)
        needed = max(needed, begun * vllm_config.scheduler_config.max_num_seqs)
    # The block pool keeps one back (block_pool.py); vLLM's own check counts it since 0.29.
    return min(int(config.num_blocks) for config in planned) - 1 >= needed


def _blocks(vllm_config: Any, kv_cache_config: Any, tokens: int) -> int:
    """What one request of ``tokens`` holds, over all groups of layers. vLLM says how many of them there can be."""
    from vllm.v1.core.kv_cache_utils import get_max_concurrency_for_kv_cache_config

    model = vllm_config.model_config
    window, model.max_model_len = model.max_model_len, tokens
    try:
        concurrency = get_max_concurrency_for_kv_cache_config(vllm_config, kv_cache_config)
    finally:
        model.max_model_len = window
    return round(int(kv_cache_config.num_blocks) / float(concurrency))


@contextmanager
def _without_log() -> Iterator[None]:
    """Each try would say what the real plan says once."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
