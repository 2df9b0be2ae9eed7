"""A launch confined to so many bytes of the host: for real with this machine's cgroups, else in a fake root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.cgroup import PREFIX, CgroupConfiner, NoCgroup, Parent, find_parent
from zenit_hub.maintain.measure.confine import confiner
from zenit_hub.maintain.measure.launch import kernel_kills

MIB = 2**20
ALLOCATE = """
import os, sys
open(os.path.join(sys.argv[1], "cgroup.procs"), "w").write("0")
held = bytearray(int(sys.argv[2]))
held[::4096] = b"x" * len(range(0, len(held), 4096))
print("held", flush=True)
if "wait" in sys.argv: sys.stdin.read()
"""
TOOL = """
import sys
from zenit_hub.maintain.measure.confine import confiner
from zenit_hub.maintain.measure.launch import kernel_kills
with confiner("cpu", ()).hold(64 * 2**20) as group:
    print(group, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def here() -> CgroupConfiner:
    """This machine's own; where it has none that this user may write, the reason stands in the test's report."""
    found = confiner("cpu", ())
    if isinstance(found, str):
        assert not os.access("/sys/fs/cgroup/memory", os.W_OK), found
        pytest.skip(found)
    assert isinstance(found, CgroupConfiner)
    return found


def allocated(group: Path, size_bytes: int) -> int:
    """How a program of the group ended that holds so much."""
    command = [sys.executable, "-S", "-c", ALLOCATE, str(group), str(size_bytes)]
    return subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


def until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return condition()


# --- for real


def test_who_needs_less_runs_and_who_needs_more_is_killed(here: CgroupConfiner) -> None:
    """By the kernel, which counts it; afterwards the group is gone."""
    with here.hold(96 * MIB) as group:
        assert here.method == "cgroup"
        assert allocated(group, 80 * MIB) == 0
        assert kernel_kills(group) == 0
        assert allocated(group, 100 * MIB) == -signal.SIGKILL
        assert kernel_kills(group) == 1
    assert not group.exists()


def test_processes_of_a_group_share_its_limit(here: CgroupConfiner) -> None:
    """Two that would each fit do not fit together; shared memory counts too."""
    with here.hold(96 * MIB) as group:
        command = [sys.executable, "-S", "-c", ALLOCATE, str(group), str(60 * MIB), "wait"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
            assert first.stdout is not None
            assert first.stdout.readline() == b"held\n"
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as second:
                assert second.stdout is not None
                second.stdout.readline()
                assert until(lambda: -signal.SIGKILL in (first.poll(), second.poll()))


def test_what_is_left_in_the_group_is_ended_with_it(here: CgroupConfiner) -> None:
    """Also when what runs inside fails."""

    def fail() -> None:
        with here.hold(64 * MIB) as group:
            command = [sys.executable, "-S", "-c", ALLOCATE, str(group), str(MIB), "wait"]
            left.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert left[0].stdout is not None
            left[0].stdout.readline()
            groups.append(group)
            raise KeyboardInterrupt

    left: list[subprocess.Popen[bytes]] = []
    groups: list[Path] = []
    with pytest.raises(KeyboardInterrupt):
        fail()
    assert left[0].poll() == -signal.SIGKILL
    left[0].communicate()
    assert not groups[0].exists()


def test_groups_of_a_killed_tool_go_with_the_next_run(here: CgroupConfiner) -> None:
    """Once they are empty; those of a tool that lives stay."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen([sys.executable, "-c", TOOL], text=True, **pipes) as living,
        subprocess.Popen([sys.executable, "-c", TOOL], text=True, **pipes) as killed,
    ):
        assert living.stdout is not None
        assert killed.stdout is not None
        kept, left = Path(living.stdout.readline().strip()), Path(killed.stdout.readline().strip())
        assert kept.name.startswith(f"{PREFIX}{living.pid}-")
        command = [sys.executable, "-S", "-c", ALLOCATE, str(left), str(MIB), "wait"]
        engine = subprocess.Popen(command, **pipes)
        assert engine.stdout is not None
        engine.stdout.readline()
        killed.kill()
        killed.wait()
        with here.hold(64 * MIB):
            assert left.exists()
        engine.communicate()
        with here.hold(64 * MIB):
            assert not left.exists()
            assert kept.exists()
        living.communicate()
        assert not kept.exists()


def test_more_than_the_host_has_is_refused(here: CgroupConfiner) -> None:
    """A limit above what there is confines nothing."""
    with pytest.raises(MeasurementError, match="less memory available"), here.hold(2**50):
        pass


# --- in a fake root


def fake(folder: Path, mount: str, own: str, files: dict[str, str]) -> Path:
    written = {"proc/self/mountinfo": mount, "proc/self/cgroup": own, **files}
    for name, text in {
        **written,
        f"proc/{os.getpid()}/stat": f"1 (a) b) R {' '.join('123456789')} " * 3,
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


V2 = "41 31 0:38 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw\n"
V1 = "35 31 0:32 {root} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
BASE = "sys/fs/cgroup"
USER = f"{BASE}/user.slice/app.slice"


def delegated(folder: Path, **files: str) -> Path:
    """A user's session: its group has processes and hands nothing down, the one above is the user's and does."""
    group = {
        f"{BASE}/cgroup.controllers": "cpu memory pids\n",
        f"{BASE}/cgroup.subtree_control": "memory\n",
        f"{USER}/cgroup.subtree_control": "cpu memory\n",
        f"{USER}/cgroup.procs": "",
        f"{USER}/run.scope/cgroup.subtree_control": "",
    }
    return fake(folder, V2, "0::/user.slice/app.slice/run.scope\n", {**group, **files})


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fake root a group's files are real, and the kernel does not remove them with their folder."""
    monkeypatch.setattr(Path, "rmdir", shutil.rmtree)


@pytest.mark.usefixtures("removed")
def test_version_2_takes_the_nearest_group_that_hands_memory_down(tmp_path: Path) -> None:
    """Not its own, which has processes in it; limited are memory and swap."""
    parent = find_parent(delegated(tmp_path))
    assert parent == Parent(tmp_path / USER, 2, tmp_path)
    assert [path.name for path in parent.folder.iterdir() if path.name.startswith(PREFIX)] == []
    with CgroupConfiner(parent, remove=shutil.rmtree).hold(64 * MIB) as group:
        assert group.parent == parent.folder
        assert (group / "memory.max").read_text() == str(64 * MIB)
        assert (group / "memory.swap.max").read_text() == "0"
    assert not group.exists()


@pytest.mark.usefixtures("removed")
def test_version_2_knows_what_the_groups_above_leave(tmp_path: Path) -> None:
    """The smallest of all limits less what is used, files not counted as used; and the whole system."""
    limits = {
        f"{USER}/memory.max": f"{100 * MIB}",
        f"{USER}/memory.current": f"{60 * MIB}",
        f"{USER}/memory.stat": f"anon 1\nactive_file {5 * MIB}\ninactive_file {5 * MIB}\n",
        f"{BASE}/user.slice/memory.max": "max",
        f"{BASE}/user.slice/memory.current": f"{60 * MIB}",
    }
    held = CgroupConfiner(find_parent(delegated(tmp_path, **limits)), remove=shutil.rmtree)
    with held.hold(50 * MIB):
        pass
    with pytest.raises(MeasurementError, match=r"got 0\.05 GiB"), held.hold(51 * MIB):
        pass
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 8 kB\n")
    with pytest.raises(MeasurementError, match=r"got 0\.00 GiB"), held.hold(9 * 1024):
        pass


@pytest.mark.usefixtures("removed")
@pytest.mark.parametrize(
    "own", ["7:memory:/docker/abc/job\n", "7:memory:/elsewhere\n", "7:cpu,memory:/docker/abc\n"]
)
def test_version_1_falls_back_to_the_mount(tmp_path: Path, own: str) -> None:
    """Its own group where that is below what is mounted, else the mount's own; with no swap file, no swapping."""
    root = fake(tmp_path, V1.format(root="/docker/abc"), own, {f"{BASE}/memory/job/cgroup.procs": ""})
    parent = find_parent(root)
    assert parent == Parent(root / BASE / "memory" / ("job" if "job" in own else ""), 1, root)
    with CgroupConfiner(parent, remove=shutil.rmtree).hold(64 * MIB) as group:
        assert (group / "memory.limit_in_bytes").read_text() == str(64 * MIB)
        assert (group / "memory.swappiness").read_text() == "0"


def test_a_machine_without_a_group_says_why(tmp_path: Path) -> None:
    """One sentence each: nothing mounted, nothing handed down, nothing allowed, nothing known."""
    assert "none mounted" in str(confiner("cpu", (), fake(tmp_path / "none", "", "", {})))
    kept = fake(tmp_path / "kept", V2, "0::/\n", {f"{BASE}/cgroup.controllers": "memory"})
    assert "systemd-run --scope" in str(confiner("cpu", (), kept))
    assert "rocm" in str(confiner("rocm", ()))
    read_only = fake(tmp_path / "read", V1.format(root="/"), "1:memory:/\n", {f"{BASE}/memory": ""})
    with pytest.raises(NoCgroup, match=r"by this user \(Not a directory\)"):
        find_parent(read_only)


def test_a_stranger_in_an_outer_namespace_is_not_killed(here: CgroupConfiner, tmp_path: Path) -> None:
    """The kernel shows it as pid 0, which to ``kill`` means the caller's own group."""
    group = tmp_path / f"{PREFIX}1-gone-launch"
    group.mkdir()
    (group / "cgroup.procs").write_text("0\n")
    CgroupConfiner(Parent(tmp_path, 1), remove=shutil.rmtree)._end(group)
    assert not group.exists()
