"""The host's memory: of the whole system for integrated GPUs, of its NUMA node for the CPU platform."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from zenit_hub.machine import Host

_CGROUP_UNLIMITED_BYTES = 1 << 62
"""The first cgroup version says a number near 2⁶³ where nothing is limited."""

_MAX_NODES = 1024

_NODE_AVAILABLE = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
"""A NUMA node has no MemAvailable; vLLM's CPU worker adds these (read in ``cpu_resource_utils`` of 0.32)."""


def read_system(root: Path = Path("/")) -> Host | None:
    """``MemTotal`` and ``MemAvailable`` of ``/proc/meminfo``, in bytes."""
    figures = _meminfo(root / "proc/meminfo", word=0)
    try:
        return Host(figures["MemTotal"], figures["MemAvailable"])
    except KeyError:
        return None


def read_host(root: Path = Path("/"), visible_nodes: str = "") -> Host | None:
    """What a worker of vLLM's CPU platform will see: its NUMA node, clamped by the cgroup's limit.

    ``visible_nodes`` is vLLM's ``CPU_VISIBLE_MEMORY_NODES``: the nodes that it may use, in its order.
    """
    node = _first_node(root, visible_nodes)
    figures = _meminfo(root / f"sys/devices/system/node/node{node}/meminfo", word=2)
    if "MemTotal" in figures:
        host: Host | None = Host(figures["MemTotal"], sum(figures.get(name, 0) for name in _NODE_AVAILABLE))
    else:
        host = read_system(root)
    return host and _clamped(host, root)


def _clamped(host: Host, root: Path) -> Host:
    limit_bytes, used_bytes = read_cgroup(root)
    if limit_bytes is None or limit_bytes >= host.total_bytes:
        return host
    return Host(limit_bytes, max(0, min(host.available_bytes, limit_bytes - used_bytes)))


def read_cgroup(root: Path = Path("/")) -> tuple[int | None, int]:
    """``(limit, used)`` in bytes of the memory controller, second version before the first; ``None``: no limit."""
    base = root / "sys/fs/cgroup"
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        limit_bytes = _number(base / limit)
        if limit_bytes is not None:
            return (None if limit_bytes >= _CGROUP_UNLIMITED_BYTES else limit_bytes), _number(
                base / used
            ) or 0
    return None, 0


def _first_node(root: Path, visible: str) -> int:
    """The first NUMA node that this process may allocate on; of those named in ``visible``, if any is."""
    try:
        status = (root / "proc/self/status").read_text()
        lists = [line for line in status.splitlines() if line.startswith("Mems_allowed_list:")]
        allowed = [node for line in lists for node in _nodes(line.partition(":")[2])]
        chosen = [node for node in _nodes(visible) if node in allowed]
    except (OSError, ValueError):
        return 0
    return next(iter(chosen or allowed), 0)


def _nodes(text: str) -> list[int]:
    """``0-2,4`` → 0, 1, 2, 4."""
    spans = [part.strip().partition("-") for part in text.split(",") if part.strip()]
    nodes = (node for first, _, last in spans for node in range(int(first), int(last or first) + 1))
    return list(islice(nodes, _MAX_NODES))


def _meminfo(path: Path, *, word: int) -> dict[str, int]:
    """``name: N kB`` lines as bytes; ``word`` is where the name stands."""
    figures = {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    for line in lines:
        words = line.split()
        if len(words) > word + 1 and words[word + 1].isdecimal():
            figures[words[word].rstrip(":")] = int(words[word + 1]) * 1024
    return figures


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
        return int(text) if text.isdecimal() else None
    except (OSError, ValueError):
        return None
