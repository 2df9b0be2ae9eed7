"""Stands between the tool and the engine it started, so that the engine never outlives the tool.

Run as a script: ``python -I -S guard.py [--cgroup FOLDER] GRACE_SECONDS COMMAND…``. The command runs in a
process group of its own, with a temporary folder of its own, inside the cgroup where one is given. On stdout
stand two lines: the number of its first process, which is the group's too, and, once that has ended, its
status (negative: the signal). Its own output goes to stderr.

When stdin ends (the starter closed it, or died in whatever way), or the starter is no longer the parent, the
command is told to end, and what it leaves of processes, shared memory and files is removed. Standard library only.
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
from collections.abc import Callable, Iterable, Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_INTERVAL_S = 0.05
KILL_TIMEOUT_S = 10.0
SHARED_MEMORY = "/dev/shm"
DYING_S = 0.3
FOLDER_BYTES = 107 - len("/zenit_4194304_abcdefgh/01234567-89ab-cdef-0123-456789abcdef")
"""For the folder above the engine's own; a socket of vLLM is called by a UUID."""
TRIES = 3
"""Looks at a new shared memory file before it counts as a stranger's: who makes one has it open at once."""
CANNOT_START = 127
"""The guard's own status where the command was never started; the status of a shell for it."""


def main() -> int:
    words = sys.argv[1:]
    cgroup = words[1] if words[0] == "--cgroup" else None
    grace, *command = words[2:] if cgroup else words
    grace_s = float(grace)
    starter = os.getppid()
    # Descendants whose parent ends become children of this process, where they can be found and ended.
    process_control(PR_SET_CHILD_SUBREAPER, 1)
    signalled: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: signalled.append(number))
    prefix, folder = scratch_prefix(os.getpid()), temporary_folder()
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as scratch:
        shared = SharedMemory()
        leader = start(command, scratch, cgroup)
        if leader is None:
            return CANNOT_START
        try:
            say(leader.pid)
            while leader.poll() is None and not signalled and os.getppid() == starter:
                shared.look()
                if select.select([sys.stdin.fileno()], [], [], POLL_INTERVAL_S)[0]:
                    break  # nothing is ever written to it: readable means ended
            end_leader(leader, grace_s, shared.look)
            say(leader.returncode)
        finally:
            end_descendants(grace_s / 4)
            shared.remove()
            if cgroup and is_gone(starter):
                with contextlib.suppress(OSError):
                    os.rmdir(cgroup)  # nobody else will
    return leader.returncode if leader.returncode >= 0 else 128 - leader.returncode


def scratch_prefix(pid: int) -> str:
    """How the engine's folder is called, so that it can be found when the guard ``pid`` is killed."""
    return f"zenit_{pid}_"


def temporary_folder() -> str:
    """Where the engine's folder goes: its sockets lie in it, and the path of a socket has at most 107 bytes."""
    folder = tempfile.gettempdir()
    is_short = len(os.fsencode(folder)) <= FOLDER_BYTES
    return folder if is_short or not os.access("/tmp", os.W_OK) else "/tmp"


def is_gone(starter: int) -> bool:
    """Whether it is the parent no longer; a process that ends closes its files a moment before that."""
    deadline = time.monotonic() + DYING_S
    while os.getppid() == starter and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_S)
    return os.getppid() != starter


def start(command: list[str], scratch: str, cgroup: str | None) -> subprocess.Popen[bytes] | None:
    """The command; ``None``, and one line on stderr, where it cannot be started."""
    guard = os.getpid()

    def before() -> None:
        # The last help: a guard that is killed can end nothing any more.
        process_control(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != guard:
            raise ProcessLookupError("the guard is gone")
        if cgroup is not None:
            try:
                with open(os.path.join(cgroup, "cgroup.procs"), "w") as members:
                    members.write("0")  # whoever writes it
            except OSError as error:
                complain(f"the engine cannot join the cgroup {cgroup}: {error.strerror}")
                raise

    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={**os.environ, "TMPDIR": scratch},
            start_new_session=True,
            preexec_fn=before,
        )
    except (OSError, subprocess.SubprocessError) as error:
        complain(f"{command[0]} cannot be started: {getattr(error, 'strerror', None) or error}")
        return None


