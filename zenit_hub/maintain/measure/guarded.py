"""A command behind the guard: its first process, its status, and the end of all that it left."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from zenit_hub.maintain.measure import guard

SPARE_S = 5.0
"""What the guard gets beyond all its own deadlines before it is taken for lost."""

START_TIMEOUT_S = 30.0


class Guarded:
    """``command`` in a process group of its own; when this process dies, in whatever way, it ends too.

    ``pid``: its first process. ``log`` gets all that it writes, and one line where it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        grace_s: float,
        cgroup: Path | None = None,
    ) -> None:
        self.pid = 0
        self._words = [
            *(sys.executable, "-I", "-S", guard.__file__),
            *(("--cgroup", str(cgroup)) if cgroup else ()),
            *(str(grace_s), *command),
        ]
        self._environment = environment
        self._log = log
        self._patience_s = 1.25 * grace_s + 2 * guard.KILL_TIMEOUT_S + SPARE_S
        self._guard: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._shared_before: set[tuple[str, int]] = set()
        self._ended = False

    def start(self) -> bool:
        """Whether it runs. ``OSError`` where the log cannot be written."""
        self._shared_before = guard.files_of(guard.SHARED_MEMORY)
        with self._log.open("wb") as log:
            self._guard = subprocess.Popen(
                self._words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the engine
            )
        while not self._lines and not self._ended:
            if not self._listen(START_TIMEOUT_S):
                return False
        self.pid = int(self._lines[0]) if self._lines else 0
        return self.pid > 0

    @property
    def status(self) -> int | None:
        """Of the first process, as ``Popen.returncode``; ``None``: it runs, or nobody knows."""
        return int(self._lines[1]) if len(self._lines) > 1 else None

    def has_ended(self, within_s: float = 0.0) -> bool:
        """Whether the first process has ended, or the guard, which is as good; waits at most ``within_s``."""
        if self._guard is not None and self.status is None and not self._ended:
            self._listen(within_s)
        return self._guard is None or self._ended or self.status is not None

    def end(self) -> None:
        """End it and wait until nothing is left. Harmless when it has ended, or never began."""
        running = self._guard
        if running is None or running.stdin is None or running.stdout is None:
            return
        with contextlib.suppress(BrokenPipeError):
            running.stdin.close()  # the guard's sign
        try:
            self._wait_for(running)
        except BaseException:
            # A second Ctrl-C must not leave an engine behind; the third may.
            self._wait_for(running)
            raise
        while self._listen(0):
            pass
        running.stdout.close()
        self._guard = None

    def _wait_for(self, running: subprocess.Popen[bytes]) -> None:
        try:
            running.wait(self._patience_s)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        if running.returncode < 0:  # it was killed: what it guarded is still there
            self._end_unguarded(running.pid)

    def _end_unguarded(self, guard_pid: int) -> None:
        """The guard's last acts in its place, as far as they can be done from here."""
        group = [pid for pid in guard.parents() if self.pid and _lives_in(self.pid, pid)]
        shared = guard.files_of(guard.SHARED_MEMORY) - self._shared_before
        used = guard.shared_files_used_by(group)
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        until_s = time.monotonic() + guard.KILL_TIMEOUT_S
        while any(_lives_in(self.pid, pid) for pid in group) and time.monotonic() < until_s:
            time.sleep(guard.POLL_INTERVAL_S)
        still_used = guard.shared_files_used_by(guard.parents())
        for name, inode in shared:
            if inode in used - still_used:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(guard.SHARED_MEMORY, name))
        for folder in Path(guard.temporary_folder()).glob(f"{guard.scratch_prefix(guard_pid)}*"):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _lines(self) -> list[bytes]:
        return self._said.split(b"\n")[:-1]

    def _listen(self, timeout_s: float) -> bool:
        """Take what the guard says within that time; whether it said anything. Notes when it says no more."""
        if self._guard is None or self._guard.stdout is None or self._ended:
            return False
        stdout = self._guard.stdout.fileno()
        if not select.select([stdout], [], [], timeout_s)[0]:
            return False
        heard = os.read(stdout, 4096)
        self._said += heard
        self._ended = not heard
        return bool(heard)


def _lives_in(group: int, pid: int) -> bool:
    """Whether that process is of that group and has not ended, asked for its status or not."""
    try:
        # The name in parentheses may hold anything.
        state, _, found, *_ = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    return int(found) == group and state not in b"ZX"
