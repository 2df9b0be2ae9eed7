"""The host made small: a child of this process's memory cgroup with a limit, in both versions of cgroups.

Where the group of this process may have limited children, one is made there. The second version forbids that
for a group with processes in it; then the nearest group above that hands its memory controller down is taken,
where this user may write. Outer limits go on to hold either way.

A group's name carries the pid of its tool and when that started: what a killed tool leaves is told from what a
living one uses, also when the pid is another's by now.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from zenit_hub.errors import MeasurementError
from zenit_hub.host import read_system
from zenit_hub.text import gib

PREFIX = "zenit-hub-measure-"
REMOVAL_TIMEOUT_S = 10.0
"""How long a group may keep its last processes, which the kernel is taking down."""

_POLL_INTERVAL_S = 0.02
_NAMES_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
"""The first version's files and what its ``memory.stat`` puts before sums over child groups."""

_START_FIELD = 19
"""When a process started, in ticks since boot: the field of ``/proc/PID/stat``, counted after the name."""


class NoCgroup(Exception):
    """Why no limited group can be made here, in one sentence."""


@dataclass(frozen=True, slots=True)
class Parent:
    """A group below which limited ones can be made. ``version``: of cgroups."""

    folder: Path
    version: Literal[1, 2]
    root: Path = Path("/")


@dataclass(frozen=True, slots=True)
class _Mount:
    version: Literal[1, 2]
    group: str
    """The group that is seen at ``folder``: ``/`` unless a part of the tree is mounted, as in a container."""
    folder: Path


def find_parent(root: Path = Path("/")) -> Parent:
    """Where a limited group can be made; tried by making one. Raises :class:`NoCgroup`."""
    whys = []
    for mount in _mounts(root):
        own = _own_folder(mount, root)
        for folder in (own,) if mount.version == 1 else _levels(own, mount.folder):
            parent = Parent(folder, mount.version, root)
            why = _why_not(parent)
            if why is None:
                return parent
            whys.append(why)
    raise NoCgroup(
        whys[0] if whys else "there is no memory cgroup here: this kernel or container has none mounted"
    )