def process_control(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def say(number: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more
        os.write(sys.stdout.fileno(), f"{number}\n".encode())


def complain(sentence: str) -> None:
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"zenit-hub: {sentence}\n".encode(errors="replace"))


def end_leader(leader: subprocess.Popen[bytes], grace_s: float, look: Callable[[], None]) -> None:
    """SIGTERM to the leader alone: it ends its own children in order. ``look``: before anything dies."""
    look()
    if leader.poll() is None:
        leader.terminate()
    try:
        leader.wait(grace_s)
    except subprocess.TimeoutExpired:
        look()
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
    own = os.getpid()
    for child in [pid for pid, parent in parents().items() if parent == own]:
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


def parents() -> dict[int, int]:
    """Every process that can be seen, with its parent."""
    found = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with (
            contextlib.suppress(OSError, ValueError, IndexError),  # ended meanwhile
            open(f"/proc/{name}/stat", "rb") as status,
        ):
            # The name in parentheses may hold anything; the parent is the second field after it.
            found[int(name)] = int(status.read().rpartition(b")")[2].split()[1])
    return found


def descendants() -> Iterator[int]:
    known = parents()
    generation = {os.getpid()}
    while generation:
        generation = {pid for pid, parent in known.items() if parent in generation}
        yield from generation


class SharedMemory:
    """The shared memory files that the engine makes; what it leaves of them is removed in the end.

    vLLM's own way out leaves some (those of a tensor-parallel group on the CPU), the kernel's OOM killer all.
    A file is the engine's when it came after the start and one of its processes has it mapped or open.
    """

    def __init__(self) -> None:
        self._others = files_of(SHARED_MEMORY)
        self._engines: set[tuple[str, int]] = set()
        self._looks: dict[tuple[str, int], int] = {}

    def look(self) -> None:
        """Find out whose the new files are. Without a new one it costs one reading of a folder."""
        new = files_of(SHARED_MEMORY) - self._others - self._engines
        if not new:
            return
        used = shared_files_used_by(descendants())
        for file in new:
            self._looks[file] = self._looks.get(file, 0) + 1
            if file[1] in used:
                self._engines.add(file)
            elif self._looks[file] == TRIES:
                self._others.add(file)

    def remove(self) -> None:
        """Remove what is left of the engine's and used by nobody else."""
        left = files_of(SHARED_MEMORY) & self._engines
        used = shared_files_used_by(parents()) if left else set()
        for name, inode in left:
            if inode not in used:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(SHARED_MEMORY, name))


def files_of(folder: str) -> set[tuple[str, int]]:
    """Name and inode of each entry: a name alone may come again."""
    try:
        with os.scandir(folder) as entries:
            return {(entry.name, entry.inode()) for entry in entries}
    except OSError:
        return set()


def shared_files_used_by(pids: Iterable[int]) -> set[int]:
    """The inodes in shared memory that these processes have mapped or open."""
    used: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # ended meanwhile, or another user's
            used |= mapped(pid)
            used |= opened(pid)
    return used


def mapped(pid: int) -> set[int]:
    with open(f"/proc/{pid}/maps", "rb") as maps:
        # By inode: a semaphore is mapped under the name that it had before its own.
        return {int(line.split(None, 5)[4]) for line in maps if f" {SHARED_MEMORY}/".encode() in line}


def opened(pid: int) -> set[int]:
    found = set()
    for number in os.listdir(f"/proc/{pid}/fd"):
        link = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{SHARED_MEMORY}/"):
                found.add(os.stat(link).st_ino)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
