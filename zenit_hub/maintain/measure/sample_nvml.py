"""The memory of cards that a launch takes: how far NVML's free memory falls, device by device.

Figures per process are a cross-check. NVML may not have them (WSL, MIG, lack of rights), and in a container it
may name processes by numbers of the host that mean nothing here. So they are believed in two cases: of a
process that was on the card before the start, which is nobody of the engine's under whatever number; and of
all, once a process of the engine is among them, for then the numbers are ours. What is left otherwise is the
device before the start against the device after the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from zenit_hub.device import memory_of, nvml_module
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.processes import Tree
from zenit_hub.maintain.measure.readings import Allowance, Others, Reading, Room
from zenit_hub.maintain.measure.sampling import BackgroundSampler
from zenit_hub.maintain.measure.trace import Moves
from zenit_hub.nvml_words import in_words
from zenit_hub.text import gib, printable

PROCESSES_PERIOD_S, PROCESSES_SHARE = 0.5, 0.001
"""The lists of processes: twice a second, less often where that takes more than a thousandth of a core."""

SETTLE_S, REST_S = 3.0, 0.5
"""How long a driver may take to give back what the engine's last process had, and how long it may pause in it."""

SETTLED_BYTES = 2**20

Key = tuple[int, int]
"""A device's place among the sampled ones and a process's number."""


class NvmlSampler(BackgroundSampler):
    """A :class:`~zenit_hub.maintain.measure.samplers.Sampler` of cards and MIG slices.

    ``devices``: NVML's indices or UUIDs, of cards and slices. On integrated GPUs NVML has no memory of theirs.
    """

    def __init__(self, devices: Sequence[int | str]) -> None:
        super().__init__()
        self._devices = tuple(devices)
        self._nvml: ModuleType | None = None
        self._cards = _Cards(None, (), ())
        self._tree = Tree()
        self._moves: Moves[Key] = Moves(lambda key: key[1])
        self._numbers_are_ours = False
        self._own_peaks_bytes = [0] * len(self._devices)
        self._ours_before: frozenset[int] = frozenset()
        self._allowance = Allowance(PROCESSES_PERIOD_S, PROCESSES_SHARE)

    def _begin(self) -> Sequence[Room]:
        nvml = nvml_module()
        if nvml is None:
            raise MeasurementError(f"no card's memory can be seen: {in_words('ModuleNotFound')}")
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise MeasurementError(f"no card's memory can be seen: {_words(error)}") from None
        self._nvml = nvml
        if not self._devices:
            raise MeasurementError("no card's memory can be seen: none was named")
        handles, rooms = [], []
        for device in self._devices:
            try:
                handle = _handle(nvml, device)
                total_bytes, free_bytes, fault = memory_of(nvml, handle)
            except nvml.NVMLError as error:
                total_bytes, free_bytes, fault = None, None, _words(error)
            if total_bytes is None or free_bytes is None:
                raise MeasurementError(f"the memory of {_called(device)} cannot be seen: {fault}")
            handles.append(handle)
            rooms.append(Room(free_bytes, total_bytes))
        self._cards = _Cards(nvml, tuple(handles), tuple(room.free_bytes for room in rooms))
        self._tree.scan()
        # The tool's own are among them where it holds memory so that less is left for the engine.
        self._ours_before = frozenset(self._tree.ever_ours)
        self._moves.begin(self._processes())
        return rooms

    def _reading(self) -> Reading:
        return self._cards

    def _now_bytes(self) -> Sequence[int]:
        return self._cards.taken_bytes(self._cards.read())

    def _engine_is(self, root_pid: int) -> None:
        self._tree.root_is(root_pid)
        self._tree.scan()

    def _look(self, mark: str | None) -> None:
        if mark is not None or self._allowance.is_due():
            self._allowance.spend(self._look_at_processes)

    def _look_at_processes(self) -> None:
        self._tree.scan()
        figures = self._processes()
        self._moves.look(figures)
        own = {key: size for key, size in figures.items() if key[1] in self._tree.engine}
        self._numbers_are_ours = self._numbers_are_ours or bool(own.keys() - self._moves.were_there())
        for place, peak_bytes in enumerate(self._own_peaks_bytes):
            now_bytes = sum(size for (device, _), size in own.items() if device == place)
            self._own_peaks_bytes[place] = max(peak_bytes, now_bytes)

    def _counts(self, key: Key) -> bool:
        """Whether a process is surely somebody else's."""
        if key in self._moves.were_there():
            return key[1] not in self._ours_before
        return self._numbers_are_ours and key[1] not in self._tree.ever_ours

    def _finish(self, worst: int, drop_bytes: int) -> Others:
        self._look_at_processes()
        process, moved_bytes = self._moves.furthest(self._counts)
        device, left_bytes = self._left()
        if abs(left_bytes) > moved_bytes:
            more_or_less = "less" if left_bytes > 0 else "more"
            moved_bytes = abs(left_bytes)
            process = f"{_called(device)}, {gib(moved_bytes)} {more_or_less} free after the end than before the start"
        if not self._numbers_are_ours:
            self._note(
                "NVML does not name the engine's processes here (container, WSL, MIG): what others did meanwhile"
                " is known only from before the start and after the end"
            )
        own_peak_bytes = self._own_peaks_bytes[worst] if self._numbers_are_ours else None
        return Others(own_peak_bytes, moved_bytes, process)

    def _left(self) -> tuple[int | str, int]:
        """The device that is furthest from where it was, and by how much less is free; the driver may take a while."""
        began_s = moved_s = time.monotonic()
        before_bytes = None
        while True:
            left = self._cards.fallen_bytes()
            furthest = max(range(len(left)), key=lambda place: abs(left[place]))
            now_s = time.monotonic()
            if before_bytes is None or abs(left[furthest] - before_bytes) > SETTLED_BYTES:
                before_bytes, moved_s = left[furthest], now_s
            at_rest = now_s - moved_s > REST_S or now_s - began_s > SETTLE_S
            if abs(left[furthest]) <= SETTLED_BYTES or at_rest:
                return self._devices[furthest], left[furthest]
            time.sleep(0.05)

    def _let_go(self) -> None:
        if self._nvml is not None:
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                # What was asked is known by now.
                return

    def _processes(self) -> dict[Key, int]:
        """Bytes of each process on each device, of those whose bytes NVML tells."""
        figures: dict[Key, int] = {}
        for place, handle in enumerate(self._cards.handles):
            for process in self._cards.processes(handle):
                if process.usedGpuMemory is not None:
                    # One that computes and draws is in both lists with the same figure.
                    key = place, int(process.pid)
                    figures[key] = max(figures.get(key, 0), int(process.usedGpuMemory))
        return figures


