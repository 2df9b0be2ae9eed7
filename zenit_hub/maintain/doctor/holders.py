"""Who holds the memory of the cards, as far as NVML tells; and the driver's version."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

from zenit_hub.device import nvml_module
from zenit_hub.maintain.doctor.facts import Holder
from zenit_hub.text import printable

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""``PROC_PID_INIT_INO`` of the kernel: the namespace that counts every process."""

_LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")


def ask_nvml() -> tuple[str | None, dict[int, tuple[Holder, ...]]]:
    """The driver's version, and of each card that tells of its processes those that hold memory, largest first."""
    nvml = nvml_module()
    if nvml is None:
        return None, {}
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None, {}
    try:
        version = _ask(nvml, nvml.nvmlSystemGetDriverVersion)
        count = _ask(nvml, nvml.nvmlDeviceGetCount) or 0
        cards = {index: _holders(nvml, index) for index in range(count)}
    finally:
        _ask(nvml, nvml.nvmlShutdown)
    driver = version.decode("utf-8", "replace") if isinstance(version, bytes) else version
    return driver, {index: holders for index, holders in cards.items() if holders is not None}


def _holders(nvml: ModuleType, index: int) -> tuple[Holder, ...] | None:
    handle = _ask(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
    if handle is None:
        return None
    lists = [_ask(nvml, getattr(nvml, name), handle) for name in _LISTS if hasattr(nvml, name)]
    told = [processes for processes in lists if processes is not None]
    if not told:
        return None
    used: dict[int, int | None] = {}
    for process in (process for processes in told for process in processes):
        # One that computes and draws is in both lists, with the same figure.
        used[process.pid] = (
            process.usedGpuMemory if process.usedGpuMemory is not None else used.get(process.pid)
        )
    named = _pids_are_ours()
    holders = [Holder(pid, size, _name_of(pid) if named else None) for pid, size in used.items()]
    return tuple(sorted(holders, key=lambda holder: -(holder.used_bytes or 0)))


def _pids_are_ours() -> bool:
    """Whether the driver's numbers are this process's: in a container another process may have such a number."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def _name_of(pid: int) -> str | None:
    try:
        return printable(
            Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip(), limit=40
        )
    except OSError:
        return None


def _ask(nvml: ModuleType, function: Any, *arguments: Any) -> Any:
    """The answer, or ``None`` where NVML has none."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None
