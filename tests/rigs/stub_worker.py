"""One rank of ``stub_engine.py``: holds its memory, through libcuda or on the host, and fails as vLLM's worker does.

Asked by lines of JSON on stdin, answers with one on stdout; its log goes to stderr. Standard library only.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from stub_engine import MIB, REPORT_VARIABLE, gib, log

CHUNKS = 8
CUDA_OUT_OF_MEMORY = 2
DEFAULT_UTILIZATION = 0.92


class OutOfMemory(Exception):
    """What was asked for, in bytes, is not to be had."""


class Memory(Protocol):
    """Where a rank holds what it holds."""

    def free_and_total(self) -> tuple[int, int]: ...

    def take(self, size_bytes: int) -> Callable[[], None]:
        """Takes it and returns what gives it back. Raises :class:`OutOfMemory`."""


class CudaMemory:
    """A context on the device whose number is the rank, as torch makes one."""

    def __init__(self, rank: int) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._check(self._cuda.cuInit(0))
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), rank))
        self._check(self._cuda.cuCtxSetCurrent(context))

    def free_and_total(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check(self._cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
        return free.value, total.value

    def take(self, size_bytes: int) -> Callable[[], None]:
        pointer = ctypes.c_uint64()
        self._check(self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes)), size_bytes)
        return lambda: self._check(self._cuda.cuMemFree_v2(pointer))

    @staticmethod
    def _check(error: int, size_bytes: int = 0) -> None:
        if error == CUDA_OUT_OF_MEMORY:
            raise OutOfMemory(size_bytes)
        if error:
            raise RuntimeError(f"CUDA driver error: {error}")


class HostMemory:
    """Touched pages of this process."""

    def free_and_total(self) -> tuple[int, int]:
        lines = [line.split() for line in Path("/proc/meminfo").read_text().splitlines()]
        figures = {line[0]: int(line[1]) * 1024 for line in lines}
        return figures["MemAvailable:"], figures["MemTotal:"]

    def take(self, size_bytes: int) -> Callable[[], None]:
        try:
            pages = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError):
            raise OutOfMemory(size_bytes) from None
        start = ctypes.c_char.from_buffer(pages)
        ctypes.memset(ctypes.addressof(start), 1, size_bytes)
        del start
        return pages.close


class Worker:
    """The steps of a start, in order, then requests."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.stub, self.values, self.rank = setup["stub"], setup["values"], setup["rank"]
        self.forced = setup["forced"]
        self.who = f"EngineCore_DP0 Worker_TP{self.rank}"
        self.requested_bytes = self.pool_bytes = self.first_free_bytes = 0
        self.peak_bytes = self.stub["peak_bytes"] + (self.stub["cold_bytes"] if self._is_cold() else 0)
        self._shared: tuple[Path, mmap.mmap] | None = None

    def do(self, what: str, request: dict[str, Any]) -> dict[str, Any]:
        if what == "report":
            return self.report()
        if self.stub["fail_phase"] == what:
            self._fail()
        step: Callable[..., None] = getattr(self, what)
        step(**request)
        return {}

    def start(self) -> None:
        self.memory: Memory = CudaMemory(self.rank) if self.stub["memory"] == "cuda" else HostMemory()
        if self.stub["shared_bytes"]:
            path = Path(f"/dev/shm/psm_stub_{os.getpid()}")
            with path.open("w+b") as file:
                file.truncate(self.stub["shared_bytes"])
                self._shared = path, mmap.mmap(file.fileno(), 0)
                self._shared[1].write(b"x" * self.stub["shared_bytes"])
        self.first_free_bytes, total_bytes = self.memory.free_and_total()
        if self.stub["memory"] != "cuda":
            return
        utilization = self._utilization(total_bytes)
        self.requested_bytes = math.ceil(total_bytes * utilization)
        if self.first_free_bytes < self.requested_bytes:
            self._raise(
                f"ValueError: Free memory on device cuda:{self.rank} ({gib(self.first_free_bytes)}/"
                f"{gib(total_bytes)} GiB) on startup is less than desired GPU memory utilization ({utilization}, "
                f"{gib(self.requested_bytes)} GiB). Decrease GPU memory utilization or reduce GPU memory used by "
                "other processes."
            )

    def loading(self) -> None:
        log(f"Starting to load model {self.values['model']}...", self.who)
        for _ in range(CHUNKS):
            self.memory.take(self.stub["weights_bytes"] // CHUNKS)
            time.sleep(self.stub["pace_s"] / CHUNKS)
        log("Loading weights took 0.10 seconds", self.who)
        log(f"Model loading took {gib(self.stub['weights_bytes'])} GiB memory and 0.100000 seconds", self.who)

    def profiling(self) -> None:
        log("Dynamo bytecode transform time: 0.10 s", self.who)
        if self.stub["fail"] and not self.stub["fail_phase"]:
            self._fail()
        self.memory.take(self.peak_bytes)
        time.sleep(self.stub["pace_s"])
        log("torch.compile took 0.20 s in total", self.who)

    def kv_cache(self) -> None:
        needed_bytes, window = self.stub["needed_kv_bytes"], self.values["max_model_len"]
        folder = os.environ.get(REPORT_VARIABLE)
        pinned_bytes = self.values.get("kv_cache_memory_bytes") or (needed_bytes if folder else None)
        parts = self.stub["weights_bytes"] + self.peak_bytes + self.stub["graphs_bytes"]
        free = (self.requested_bytes or self.memory.free_and_total()[0]) - parts
        self.pool_bytes = pinned_bytes or free
        log(f"Available KV cache memory: {gib(self.pool_bytes)} GiB", self.who)
        if self.pool_bytes <= 0:
            self._raise(NO_KV_CACHE_MEMORY)
        if self.pool_bytes < needed_bytes:
            self._raise(kv_cache_too_small(window, needed_bytes, self.pool_bytes))
        if folder and self.rank == 0:
            account = {
                "needed_bytes": needed_bytes,
                "pinned_bytes": pinned_bytes,
                "pool_bytes": self.pool_bytes,
            }
            (Path(folder) / "kv_cache.json").write_text(json.dumps(account))
        self.memory.take(self.pool_bytes)
        tokens = window * self.pool_bytes // needed_bytes
        log(
            f"GPU KV cache size: {tokens:,} tokens, Maximum concurrency for {window:,} tokens per request: "
            f"{tokens / window:.2f}x",
            self.who,
        )

    def graphs(self) -> None:
        sys.stderr.write(
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|####| 1/1 [00:00<00:00]\n"
        )
        if self.stub["graphs_bytes"]:
            self.memory.take(self.stub["graphs_bytes"])
        log(f"Graph capturing finished in 0 secs, took {self.stub['graphs_bytes'] / 2**30:.2f} GiB", self.who)
        log(
            "init engine (profile, create kv cache, warmup model) took 0.50 s (compilation: 0.20 s)", self.who
        )

    def workload(self, tokens: int) -> None:
        if self.stub["request_bytes"] and tokens * 2 >= self.values["max_model_len"]:
            give_back = self.memory.take(self.stub["request_bytes"])
            time.sleep(self.stub["pace_s"])
            give_back()

    def report(self) -> dict[str, Any]:
        """The engine's own account; the names are those of ``engine_report``."""
        return {
            "weights_bytes": self.stub["weights_bytes"],
            "kv_cache_bytes": self.pool_bytes,
            "activation_peak_bytes": self.peak_bytes + self.stub["request_bytes"],
            "cuda_graphs_bytes": self.stub["graphs_bytes"],
        }

    def end(self) -> None:
        if self._shared:
            self._shared[0].unlink(missing_ok=True)

    def _utilization(self, total_bytes: int) -> float:
        """The given one; for a forced profile, no more than is free less what the engine takes first."""
        given = float(self.values.get("gpu_memory_utilization", DEFAULT_UTILIZATION))
        kept_back_bytes = max(768 * MIB, self.first_free_bytes // 50)
        allowed = math.floor((self.first_free_bytes - kept_back_bytes) / total_bytes * 10000) / 10000
        return min(given, max(allowed, 0.0001)) if self.forced else given

    @staticmethod
    def _is_cold() -> bool:
        """Whether nothing was compiled yet into the cache that this start is given; afterwards it was."""
        root = os.environ.get("VLLM_CACHE_ROOT")
        if not root:
            return True
        mark = Path(root) / "torch_compile_cache" / "stub"
        mark.parent.mkdir(parents=True, exist_ok=True)
        cold = not mark.exists()
        mark.touch()
        return cold

    def _fail(self) -> None:
        how = self.stub["fail"]
        if how == "hang":
            time.sleep(3600)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how in FAILURES:
            self._raise(FAILURES[how](self))

    def _raise(self, words: str) -> None:
        log(f"EngineCore failed to start.\nTraceback (most recent call last):\n{words}", self.who, "ERROR")
        self.end()
        raise SystemExit(1)


NO_KV_CACHE_MEMORY = (
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
    "the engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). See "
    "https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
)


def kv_cache_too_small(window: int, needed_bytes: int, available_bytes: int) -> str:
    return (
        f"ValueError: To serve at least one request with the model's max seq len ({window}), ({gib(needed_bytes)} GiB "
        f"KV cache is needed, which is larger than the available KV cache memory ({gib(available_bytes)} GiB). Based "
        "on the available memory, the estimated maximum model length is "
        f"{window * available_bytes // needed_bytes}. Try increasing `gpu_memory_utilization` (which also controls CPU "
        "memory on the CPU backend) or decreasing `max_model_len` when initializing the engine."
    )


def disturbed(worker: Worker) -> str:
    first = worker.first_free_bytes
    return (
        f"AssertionError: Error in memory profiling. Initial free memory {gib(first)} GiB, current free memory "
        f"{gib(first + 7 * 2**30)} GiB. This happens when other processes sharing the same container release GPU "
        "memory while vLLM is profiling during initialization. To fix this, ensure consistent GPU memory allocation or "
        "isolate vLLM in its own container."
    )


def out_of_memory(worker: Worker, size_bytes: int = 2**30) -> str:
    free, total = worker.memory.free_and_total()
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gib(size_bytes)} GiB. GPU {worker.rank} has a "
        f"total capacity of {gib(total)} GiB of which {gib(free)} GiB is free."
    )


FAILURES: dict[str, Callable[[Worker], str]] = {
    "die": lambda _worker: "RuntimeError: the stub was told to die",
    "oom": out_of_memory,
    "disturbed": disturbed,
    "no_kv_cache_memory": lambda _worker: NO_KV_CACHE_MEMORY,
    "kv_cache_too_small": lambda worker: kv_cache_too_small(
        worker.values["max_model_len"], worker.stub["needed_kv_bytes"], worker.stub["needed_kv_bytes"] // 2
    ),
    "too_few_state_blocks": lambda worker: (
        f"ValueError: requested {worker.values['max_num_seqs']} sequences, 969 state blocks available"
    ),
}


def main() -> int:
    worker = Worker(json.loads(sys.argv[1]))
    # Ctrl-C and TERM are the front end's business; it closes stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if worker.stub["orphans"] or worker.stub["ignore_term"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = worker.do(request.pop("do"), request)
        except OutOfMemory as out:
            worker._raise(out_of_memory(worker, out.args[0]))
        print(json.dumps(answer), flush=True)
    while worker.stub["orphans"]:
        time.sleep(1)
    worker.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
