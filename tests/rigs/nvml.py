"""A machine's NVIDIA cards, made of C: what the real ``pynvml`` sees in a child process.

``pynvml`` dlopens ``libnvidia-ml.so.1``, so a folder on ``LD_LIBRARY_PATH`` is a card. The library is
compiled once (``nvml/nvml.c``) and reads a text file (format: ``nvml/state.h``) again at every call; this
module writes that file, and may do so while the child runs::

    rig = NvmlRig(tmp_path)
    rig.put({"devices": [{"name": "NVIDIA H100", "total_bytes": 85899345920, "free_bytes": 83751862272}]})
    rig.fail("nvmlDeviceGetMemoryInfo_v2", "Unknown")
    subprocess.run([sys.executable, "-c", …], env={**os.environ, **rig.environment()})
    assert rig.calls().count("nvmlDeviceGetMemoryInfo") == 1
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from tests.rigs import compiled

STATE_VARIABLE = "ZENIT_RIG_NVML_STATE"
LOG_VARIABLE = "ZENIT_RIG_NVML_LOG"
LIBRARY_NAME = "libnvidia-ml.so.1"

CARDS_MAX, SLICES_MAX, PROCESSES_MAX, STATE_MAX_BYTES = 64, 16, 256, 1 << 16  # as in state.h
MIG_DEVICES_A_CARD = 7  # what nvmlDeviceGetMaxMigDeviceCount says of an A100 or H100, however it is cut
GIB = 1 << 30

_SOURCE = Path(__file__).parent / "nvml"
_CUDA_SOURCE = Path(__file__).parent / "cuda" / "cuda.c"

INIT_FUNCTIONS = ("nvmlInit_v2", "nvmlInitWithFlags")
MEMORY_FUNCTIONS = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
_OF_LIVING_PROCESSES = (
    "pid_offset",
    "process_bytes_hidden",
    "context_bytes",
    "granularity_bytes",
    "cuda_hidden_bytes",
)
_NUMBERS = ("total_bytes", "free_bytes", "used_bytes", "reserved_bytes", *_OF_LIVING_PROCESSES)
# pynvml's own name for a function, where the library's differs.
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "nvmlInit": INIT_FUNCTIONS,
    "nvmlDeviceGetCount": ("nvmlDeviceGetCount_v2",),
    "nvmlDeviceGetHandleByIndex": ("nvmlDeviceGetHandleByIndex_v2",),
    "nvmlDeviceGetPciInfo": ("nvmlDeviceGetPciInfo_v3",),
    "nvmlDeviceGetGraphicsRunningProcesses": ("nvmlDeviceGetGraphicsRunningProcesses_v3",),
    "nvmlDeviceGetComputeRunningProcesses": ("nvmlDeviceGetComputeRunningProcesses_v3",),
}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the library. ``target`` is a card (``0``), a slice (``0.1``) or ``-``."""

    function: str
    target: str
    pid: int


class NvmlRig:
    """The cards of one machine. ``folder`` takes the state, the log and the ledger; one rig a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._library = compiled_library()
        self._folder = folder
        self._state = folder / "nvml.state"
        self._log = folder / "nvml.log"
        self._log.write_text("")
        self._faults: dict[str, str] = {}
        self.put({})

    def put(self, machine: Mapping[str, Any]) -> None:
        """Become this machine, a machine file of ``zenit-hub plan``; what ``fail`` and ``hang`` said stays.

        Keys that only the rig knows: the machine's ``driver_version`` and ``cuda_driver_version``; a device's
        ``used_bytes``, ``pci_bus_id``, ``processes`` (list of ``{"pid", "used_bytes"}``), those that draw as
        ``graphics_processes``, and ``mig_mode``.
        ``free_bytes`` is what is free while no process of the CUDA rig holds memory; for those that do, the
        machine's ``release_ms`` and a device's ``pid_offset``, ``process_bytes_hidden``, ``context_bytes``,
        ``granularity_bytes`` and ``cuda_hidden_bytes`` (``nvml/state.h``, ``cuda/cuda.c``).
        A slice may have every key of a device, a ``memory_error`` of its own among them.
        """
        self._fields = dict(_machine_fields(machine))
        self._has_library = machine.get("driver_error") != "LibraryNotFound"
        self._write()

    def fail(
        self, function: str, error: str | int, *, target: int | str | None = None, delay_s: float = 0.0
    ) -> None:
        """Answer ``error`` (``NoPermission``, or a number) from now on; ``Success`` answers as usual.

        ``function`` is pynvml's or the library's name, ``*`` every one. ``target`` is a card's index or, for
        a slice of one, ``0.1``; None is all of them. A card's faults are not its slices'. Of several, that
        for the function, then that for the target, counts, a device's ``memory_error`` among them.
        """
        for symbol in _symbols_of(function):
            self._faults[f"fault.{symbol}.{'*' if target is None else target}"] = _fault(error, delay_s)
        self._write()

    def hang(self, function: str, seconds: float, *, target: int | str | None = None) -> None:
        """Answer as usual, but only after ``seconds``; no signal handler of Python's runs before that."""
        self.fail(function, "Success", target=target, delay_s=seconds)

    def mend(self) -> None:
        """Forget every ``fail`` and ``hang``; the machine's own errors stay."""
        self._faults.clear()
        self._write()

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """What to merge into a child's environment, ``base`` (default: this process's own).

        A machine without the library gets a folder in which an empty file has taken its name, so that a
        real driver further down the path, on a machine with a card, is not found either.
        """
        library = self._library
        if not self._has_library:
            library = self._folder / "no-library" / LIBRARY_NAME
            library.parent.mkdir(exist_ok=True)
            library.touch()
        inherited = (os.environ if base is None else base).get("LD_LIBRARY_PATH")
        return {
            "LD_LIBRARY_PATH": f"{library.parent}:{inherited}" if inherited else str(library.parent),
            STATE_VARIABLE: str(self._state),
            LOG_VARIABLE: str(self._log),
        }

    def calls(self) -> list[str]:
        """The library's names of the functions called so far, by every process, in order."""
        return [call.function for call in self.call_log()]

    def call_log(self) -> list[Call]:
        """The calls so far, with what they aimed at and who called. A call that hangs is in it."""
        rows = (line.split(" ") for line in self._log.read_text().splitlines())
        return [Call(function, target, int(pid)) for function, target, pid in rows]

    def _write(self) -> None:
        """Replace the state in one step: a child that reads meanwhile sees the old one or the new one."""
        fields = {**self._fields, **self._faults}
        text = "".join(f"{key} {value}\n" for key, value in fields.items()).encode()
        if text.count(b"\n") != len(fields) or len(text) >= STATE_MAX_BYTES:
            raise ValueError(f"a value has a line break, or the state has {STATE_MAX_BYTES} bytes or more")
        scratch = self._state.with_suffix(".new")
        scratch.write_bytes(text)
        os.replace(scratch, self._state)