class _Cards:
    """The devices' free memory: a :class:`~zenit_hub.maintain.measure.readings.Reading`."""

    def __init__(self, nvml: Any, handles: Sequence[Any], free_bytes: Sequence[int]) -> None:
        self.handles = handles
        self.width = len(handles)
        self.over = False
        self._nvml = nvml
        self._free_bytes = free_bytes

    def collect(self, answers: list[Any], samples: int, pause_s: float) -> None:
        """Free memory is the same in both versions of NVML's structure; the first is the one that all have."""
        add, ask, pause, now_s = (
            answers.append,
            self._nvml.nvmlDeviceGetMemoryInfo,
            time.sleep,
            time.monotonic,
        )
        try:
            for _ in range(samples):
                if self.over:
                    return
                pause(pause_s)
                for handle in self.handles:
                    add(ask(handle))
                add(now_s())
        except self._nvml.NVMLError as error:
            raise MeasurementError(_words(error)) from None

    def read(self) -> list[Any]:
        try:
            return [self._nvml.nvmlDeviceGetMemoryInfo(handle) for handle in self.handles]
        except self._nvml.NVMLError as error:
            raise MeasurementError(_words(error)) from None

    def fallen_bytes(self) -> list[int]:
        """How much less is free than before the start."""
        pairs = zip(self._free_bytes, self.read(), strict=True)
        return [before_bytes - int(answer.free) for before_bytes, answer in pairs]

    def taken_bytes(self, answers: Sequence[Any]) -> Sequence[int]:
        pairs = zip(self._free_bytes, answers, strict=True)
        return [max(0, before_bytes - int(answer.free)) for before_bytes, answer in pairs]

    def processes(self, handle: Any) -> list[Any]:
        """Those that compute and those that draw; nobody where NVML has no list."""
        found = []
        for name in "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses":
            ask: Callable[[Any], list[Any]] = getattr(self._nvml, name)
            try:
                found += ask(handle)
            except self._nvml.NVMLError:
                continue
        return found


def _handle(nvml: ModuleType, device: int | str) -> Any:
    if isinstance(device, int):
        return nvml.nvmlDeviceGetHandleByIndex(device)
    return nvml.nvmlDeviceGetHandleByUUID(device)


def _called(device: int | str) -> str:
    return f"card {printable(device, limit=60)}"


def _words(error: Exception) -> str:
    return in_words(type(error).__name__)
