"""The ballast itself: one process that holds memory of one card until NVML says what is to be left.

Run as a module: ``python -m zenit_hub.maintain.measure.ballast_process UUID FREE_BYTES``. On stdout stands one line
of JSON, :class:`Held` or ``{"why": …}``; then it keeps still until stdin ends or it is killed, by whatever. The
driver gives its memory back with its end. CUDA's driver library alone, through ctypes: no torch, no kernels.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

from zenit_hub.device import nvml_module
from zenit_hub.text import gib, printable

CUDA_LIBRARY = "libcuda.so.1"
LARGEST_STEP_BYTES = 8 * 2**30
SMALLEST_STEP_BYTES = 2 * 2**20
"""A page of the card. A driver that takes more for it is found out by trying."""

SURELY_SEEN_BYTES = 64 * 2**20
"""So much cannot come out of what a driver keeps for itself."""

SETTLED_S = 0.1
"""How long the figure has to keep still before it counts."""

LEVEL_TIMEOUT_S = 30.0
PAUSE_S = 0.05
PR_SET_PDEATHSIG = 1


class NotPossible(Exception):
    """Why the card cannot be made that small, in one sentence without its full stop."""


@dataclass(frozen=True, slots=True)
class Held:
    """``left_bytes``: NVML's figure. ``granule_bytes``: the smallest step. ``held_bytes``: the context is in it."""

    left_bytes: int
    granule_bytes: int
    held_bytes: int


class CardMemory:
    """NVML's figure for one card or slice: the one that decides. Raises :class:`NotPossible`."""

    def __init__(self, uuid: str) -> None:
        nvml = nvml_module()
        if nvml is None:
            raise NotPossible("there is no NVML binding here: pip install nvidia-ml-py")
        self._nvml: ModuleType = nvml
        self._uuid = uuid
        try:
            nvml.nvmlInit()
            self._handle: Any = nvml.nvmlDeviceGetHandleByUUID(uuid)
        except nvml.NVMLError as error:
            raise self._refused(error) from error

    def free_bytes(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).free)
        except self._nvml.NVMLError as error:
            raise self._refused(error) from error

    def close(self) -> None:
        """Let go of the library."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return

    def _refused(self, error: Exception) -> NotPossible:
        return NotPossible(f"NVML gives no memory figures of {printable(self._uuid)}: {printable(error)}")


class CudaMemory:
    """Memory of the one device that this process sees."""

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(CUDA_LIBRARY)
        except OSError as error:
            raise NotPossible(f"CUDA's driver library cannot be loaded: {printable(error)}") from error
        context = ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(0))
        self._call("cuCtxSetCurrent", context)
        self._held: list[int] = []

    def take(self, size_bytes: int) -> bool:
        """Whether there was that much."""
        pointer = ctypes.c_uint64()
        if self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes)) != 0:
            return False
        self._held.append(pointer.value)
        return True

    def give_back(self) -> bool:
        """The last that was taken; ``False`` where there is none."""
        if not self._held:
            return False
        self._call("cuMemFree_v2", ctypes.c_uint64(self._held.pop()))
        return True

    def _call(self, name: str, *arguments: Any) -> None:
        error = getattr(self._cuda, name)(*arguments)
        if error:
            word = ctypes.c_char_p()
            self._cuda.cuGetErrorName(ctypes.c_int(error), ctypes.byref(word))
            raise NotPossible(f"CUDA refuses {name}: {(word.value or b'unknown').decode('ascii', 'replace')}")


class Ballast:
    """Takes and gives back until between ``wanted_bytes`` and one granule more are left."""

    def __init__(self, card: CardMemory, wanted_bytes: int) -> None:
        self._card = card
        self._wanted_bytes = wanted_bytes
        self._first_bytes = card.free_bytes()
        if self._first_bytes < wanted_bytes:
            raise NotPossible(
                f"only {self._first_bytes} bytes ({gib(self._first_bytes)}) are free, and {wanted_bytes} are to be left"
            )
        self._deadline_s = time.monotonic() + LEVEL_TIMEOUT_S
        self._granule_bytes = SMALLEST_STEP_BYTES
        self._largest_bytes = LARGEST_STEP_BYTES
        self._last_fall_bytes = 0
        self._cuda: CudaMemory | None = None

    def hold(self) -> Held:
        if self._first_bytes - self._wanted_bytes >= SMALLEST_STEP_BYTES:
            # Already a context takes hundreds of MiB: where nothing is too many, none is made.
            self._level()
        while True:
            time.sleep(SETTLED_S)
            left_bytes = self._card.free_bytes()
            if 0 <= left_bytes - self._wanted_bytes < self._granule_bytes:
                return Held(left_bytes, self._granule_bytes, self._first_bytes - left_bytes)
            self._level()

    def _level(self) -> None:
        self._cuda = self._cuda or CudaMemory()
        while (gap_bytes := self._gap_bytes()) >= self._granule_bytes or gap_bytes < 0:
            if time.monotonic() > self._deadline_s:
                raise NotPossible(
                    f"{gap_bytes + self._wanted_bytes} bytes are left instead of {self._wanted_bytes}, and that does "
                    f"not settle within {LEVEL_TIMEOUT_S:g} s, as where somebody else takes and frees memory"
                )
            if gap_bytes > 0:
                self._take_most_of(gap_bytes, self._cuda)
            elif not self._cuda.give_back():
                raise NotPossible(
                    f"holding anything at all takes {self._first_bytes - gap_bytes - self._wanted_bytes} bytes, "
                    f"more than the {self._first_bytes - self._wanted_bytes} that are too many"
                )

    def _take_most_of(self, gap_bytes: int, cuda: CudaMemory) -> None:
        """As much as there is in one piece; nothing where somebody else was faster."""
        size_bytes = min(gap_bytes, self._largest_bytes) // SMALLEST_STEP_BYTES * SMALLEST_STEP_BYTES
        while size_bytes and not cuda.take(size_bytes):
            size_bytes = size_bytes // 2 // SMALLEST_STEP_BYTES * SMALLEST_STEP_BYTES
        if not size_bytes:
            time.sleep(PAUSE_S)
            return
        fall_bytes = gap_bytes - self._gap_bytes()
        if fall_bytes <= 0 and size_bytes >= SURELY_SEEN_BYTES:
            raise NotPossible("what is taken on the card does not show in NVML's figure")
        if fall_bytes > gap_bytes:
            self._took_too_much(size_bytes, fall_bytes)

    def _took_too_much(self, size_bytes: int, fall_bytes: int) -> None:
        """The driver rounds up: go on in smaller steps. What the smallest one takes, seen twice, is the granule."""
        self._largest_bytes = max(SMALLEST_STEP_BYTES, size_bytes // 2)
        if size_bytes == SMALLEST_STEP_BYTES:
            if fall_bytes == self._last_fall_bytes:
                self._granule_bytes = fall_bytes
            self._last_fall_bytes = fall_bytes

    def _gap_bytes(self) -> int:
        return self._card.free_bytes() - self._wanted_bytes


def main() -> int:
    # Who started this may be gone already; then the signal would never come.
    starter = os.getppid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != starter or starter == 1:
        return 1
    try:
        answer: dict[str, Any] = asdict(Ballast(CardMemory(sys.argv[1]), int(sys.argv[2])).hold())
    except NotPossible as why:
        answer = {"why": str(why)}
    os.write(1, json.dumps(answer).encode() + b"\n")
    os.read(0, 1)  # nothing is ever written to it: it returns when the starter closes it
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
