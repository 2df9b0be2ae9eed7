"""A process that holds memory: the host fills up for real, whenever a test wants it to.

with Ballast(6 * 2**30): ...
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

_HOLD = """
import ctypes, sys
# Dies with its parent, also when that one is killed: PR_SET_PDEATHSIG, SIGKILL.
ctypes.CDLL(None).prctl(1, 9)
held = bytearray(int(sys.argv[1]))
held[::4096] = b"x" * len(range(0, len(held), 4096))
print("held", flush=True)
sys.stdin.read()
"""


class Ballast:
    """Holds ``size_bytes`` of touched memory inside the ``with``."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Ballast:
        command = [sys.executable, "-c", _HOLD, str(self._size_bytes)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._process.stdout is None or self._process.stdout.readline() != "held\n":
            self.release()
            raise MemoryError(f"no {self._size_bytes} bytes to be had")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None
