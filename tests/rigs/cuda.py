"""CUDA's driver for the NVML rig's cards: real processes that hold memory which the real ``pynvml`` then misses.

    rig = NvmlRig(tmp_path / "card")
    rig.put({"devices": [{"total_bytes": 16 * GIB, "free_bytes": 15 * GIB, "context_bytes": 300 * MIB}]})
    subprocess.run([sys.executable, "-c", …], env={**os.environ, **cuda_environment(rig)})

A child that loads ``libcuda.so.1`` (ctypes is enough) takes memory with ``cuMemAlloc_v2``; the rig's free memory
falls by it, in every process that looks, until the child frees it or ends in whatever way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.rigs import compiled
from tests.rigs.nvml import NvmlRig

LIBRARY_NAME = "libcuda.so.1"
OUT_OF_MEMORY = 2
"""CUDA's number for it: ``rig.fail("cuMemAlloc_v2", OUT_OF_MEMORY, target=0)``."""

_RIGS = Path(__file__).parent


def compiled_library() -> Path:
    """The library for this source, from a cache in the temporary directory; compiled if it is not there."""
    # What it does not need of the common headers is no mistake.
    flags = ("-Wno-unused-function", "-pthread")
    return compiled.compiled_library(
        LIBRARY_NAME, _RIGS / "cuda" / "cuda.c", list((_RIGS / "nvml").glob("*.h")), *flags
    )


def cuda_environment(rig: NvmlRig, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """What to merge into a child's environment, so that the rig's cards have both libraries."""
    own = rig.environment(base)
    return {**own, "LD_LIBRARY_PATH": f"{compiled_library().parent}:{own['LD_LIBRARY_PATH']}"}


HOLDS = """
import ctypes, json, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, held = ctypes.c_void_p(), []

def hold(size_bytes):
    pointer = ctypes.c_uint64()
    error = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
    if not error:
        held.append(pointer)
    return error

def let_go():
    return cuda.cuMemFree_v2(held.pop())

def look():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    return [cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), free.value, total.value]

def begin(ordinal=0):
    return [
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal),
        cuda.cuCtxSetCurrent(context),
    ]
"""
"""What a child on the card begins with."""

_SERVES = """
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


class Neighbour:
    """Another process on a card, which takes and frees memory when it is told to; ended with the ``with``."""

    def __init__(self, rig: NvmlRig, card: int = 0) -> None:
        environment = {**os.environ, **cuda_environment(rig), "CUDA_VISIBLE_DEVICES": str(card)}
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", HOLDS + _SERVES],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.tell("begin()") != [0, 0, 0]:
            self.end()
            raise RuntimeError("the neighbour found no device")

    def take(self, size_bytes: int) -> None:
        if error := self.tell(f"hold({size_bytes})"):
            raise MemoryError(f"CUDA's error {error} for {size_bytes} bytes")

    def give_back(self) -> None:
        """The last that it took."""
        self.tell("let_go()")

    def tell(self, call: str) -> object:
        """The answer to one of the calls above."""
        if self.process.stdin is None or self.process.stdout is None:
            raise ValueError("it has ended")
        self.process.stdin.write(f"{call}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self) -> None:
        self.process.communicate()

    def __enter__(self) -> Neighbour:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