class CgroupConfiner:
    """Limits what joins the group, swap included."""

    method: Literal["cgroup"] = "cgroup"

    def __init__(self, parent: Parent, remove: Callable[[Path], None] = os.rmdir) -> None:
        """``remove``: how a group's folder goes away (the kernel removes the files in it)."""
        self._parent = parent
        self._remove = remove

    @contextlib.contextmanager
    def hold(self, free_bytes: int) -> Iterator[Path]:
        """A new group, limited to ``free_bytes`` (down to a page), for ``PID`` into its ``cgroup.procs``.

        What is in it at the end is killed: nothing but the launch ever joins. Raises :class:`MeasurementError`
        where the host has less than that to give.
        """
        available_bytes = _available(self._parent)
        if available_bytes is not None and available_bytes < free_bytes:
            raise MeasurementError(
                "the host has less memory available than the launch is to be given",
                got=gib(available_bytes),
                allowed=f"at least {gib(free_bytes)}",
                next_step="End what else uses memory here.",
            )
        self._sweep()
        group = self._parent.folder / f"{PREFIX}{_identity(os.getpid(), self._parent.root)}-launch"
        try:
            try:
                group.mkdir(exist_ok=True)
                _limit(group, self._parent.version, free_bytes)
            except OSError as error:
                raise MeasurementError(
                    f"the memory cgroup {group} cannot be limited ({error.strerror})"
                ) from error
            yield group
        finally:
            self._end(group)

    def _sweep(self) -> None:
        """Remove the groups of tools that are gone, once nothing is in them any longer."""
        for group in self._parent.folder.glob(f"{PREFIX}*"):
            name = group.name.removeprefix(PREFIX)
            pid = name.partition("-")[0]
            if not pid.isdecimal() or not name.startswith(_identity(int(pid), self._parent.root) + "-"):
                with contextlib.suppress(OSError):
                    self._remove(group)

    def _end(self, group: Path) -> None:
        """Kill what is left in the group and remove it; a process that cannot die leaves it to the next run."""
        deadline = time.monotonic() + REMOVAL_TIMEOUT_S
        while group.exists():
            for pid in _members(group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                self._remove(group)
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(_POLL_INTERVAL_S)


def _limit(group: Path, version: int, size_bytes: int) -> None:
    """Memory and swap together; without swap accounting the group is told not to swap."""
    if version == 2:
        (group / "memory.max").write_text(str(size_bytes))
        with contextlib.suppress(OSError):  # a kernel without swap has no such file
            (group / "memory.swap.max").write_text("0")
        return
    limit, both = group / "memory.limit_in_bytes", group / "memory.memsw.limit_in_bytes"
    # Both together may never be below the first: a group that is there already is opened first.
    if both.exists():
        both.write_text("-1")
    limit.write_text(str(size_bytes))
    if both.exists():
        both.write_text(str(size_bytes))
    else:
        with contextlib.suppress(OSError):
            (group / "memory.swappiness").write_text("0")


def _available(parent: Parent) -> int | None:
    """What the system and every limited group from ``parent`` up have left; files that it can drop count."""
    system = read_system(parent.root)
    found = [] if system is None else [system.available_bytes]
    names = ("memory.max", "memory.current", "") if parent.version == 2 else _NAMES_1
    for folder in (parent.folder, *parent.folder.parents):
        limit, used = _words(folder / names[0]), _words(folder / names[1])
        if limit and used and limit[0].isdecimal():
            pages = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat") if " " in line)
            files = sum(int(pages.get(f"{names[2]}{kind}_file", 0)) for kind in ("active", "inactive"))
            found.append(max(0, int(limit[0]) - int(used[0]) + files))
    return min(found, default=None)


def _why_not(parent: Parent) -> str | None:
    """Why no limited group can be made below; ``None`` where one was, and is gone again."""
    if parent.version == 2 and "memory" not in _words(parent.folder / "cgroup.subtree_control"):
        return (
            f"the cgroup {parent.folder} does not hand its memory controller down: "
            "start the tool with `systemd-run --scope` (as a user: `systemd-run --user --scope`)"
        )
    trial = parent.folder / f"{PREFIX}{_identity(os.getpid(), parent.root)}-trial"
    try:
        trial.mkdir()
        try:
            _limit(trial, parent.version, 2**30)
            if parent.version == 2 and not os.access(parent.folder / "cgroup.procs", os.W_OK):
                return f"processes may not be moved below the cgroup {parent.folder} by this user"
        finally:
            trial.rmdir()
    except OSError as error:
        return f"no memory cgroup can be made below {parent.folder} by this user ({error.strerror})"
    return None


def _levels(own: Path, top: Path) -> Iterator[Path]:
    """``own`` and the groups above it, up to where the tree is mounted."""
    yield own
    while own != top and top in own.parents:
        own = own.parent
        yield own


def _mounts(root: Path) -> list[_Mount]:
    """Where memory cgroups are mounted, the second version first; with ``root`` before each folder."""
    found = []
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        words, kinds = before.split(), after.split()
        if len(words) < 5 or len(kinds) < 3:
            continue
        # Blanks in a path are written as octal numbers; a cgroup's mount point has none in practice.
        folder = root / words[4].lstrip("/")
        if kinds[0] == "cgroup2" and "memory" in _words(folder / "cgroup.controllers"):
            found.append(_Mount(2, words[3], folder))
        if kinds[0] == "cgroup" and "memory" in kinds[2].split(","):
            found.append(_Mount(1, words[3], folder))
    return sorted(found, key=lambda mount: -mount.version)


def _own_folder(mount: _Mount, root: Path) -> Path:
    """The folder of this process's group; where that is not below the mount, the mount's own."""
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        wanted = not controllers if mount.version == 2 else "memory" in controllers.split(",")
        if wanted:
            below = os.path.relpath(group, mount.group)
            folder = mount.folder / below
            if not below.startswith("..") and folder.is_dir():
                return folder
    return mount.folder


def _identity(pid: int, root: Path) -> str:
    """``PID-START``; ``PID-gone`` where there is no such process."""
    with contextlib.suppress(OSError, IndexError):
        # The name in parentheses may hold anything.
        fields = (root / f"proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{pid}-{fields[_START_FIELD]}"
    return f"{pid}-gone"


def _members(group: Path) -> list[int]:
    """The kernel says 0 for a process of an outer PID namespace, and to ``kill`` that is our own group."""
    return [int(line) for line in _lines(group / "cgroup.procs") if line.isdecimal() and int(line) > 0]


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
