"""As much of torch as ``tools/gpu_smoke.py`` asks of it, on the CUDA rig's cards.

The process's context is made at the first question. ``ZENIT_RIG_TORCH_LIES_BYTES`` is what it adds to the free
memory that CUDA tells.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

uint8 = "uint8"


class OutOfMemoryError(RuntimeError):
    """CUDA has not that much."""


class _Cuda:
    """``torch.cuda``."""

    OutOfMemoryError = OutOfMemoryError

    def __init__(self) -> None:
        self._library: Any = None

    @property
    def library(self) -> Any:
        if self._library is None:
            self._library, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
            self._library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
            self._library.cuCtxSetCurrent(context)
        return self._library

    def is_available(self) -> bool:
        try:
            return ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
        except OSError:
            return False

    def mem_get_info(self, _device: int) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.library.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value + int(os.environ.get("ZENIT_RIG_TORCH_LIES_BYTES", "0")), total.value

    def empty_cache(self) -> None:
        """It keeps none."""


cuda = _Cuda()


class empty:
    """Uninitialised memory, given back with the object."""

    def __init__(self, size_bytes: int, *, dtype: str, device: str) -> None:
        self._pointer = ctypes.c_uint64()
        if cuda.library.cuMemAlloc_v2(ctypes.byref(self._pointer), ctypes.c_size_t(size_bytes)):
            raise OutOfMemoryError(f"{size_bytes} bytes of {dtype} on {device}")

    def __del__(self) -> None:
        if self._pointer.value:
            cuda.library.cuMemFree_v2(self._pointer)
