"""The host's memory from the kernel's files: NUMA node, cgroup, whole system."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from zenit_hub.host import read_host, read_system
from zenit_hub.machine import Host

GIB = 2**30
SYSTEM = {
    "proc/meminfo": "MemTotal: 25165824 kB\nMemFree: 1048576 kB\nMemAvailable: 20971520 kB\nHugePages_Total: 0\n"
}
"""24 GiB, of which 20 are available and 1 is free."""


def node(number: int, total_gib: int, **gib: int) -> dict[str, str]:
    """One NUMA node's file; names as in ``Active_file`` for ``Active(file)``."""
    figures = {"MemTotal": total_gib, **gib}
    lines = [
        f"Node {number} {name.replace('_file', '(file)')}: {size * 2**20} kB"
        for name, size in figures.items()
    ]
    return {
        f"sys/devices/system/node/node{number}/meminfo": "\n".join(
            [*lines, f"Node {number} HugePages_Free: 0", ""]
        )
    }


NODE_0 = node(0, 12, MemFree=2, MemUsed=10, Active_file=3, Inactive_file=1, SReclaimable=1)
"""12 GiB, of which vLLM counts 2 + 3 + 1 + 1 as available."""


def root(folder: Path, *files: Mapping[str, str]) -> Path:
    for name, text in {name: text for part in files for name, text in part.items()}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def v2(limit: object, used: object = None) -> dict[str, str]:
    return {"sys/fs/cgroup/memory.max": f"{limit}\n"} | (
        {} if used is None else {"sys/fs/cgroup/memory.current": f"{used}\n"}
    )


def v1(limit: object, used: object = None) -> dict[str, str]:
    base = "sys/fs/cgroup/memory"
    return {f"{base}/memory.limit_in_bytes": f"{limit}\n"} | (
        {} if used is None else {f"{base}/memory.usage_in_bytes": f"{used}\n"}
    )


def test_the_system_is_its_total_and_what_is_available(tmp_path: Path) -> None:
    """Page cache counts as available, not as used."""
    assert read_system(root(tmp_path, SYSTEM)) == Host(24 * GIB, 20 * GIB)


