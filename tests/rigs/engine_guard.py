"""Stands between a test and the engine it started, so that the engine never outlives the test.

Run as a script: ``python engine_guard.py GRACE_SECONDS COMMAND…``. The command runs in a process group of
its own, whose number is the one line on stdout, and with a temporary folder of its own. When stdin ends
(the starter closed it, or died in whatever way), or the starter is no longer the parent, the command is
told to end, and what it leaves of processes and files is removed. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
POLL_INTERVAL_S = 0.05
KILL_TIMEOUT_S = 10.0


def main() -> int:
    grace_s, command = float(sys.argv[1]), sys.argv[2:]
    starter = os.getppid()
    # Descendants whose parent ends become children of this process, where they can be found and ended.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signalled: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signalled.append(number))
    # Short, because the engine's sockets lie in it and the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="zenit_engine_", ignore_cleanup_errors=True) as scratch:
        leader = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,
        )
        try:
            print(leader.pid, flush=True)
            while leader.poll() is None and not signalled and os.getppid() == starter:
                if select.select([sys.stdin.fileno()], [], [], POLL_INTERVAL_S)[0]:
                    break  # nothing is ever written to it: readable means ended
            end_leader(leader, grace_s)
        finally:
            end_descendants(grace_s / 4)
    return leader.returncode if leader.returncode >= 0 else 128 - leader.returncode


def end_leader(leader: subprocess.Popen[bytes], grace_s: float) -> None:
    """SIGTERM to the leader alone: it ends its own children in order."""
    if leader.poll() is None:
        leader.terminate()
    try:
        leader.wait(grace_s)
    except subprocess.TimeoutExpired:
        leader.kill()
        leader.wait(KILL_TIMEOUT_S)


def end_descendants(grace_s: float) -> None:
    """Ask what the leader left to end, then kill it, generation by generation, until nothing is left.

    Python's resource trackers do not listen to SIGTERM: they use the time to unlink shared memory.
    """
    signal_children(signal.SIGTERM)
    if not all_are_gone(grace_s):
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while time.monotonic() < deadline and not all_are_gone(POLL_INTERVAL_S):
            signal_children(signal.SIGKILL)


def signal_children(number: signal.Signals) -> None:
    for child in children():
        # None of them can have been replaced by a stranger: its pid is taken until this process reaps it.
        os.kill(child, number)


def all_are_gone(timeout_s: float) -> bool:
    """Reap what has ended; whether no child, hence no descendant, is left."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            reaped, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if time.monotonic() > deadline:
            return False
        if reaped == 0:
            time.sleep(0.01)


def children() -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # ended meanwhile
            # The name in parentheses may hold anything; the parent is the second field after it.
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                found.append(int(status.parent.name))
    return found


if __name__ == "__main__":
    raise SystemExit(main())