def compiled_library() -> Path:
    """The library for this source, from a cache in the temporary directory; compiled if it is not there."""
    return compiled.compiled_library(LIBRARY_NAME, _SOURCE / "nvml.c", list(_SOURCE.glob("*.h")))


def exported_functions(source: Path = _SOURCE / "nvml.c") -> frozenset[str]:
    """The functions that a library of the rigs has, read from its source."""
    return frozenset(re.findall(r"^(?:int |const char \*)(\w+)\(", source.read_text(), re.MULTILINE))


def _symbols_of(function: str) -> tuple[str, ...]:
    symbols = _ALIASES.get(function, (function,))
    if function != "*" and not (exported_functions() | exported_functions(_CUDA_SOURCE)).issuperset(symbols):
        raise ValueError(f"the rig has no {function}, so nothing would ever ask for it")
    return symbols


def _fault(error: str | int, delay_s: float = 0.0) -> str:
    return f"{_error_number(error)} {round(delay_s * 1000)}"


def _error_number(error: str | int) -> int:
    """NVML's number for the name that pynvml has in ``NVMLError_<name>``."""
    if isinstance(error, int):
        return error
    if error == "Success":
        return int(pynvml.NVML_SUCCESS)
    error_class = getattr(pynvml, f"NVMLError_{error}", None)
    if error_class is None:
        raise ValueError(f"pynvml has no NVMLError_{error}")
    return int(error_class().value)


def _machine_fields(machine: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    devices = machine.get("devices") or []
    if len(devices) > CARDS_MAX:
        raise ValueError(f"{len(devices)} devices; the rig has room for {CARDS_MAX}")
    yield "driver_version", machine.get("driver_version", "580.95.05")
    yield "cuda_driver_version", machine.get("cuda_driver_version", 13000)
    yield "cards", len(devices)
    if "release_ms" in machine:
        yield "release_ms", machine["release_ms"]
    if driver_error := machine.get("driver_error"):
        yield from ((f"fault.{symbol}.*", _fault(driver_error)) for symbol in INIT_FUNCTIONS)
    for index, device in enumerate(devices):
        if device.get("index", index) != index:
            raise ValueError(f"device {index} has the index {device['index']}; they stand in NVML order")
        yield from _card_fields(index, device)


def _card_fields(index: int, device: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """A card's lines. An ``integrated`` one differs only by its name, in NVML as here."""
    defaults = {
        "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
        "name": "NVIDIA Rig GPU",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
    }
    card = {**defaults, **device}
    yield from _device_fields(str(index), card)
    slices = card.get("mig") or []
    if len(slices) > SLICES_MAX:
        raise ValueError(f"{len(slices)} slices; the rig has room for {SLICES_MAX}")
    mig_mode = card.get("mig_mode", 1 if slices else None)
    if mig_mode is None:
        return
    yield f"{index}.mig_mode", mig_mode
    yield f"{index}.mig_max", max(MIG_DEVICES_A_CARD, len(slices)) if mig_mode else 0
    yield f"{index}.slices", len(slices)
    inherited = {key: card.get(key) for key in ("pci_bus_id", "compute_capability")}
    for number, part in enumerate(slices):
        own = {
            "uuid": f"MIG-{index:08x}-{number:04x}-4000-8000-000000000000",
            "name": f"{card['name']} MIG 1g.{round((part.get('total_bytes') or 0) / GIB)}gb",
        }
        yield from _device_fields(f"{index}.{number}", {**inherited, **own, **part})


def _device_fields(target: str, device: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What a card and a slice have alike. What is absent or null the library calls NotSupported."""
    for name in ("uuid", "name", "pci_bus_id", "compute_capability"):
        if device.get(name) is not None:
            yield f"{target}.{name}", device[name]
    for name in _NUMBERS:
        if device.get(name) is not None:
            yield f"{target}.{name}", int(device[name])
    for name in ("processes", "graphics_processes"):
        processes = device.get(name) or []
        if len(processes) > PROCESSES_MAX:
            raise ValueError(f"{len(processes)} processes; the rig has room for {PROCESSES_MAX}")
        yield f"{target}.{name}", len(processes)
        for number, process in enumerate(processes):
            yield f"{target}.{name[:-2]}.{number}", f"{process['pid']} {process['used_bytes']}"
    if memory_error := device.get("memory_error"):
        yield from ((f"fault.{symbol}.{target}", _fault(memory_error)) for symbol in MEMORY_FUNCTIONS)