@pytest.mark.parametrize(
    "text",
    ["", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: 5 kB\n", "MemTotal:\nMemAvailable:\n", "\x00\n"],
)
def test_half_a_file_is_nothing(tmp_path: Path, text: str) -> None:
    """A figure that is missing is never another one."""
    assert read_system(root(tmp_path, {"proc/meminfo": text})) is None
    assert read_host(root(tmp_path, {"proc/meminfo": text})) is None


def test_nothing_is_nothing(tmp_path: Path) -> None:
    """No kernel files at all, as on another operating system."""
    assert read_system(tmp_path) is None
    assert read_host(tmp_path) is None


def test_bytes_that_are_no_text_are_nothing(tmp_path: Path) -> None:
    """Whatever is mounted there."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_bytes(b"\xff\xfe MemTotal: 5 kB")

    assert read_system(tmp_path) is None


def test_the_worker_sees_its_numa_node(tmp_path: Path) -> None:
    """Free, file cache and reclaimable, as vLLM's worker adds them."""
    assert read_host(root(tmp_path, SYSTEM, NODE_0)) == Host(12 * GIB, 7 * GIB)


def test_without_numa_the_worker_sees_the_system(tmp_path: Path) -> None:
    """Many boards have no node files."""
    assert read_host(root(tmp_path, SYSTEM)) == Host(24 * GIB, 20 * GIB)


@pytest.mark.parametrize(
    ("allowed", "total_gib"),
    [("0", 12), ("1", 8), ("1-3", 8), ("0-1", 12), ("1,0", 8), ("", 12), ("x", 12), ("7", 24)],
)
def test_the_first_node_that_the_process_may_use(tmp_path: Path, allowed: str, total_gib: int) -> None:
    """A container may be bound to another one; one that is not there leaves the system."""
    status = {"proc/self/status": f"Name:\tx\nMems_allowed_list:\t{allowed}\nOther:\t1\n"}

    found = read_host(root(tmp_path, SYSTEM, NODE_0, node(1, 8, MemFree=4), status))

    assert found is not None
    assert found.total_bytes == total_gib * GIB


@pytest.mark.parametrize(
    ("visible", "total_gib"),
    [("", 12), ("1", 8), ("1,0", 8), ("0-1", 12), ("3", 12), ("x", 12), ("1-99999999", 8), (" 1 ,", 8)],
)
def test_of_the_nodes_that_vllm_may_use_the_first(tmp_path: Path, visible: str, total_gib: int) -> None:
    """``CPU_VISIBLE_MEMORY_NODES`` in its own order; what is not allowed, or no node, does not count."""
    status = {"proc/self/status": "Mems_allowed_list:\t0-1\n"}

    found = read_host(root(tmp_path, SYSTEM, NODE_0, node(1, 8, MemFree=4), status), visible)

    assert found is not None
    assert found.total_bytes == total_gib * GIB


@pytest.mark.parametrize("cgroup", [v2, v1])
@pytest.mark.parametrize(
    ("limit", "used", "host"),
    [
        (6 * GIB, GIB, Host(6 * GIB, 5 * GIB)),
        (6 * GIB, 0, Host(6 * GIB, 6 * GIB)),
        (11 * GIB, GIB, Host(11 * GIB, 7 * GIB)),
        (6 * GIB, 7 * GIB, Host(6 * GIB, 0)),
        (6 * GIB, None, Host(6 * GIB, 6 * GIB)),
        (6 * GIB, "x", Host(6 * GIB, 6 * GIB)),
        (12 * GIB, 11 * GIB, Host(12 * GIB, 7 * GIB)),
        (20 * GIB, 19 * GIB, Host(12 * GIB, 7 * GIB)),
        (9223372036854771712, GIB, Host(12 * GIB, 7 * GIB)),
        ("max", GIB, Host(12 * GIB, 7 * GIB)),
        ("", GIB, Host(12 * GIB, 7 * GIB)),
        ("-1", GIB, Host(12 * GIB, 7 * GIB)),
    ],
)
def test_a_cgroups_limit_clamps_the_node(
    tmp_path: Path, cgroup: object, limit: object, used: object, host: Host
) -> None:
    """Both versions; no limit, and one that is not below the node, change nothing."""
    assert callable(cgroup)
    assert read_host(root(tmp_path, SYSTEM, NODE_0, cgroup(limit, used))) == host


def test_the_second_version_counts_before_the_first(tmp_path: Path) -> None:
    """Where both are mounted, an unlimited second leaves the first its say, as in vLLM."""
    both = root(tmp_path, NODE_0, v2(6 * GIB, 0), v1(5 * GIB, 0))
    assert read_host(both) == Host(6 * GIB, 6 * GIB)

    unlimited = root(tmp_path, NODE_0, v2("max", 0), v1(5 * GIB, 0))
    assert read_host(unlimited) == Host(5 * GIB, 5 * GIB)


def test_a_limit_of_nothing_is_a_limit(tmp_path: Path) -> None:
    """Zero is not unknown."""
    assert read_host(root(tmp_path, NODE_0, v2(0, 0))) == Host(0, 0)


def test_an_integrated_gpu_is_not_clamped(tmp_path: Path) -> None:
    """Its memory is the system's, whatever the container's limit."""
    assert read_system(root(tmp_path, SYSTEM, v2(6 * GIB, 0))) == Host(24 * GIB, 20 * GIB)


def test_this_machine_has_figures() -> None:
    """The real files of the machine that runs the tests."""
    for host in (read_system(), read_host()):
        assert host is not None
        assert 0 < host.available_bytes <= host.total_bytes
