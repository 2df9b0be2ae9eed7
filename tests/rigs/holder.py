"""A process that takes memory when it is told to: for real, and of every kind that a host knows.

with Holder() as holder:
    holder.tell("hold", 64)                      # MiB
    holder.tell("map", str(path))
with Holder(stranger=True) as other: ...         # not among this process's descendants
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType

_OBEY = """
import ctypes, mmap, os, signal, subprocess, sys, threading, time

MIB = 1 << 20
held, shared, files, children, sleepers = [], [], [], [], []

def touched(size, flags):
    block = mmap.mmap(-1, size * MIB, flags=flags | mmap.MAP_ANONYMOUS)
    touch(block)
    return block

def touch(block):
    for place in range(0, len(block), mmap.PAGESIZE):
        block[place] = 1

def hold(size):
    held.append(touched(int(size), mmap.MAP_PRIVATE))

def release():
    held.pop().close()

def spike(size, milliseconds):
    hold(size)
    time.sleep(int(milliseconds) / 1000)
    release()

def share(size):
    shared.append(touched(int(size), mmap.MAP_SHARED))

def map_file(path):
    with open(path, "rb") as file:
        files.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    for place in range(0, len(files[-1]), mmap.PAGESIZE):
        files[-1][place]

def fork(changed):
    "A child with the same pages, of which it changes so many."
    ready, done = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        for block in shared:
            touch(block)
        for place in range(0, int(changed) * MIB, mmap.PAGESIZE):
            held[-1][place] = 2
        os.write(done, b".")
        signal.pause()
    children.append(pid)
    os.read(ready, 1)

def start(size):
    "A program of its own that holds so many."
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(1, 9); b = bytearray(int(sys.argv[1]) << 20);"
    code += "b[::4096] = bytes(len(b[::4096])); print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-S", "-c", code, size]
    program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    program.stdout.readline()
    children.append(program.pid)

def end():
    "The newest child."
    pid = children.pop()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def threads(number):
    for _ in range(int(number)):
        threading.Thread(target=signal.pause, daemon=True).start()

def sleep(number):
    "As many small programs."
    for _ in range(int(number)):
        sleepers.append(subprocess.Popen(["sleep", "120"]))

def newest():
    return children[-1]

ORDERS = dict(hold=hold, release=release, spike=spike, share=share, fork=fork, start=start, end=end)
ORDERS |= {"map": map_file, "threads": threads, "newest": newest, "sleep": sleep}
print(os.getpid(), flush=True)
for line in sys.stdin:
    name, *words = line.split()
    print(ORDERS[name](*words), flush=True)
for sleeper in sleepers:
    sleeper.kill()
    sleeper.wait()
"""

_LEAVE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], start_new_session=True)
"""


class Holder:
    """One such process, with its children, inside the ``with``. Ends with its standard input.

    ``stranger``: started by a process that has ended, so nobody descends from the test to it.
    """

    pid: int

    def __init__(self, *, stranger: bool = False) -> None:
        self._code = [_LEAVE, _OBEY] if stranger else [_OBEY]
        self._started: subprocess.Popen[str] | None = None

    def __enter__(self) -> Holder:
        self._started = subprocess.Popen(
            [sys.executable, "-S", "-c", *self._code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.pid = int(self._line())
        if len(self._code) > 1:
            self._process.wait()
        return self

    @property
    def _process(self) -> subprocess.Popen[str]:
        assert self._started is not None, "outside of its `with`"
        return self._started

    def tell(self, *words: object) -> str:
        """One order and its words; back when it is done, with what came of it."""
        print(*words, file=self._process.stdin, flush=True)
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that holds memory has ended")
        return line.strip()

    def leave(self) -> None:
        """End, and be gone: its end of the pipe closes with it."""
        if self._started is not None:
            self._started.communicate()
            self._started = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
