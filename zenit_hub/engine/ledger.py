"""A worker's ledger in a measured engine: weights, KV pool, CUDA graphs, and what the allocator held beside them.

Only in an engine that ``zenit-hub measure`` starts. What is wrapped here are methods of one model runner (read
in vLLM 0.28.0 to 0.33.0: ``gpu_model_runner.py``, ``gpu/model_runner.py``, ``cpu_model_runner.py``), because
vLLM says the size of the graphs in its log alone, in hundredths of a GiB, and profiles nothing where the pool is
pinned.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_LEDGER = "_zenit_hub_ledger"
_MARK = "_zenit_hub_watched"

_loaded_bytes: list[int] = []
"""The models that this process has loaded, the draft model of a speculator among them."""


def watch_loading() -> None:
    """Have the models of this process counted as they are loaded, before a CPU's kernels repack their weights:
    what oneDNN keeps has no tensor (``dispatch_cpu_unquantized_gemm`` in ``model_executor/layers/utils.py``).

    vLLM loads plug-ins before a worker's module (``WorkerWrapperBase.init_worker``), and has the loader's
    module at the end of ``init_device``.
    """
    wrapper = getattr(sys.modules.get("vllm.v1.worker.worker_base"), "WorkerWrapperBase", None)
    if wrapper is None or getattr(wrapper.init_device, _MARK, False):
        return
    original = wrapper.init_device

    @functools.wraps(original)
    def init_device(self: Any) -> Any:
        made = original(self)
        _count_before_processing()
        return made

    setattr(init_device, _MARK, True)
    wrapper.init_device = init_device


def _count_before_processing() -> None:
    loader: Any = sys.modules.get("vllm.model_executor.model_loader.base_loader")
    original = getattr(loader, "process_weights_after_loading", None)
    if original is None or getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def process_weights_after_loading(model: Any, *args: Any, **kwargs: Any) -> Any:
        _loaded_bytes.append(_storage_bytes([*model.parameters(), *model.buffers()]))
        return original(model, *args, **kwargs)

    setattr(process_weights_after_loading, _MARK, True)
    loader.process_weights_after_loading = process_weights_after_loading


def watch(worker: Any, pin_bytes: int | None) -> None:
    """Set the pin, and keep a ledger of this worker from here on: after the weights, before memory is profiled."""
    worker.cache_config.kv_cache_memory_bytes = pin_bytes
    runner = worker.model_runner
    ledger = Ledger(_allocator(worker.device), _weights_bytes(runner, worker.device))
    runner.initialize_kv_cache = ledger.around_pool(runner.initialize_kv_cache, runner)
    runner.capture_model = ledger.around_capture(runner.capture_model)
    setattr(runner, _LEDGER, ledger)


class Ledger:
    """What the device's allocator held at most beside weights, KV pool and CUDA graphs.

    ``allocator``: ``torch.cuda`` or its like for another accelerator; ``None`` on a CPU, which has no such
    counter. vLLM's own profile is not made when the pool is pinned (``gpu_worker.py``).
    """

    def __init__(self, allocator: Any, weights_bytes: int | None) -> None:
        self.weights_bytes = weights_bytes
        self.graphs_bytes = 0
        self._allocator = allocator
        self._standing_bytes = weights_bytes or 0
        self._peak_bytes = 0
        self._start_stretch()

    def peak_bytes(self) -> int | None:
        """The largest so far; the capture of the graphs is not in it: that is in the graphs."""
        if self._allocator is None or self.weights_bytes is None:
            return None
        self._peak_bytes = max(
            self._peak_bytes, self._allocator.max_memory_allocated() - self._standing_bytes
        )
        return self._peak_bytes

    def around_pool(self, original: Callable[..., Any], runner: Any) -> Callable[..., Any]:
        @functools.wraps(original)
        def initialize_kv_cache(*args: Any, **kwargs: Any) -> Any:
            self.peak_bytes()
            made = original(*args, **kwargs)
            self._standing_bytes = (self.weights_bytes or 0) + (_pool_bytes(runner) or 0)
            self._start_stretch()
            return made

        return initialize_kv_cache

    def around_capture(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``capture_model`` answers with the bytes by which it made the device's free memory smaller."""

        @functools.wraps(original)
        def capture_model(*args: Any, **kwargs: Any) -> Any:
            self.peak_bytes()
            before_bytes = self._held_bytes()
            captured = original(*args, **kwargs)
            self.graphs_bytes = int(captured or 0)
            self._standing_bytes += max(0, self._held_bytes() - before_bytes)
            self._start_stretch()
            return captured

        return capture_model

    def _held_bytes(self) -> int:
        return 0 if self._allocator is None else int(self._allocator.memory_allocated())

    def _start_stretch(self) -> None:
        if self._allocator is not None:
            self._allocator.reset_peak_memory_stats()


class WorkerAccount:
    """A worker's extension (``--worker-extension-cls``): its method can be called over HTTP."""

    def zenit_hub_memory(self) -> dict[str, int | None]:
        """The ledger in bytes, as plain numbers: nothing else comes through vLLM's RPC."""
        worker: Any = self
        runner = worker.model_runner
        ledger: Ledger | None = getattr(runner, _LEDGER, None)
        return {
            "weights_bytes": ledger.weights_bytes if ledger else _weights_bytes(runner, worker.device),
            "kv_cache_bytes": _pool_bytes(runner),
            "activation_peak_bytes": ledger.peak_bytes() if ledger else None,
            "cuda_graphs_bytes": ledger.graphs_bytes if ledger else None,
        }


def _allocator(device: Any) -> Any:
    """``torch.cuda`` for a CUDA device; ``None`` for a CPU: ``torch.cpu`` counts nothing."""
    module = getattr(sys.modules["torch"], device.type, None)
    return module if hasattr(module, "max_memory_allocated") else None


def _weights_bytes(runner: Any, device: Any) -> int | None:
    """As vLLM measured it while loading; the CPU's runner does not: as they were loaded."""
    measured = getattr(runner, "model_memory_usage", 0) if device.type != "cpu" else 0
    if measured or _loaded_bytes:
        return int(measured or sum(_loaded_bytes))
    model = getattr(runner, "model", None)
    return None if model is None else _storage_bytes([*model.parameters(), *model.buffers()])


def _pool_bytes(runner: Any) -> int | None:
    """The memory behind ``kv_caches``: layers of several kinds look at the same."""
    tensors = list(_tensors(getattr(runner, "kv_caches", None)))
    return _storage_bytes(tensors) if tensors else None


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from _tensors(each)
    elif hasattr(value, "untyped_storage"):
        yield value


def _storage_bytes(tensors: Sequence[Any]) -> int:
    storages = {storage.data_ptr(): storage.nbytes() for storage in (t.untyped_storage() for t in tensors)}
    return sum(storages.values())
