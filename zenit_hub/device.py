"""Looking at this machine: NVML for cards, the kernel's files for the host. No CUDA context, no torch.

Everything here returns facts; what could not be found out is in them with its reason, never a guess.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

from zenit_hub import env
from zenit_hub.deadline import within
from zenit_hub.host import read_host, read_system
from zenit_hub.machine import Device, Machine, Slice
from zenit_hub.nvml_words import in_words

TIMEOUT_S = 5.0
"""How long the driver may take to answer; a hung one must not hang the server's start."""

MODULES = ("pynvml", "vllm.third_party.pynvml")
"""The binding of nvidia-ml-py, else the copy that vLLM carries."""

INTEGRATED_CAPABILITIES = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
"""Compute capabilities that only integrated GPUs have: Tegra X1, X2, Xavier, Orin, Thor (10.1 before CUDA 13,
11.0 since), GB10. Source: NVIDIA's table of CUDA GPUs' compute capabilities."""

INTEGRATED_NAMES = ("GB10", "Orin", "Thor", "Xavier", "Tegra", "Jetson")


def look_at_cards() -> Machine:
    """All cards as NVML lists them, each with its error where it gives no figures."""
    try:
        return within(TIMEOUT_S, _ask_nvml)
    except TimeoutError:
        return Machine("nvml", driver_error=in_words("Timeout"))


def look_at_host() -> Machine:
    """The memory that a worker of the CPU platform will see."""
    host = read_host(visible_nodes=os.environ.get(env.CPU_NODES, ""))
    return Machine(
        "host", host=host, host_error=None if host else "the kernel's memory figures cannot be read"
    )


def nvml_module() -> ModuleType | None:
    """The NVML binding that is there; ``None`` where there is none."""
    for name in MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _ask_nvml() -> Machine:
    nvml = nvml_module()
    if nvml is None:
        return Machine("nvml", driver_error=in_words("ModuleNotFound"))
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Machine("nvml", driver_error=_words(error))
    try:
        devices = tuple(_device(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError as error:
        return Machine("nvml", driver_error=_words(error))
    finally:
        _shut_down(nvml)
    needs_host = any(device.integrated for device in devices)
    return Machine("nvml", devices=devices, host=read_system() if needs_host else None)


def _shut_down(nvml: ModuleType) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        # What was asked is known by now; a library that will not be closed changes nothing of it.
        return


def _device(nvml: ModuleType, index: int) -> Device:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as refusal:
        return Device(index, error=_words(refusal))
    name = _text(_ask(nvml, nvml.nvmlDeviceGetName, handle))
    pair = _ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle)
    capability = (int(pair[0]), int(pair[1])) if pair else None
    total_bytes, free_bytes, error = memory_of(nvml, handle)
    return Device(
        index=index,
        uuid=_text(_ask(nvml, nvml.nvmlDeviceGetUUID, handle)),
        name=name,
        compute_capability=capability,
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        error=error,
        integrated=capability in INTEGRATED_CAPABILITIES or any(word in name for word in INTEGRATED_NAMES),
        slices=_slices(nvml, handle, error),
    )


def memory_of(nvml: ModuleType, handle: Any) -> tuple[int | None, int | None, str | None]:
    """``(total, free, error)`` in bytes; total is what CUDA can address, free is NVML's own figure."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        return int(memory.total) - int(memory.reserved), int(memory.free), None
    except (nvml.NVMLError, AttributeError):
        # Drivers before 510 and bindings of their time know the first version only, which does not tell the
        # reserved part. Where it refuses as well, its word is the one to report.
        pass
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return int(memory.total), int(memory.free), None
    except nvml.NVMLError as refusal:
        return None, None, _words(refusal)


def _slices(nvml: ModuleType, handle: Any, refusal: str | None) -> tuple[Slice, ...]:
    """The MIG slices of a card that is cut; none where it is not, or cannot be.

    CUDA reaches a card in MIG mode by its slices alone: where none can be had, there is one whose memory is
    unknown, with why (``refusal`` is the card's own), so that nobody takes the whole card's figures.
    """
    mode = _ask(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return ()
    slices = []
    for place in range(_ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:
                refusal = _words(error)
            continue
        total_bytes, free_bytes, why = memory_of(nvml, part)
        uuid = _text(_ask(nvml, nvml.nvmlDeviceGetUUID, part))
        name = _text(_ask(nvml, nvml.nvmlDeviceGetName, part)) or None
        slices.append(Slice(uuid, total_bytes, free_bytes, name, why))
    return tuple(slices) or (Slice("", error=refusal or "MIG is on and the card has no slice"),)


def _ask(nvml: ModuleType, function: Any, *arguments: Any) -> Any:
    """The answer, or ``None`` where NVML has none: a missing name does not make the memory unknown."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _words(error: Exception) -> str:
    return in_words(type(error).__name__)
