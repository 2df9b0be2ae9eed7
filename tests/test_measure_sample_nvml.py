"""The memory of cards through the real ``pynvml`` and the library made of C, while it moves under the sampler."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.nvml import NvmlRig
from tests.rigs.nvml_child import MIB, started

GIB = 2**30
UNTOLD_BYTES = 2**64 - 1
"""What NVML says where it does not know a process's memory; ``pynvml`` makes it None."""

SAMPLING = """
from dataclasses import asdict
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import sampling
from zenit_hub.maintain.measure.sample_nvml import NvmlSampler

sampler = None
for line in sys.stdin:
    order, value = json.loads(line)
    try:
        if order == "start":
            sampler = NvmlSampler(value)
            sampler.start()
            say(None)
        elif order == "stop":
            trace = asdict(sampler.stop())
            say({**trace, "times_s": list(trace["times_s"]), "taken_bytes": list(trace["taken_bytes"])})
        elif order == "lost after":
            sampling.LOST_AFTER_S = value
            say(None)
        elif order == "now":
            say(sampler.taken_now_bytes())
        elif order == "mark":
            sampler.mark(value)
            say(sampler.at_mark_bytes(value))
        else:
            say(sampler.engine_is(value))
    except MeasurementError as error:
        say({"error": str(error)})
"""


class Child:
    """The tool's process: one order, one answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def tell(self, order: str, value: object = None) -> Any:
        assert self._process.stdout is not None
        print(json.dumps([order, value]), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    return NvmlRig(tmp_path / "nvml")


@pytest.fixture
def engine_pid() -> Iterator[int]:
    """A process for the engine's; what it has on a card the rig says."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process.pid
        process.kill()


@contextmanager
def sampling(rig: NvmlRig, devices: Sequence[int | str], engine_pid: int | None = None) -> Iterator[Child]:
    """A tool that samples, its engine known."""
    with started(rig, SAMPLING) as process:
        child = Child(process)
        assert child.tell("start", devices) is None
        if engine_pid is not None:
            child.tell("engine", engine_pid)
        yield child


def card(free_bytes: int, total_bytes: int = 80 * GIB, **keys: Any) -> dict[str, Any]:
    return {"total_bytes": total_bytes, "free_bytes": free_bytes, **keys}


def uses(processes: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"pid": pid, "used_bytes": used_bytes} for pid, used_bytes in processes.items()]


def settle() -> None:
    """Long enough for a row of samples."""
    time.sleep(0.25)


# --- the device


def test_the_largest_drop_counts_and_the_last_token_ends_it(rig: NvmlRig, engine_pid: int) -> None:
    """A peak between two marks is in it; what the engine takes after the workload is not."""
    rig.put({"devices": [card(79 * GIB, reserved_bytes=GIB)]})
    with sampling(rig, [0], engine_pid) as child:
        rig.put({"devices": [card(60 * GIB)]})
        settle()
        rig.put({"devices": [card(70 * GIB)]})
        assert child.tell("mark", "ending") == 9 * GIB
        rig.put({"devices": [card(10 * GIB)]})
        settle()
        assert child.tell("now") == 69 * GIB
        rig.put({"devices": [card(79 * GIB)]})
        trace = child.tell("stop")

    assert (trace["drop_bytes"], trace["worst"]) == (19 * GIB, 0)
    assert (trace["free_bytes"], trace["total_bytes"]) == (79 * GIB, 79 * GIB)
    assert max(trace["taken_bytes"]) == 69 * GIB
    assert trace["sampled_hz"] > 80


def test_of_several_devices_the_worst_decides(rig: NvmlRig, engine_pid: int) -> None:
    """The largest drop, not the fullest card; its own free and total go with it."""
    rig.put({"devices": [card(20 * GIB), card(70 * GIB, 79 * GIB), card(70 * GIB)]})
    with sampling(rig, [0, 1], engine_pid) as child:
        rig.put({"devices": [card(10 * GIB), card(50 * GIB, 79 * GIB), card(0)]})
        settle()
        rig.put({"devices": [card(20 * GIB), card(70 * GIB, 79 * GIB), card(70 * GIB)]})
        trace = child.tell("stop")

    assert (trace["worst"], trace["drop_bytes"]) == (1, 20 * GIB)
    assert (trace["free_bytes"], trace["total_bytes"]) == (70 * GIB, 79 * GIB)
    assert trace["foreign_bytes"] == 0


@pytest.mark.parametrize("uuid", ["GPU-b", "MIG-b"])
def test_a_card_or_slice_is_found_by_its_uuid(uuid: str, rig: NvmlRig) -> None:
    """As the launch names it; the order of cards does not matter, nor what its neighbours do."""

    def machine(free_bytes: int) -> dict[str, Any]:
        part = {"uuid": uuid, "total_bytes": 20 * GIB, "free_bytes": free_bytes}
        if uuid.startswith("MIG"):
            return {"devices": [card(1), card(1, memory_error="NoPermission", mig=[part])]}
        return {"devices": [card(1), card(1) | part]}

    rig.put(machine(19 * GIB))
    with sampling(rig, [uuid]) as child:
        rig.put(machine(15 * GIB))
        assert child.tell("mark", "workload") == 4 * GIB
        rig.put(machine(19 * GIB))
        trace = child.tell("stop")

    assert (trace["drop_bytes"], trace["total_bytes"]) == (4 * GIB, 20 * GIB)


# --- whose memory it is


def test_a_foreign_process_contaminates_and_both_figures_are_recorded(rig: NvmlRig, engine_pid: int) -> None:
    """Case C1-13: the device's drop of 21.0 GiB is not the engine's 15.0 GiB, and 6.0 GiB are somebody's."""
    total_bytes, stranger = 33683281019, 777

    def put(free_bytes: int, own_gib: int, foreign_gib: int) -> None:
        sizes = {engine_pid: own_gib * GIB, stranger: foreign_gib * GIB}
        processes = uses({pid: size for pid, size in sizes.items() if size})
        rig.put({"devices": [card(free_bytes, total_bytes, processes=processes)]})

    put(33285996544, 0, 0)
    with sampling(rig, [0], engine_pid) as child:
        put(25769803776, 1, 6)
        child.tell("mark", "loading")
        put(10737418240, 15, 6)
        child.tell("mark", "workload")
        put(33285996544 - 6 * GIB, 0, 6)
        trace = child.tell("stop")

    assert trace["drop_bytes"] == 22548578304
    assert trace["own_peak_bytes"] == 16106127360
    assert trace["foreign_bytes"] == 6 * GIB
    assert "777" in trace["foreign_process"]


def test_a_neighbour_at_rest_does_no_harm(rig: NvmlRig, engine_pid: int) -> None:
    """It may hold what it likes, and move by less than the limit."""
    rig.put({"devices": [card(40 * GIB, processes=uses({777: 30 * GIB}))]})
    with sampling(rig, [0], engine_pid) as child:
        moved = uses({777: 30 * GIB + MIB, engine_pid: 8 * GIB})
        rig.put({"devices": [card(32 * GIB - MIB, processes=moved)]})
        child.tell("mark", "workload")
        rig.put({"devices": [card(40 * GIB, processes=uses({777: 30 * GIB}))]})
        trace = child.tell("stop")

    assert (trace["own_peak_bytes"], trace["foreign_bytes"]) == (8 * GIB, MIB)
    assert trace["notes"] == []


@pytest.mark.parametrize(("before_gib", "meanwhile_gib"), [(6, 2), (2, 6)])
def test_who_was_there_before_is_a_stranger_under_whatever_number(
    before_gib: int, meanwhile_gib: int, rig: NvmlRig, engine_pid: int
) -> None:
    """In a container NVML's numbers are the host's: that he moved, up or down, is seen nevertheless."""
    rig.put({"devices": [card(40 * GIB, processes=uses({4_000_000: before_gib * GIB}))]})
    with sampling(rig, [0], engine_pid) as child:
        processes = uses({4_000_000: meanwhile_gib * GIB, 4_000_001: 8 * GIB})
        rig.put({"devices": [card(30 * GIB, processes=processes)]})
        child.tell("mark", "workload")
        rig.put({"devices": [card(40 * GIB, processes=uses({4_000_000: before_gib * GIB}))]})
        trace = child.tell("stop")

    assert (trace["own_peak_bytes"], trace["foreign_bytes"]) == (None, 4 * GIB)
    assert "4000000" in trace["foreign_process"]


@pytest.mark.parametrize("case", ["numbers of the host", "sizes untold", "no list"])
def test_where_processes_are_not_told_the_device_before_and_after_is_left(
    case: str, rig: NvmlRig, engine_pid: int
) -> None:
    """Containers, WSL and MIG: nothing is guessed, and it is said."""

    def put(free_bytes: int, processes: Mapping[int, int]) -> None:
        rig.put({"devices": [card(free_bytes, processes=uses(processes))]})

    if case == "no list":
        rig.fail("nvmlDeviceGetComputeRunningProcesses", "NoPermission")
    put(40 * GIB, {})
    with sampling(rig, [0], engine_pid) as child:
        put(20 * GIB, {4_000_001: 20 * GIB} if case == "numbers of the host" else {engine_pid: UNTOLD_BYTES})
        child.tell("mark", "workload")
        put(40 * GIB - 64 * MIB, {})
        trace = child.tell("stop")

    assert (trace["own_peak_bytes"], trace["foreign_bytes"]) == (None, 64 * MIB)
    assert trace["foreign_process"] == "card 0, 0.06 GiB less free after the end than before the start"
    assert "only from before the start and after the end" in " ".join(trace["notes"])


def test_a_driver_may_take_a_while_to_give_memory_back(rig: NvmlRig) -> None:
    """The engine's last process is gone before its memory is."""
    rig.put({"devices": [card(40 * GIB)]})
    with sampling(rig, [0]) as child:
        rig.put({"devices": [card(20 * GIB)]})
        settle()
        given_back = threading.Timer(0.4, rig.put, [{"devices": [card(40 * GIB)]}])
        given_back.start()
        trace = child.tell("stop")
        given_back.join()

    assert (trace["drop_bytes"], trace["foreign_bytes"]) == (20 * GIB, 0)


# --- what can go wrong


def test_a_sample_that_fails_is_left_out(rig: NvmlRig) -> None:
    """The next ones count, and it is noted."""
    rig.put({"devices": [card(40 * GIB)]})
    with sampling(rig, [0]) as child:
        settle()
        rig.fail("nvmlDeviceGetMemoryInfo", "Unknown")
        time.sleep(0.1)
        rig.mend()
        rig.put({"devices": [card(30 * GIB)]})
        settle()
        rig.put({"devices": [card(40 * GIB)]})
        trace = child.tell("stop")

    assert trace["drop_bytes"] == 10 * GIB
    assert "a sample was missed: Unknown" in trace["notes"][0]


def test_a_card_that_is_lost_is_an_error_in_words(rig: NvmlRig) -> None:
    """After a while without a sample nothing is left to measure; marks do not wait for it."""
    rig.put({"devices": [card(40 * GIB)]})
    with sampling(rig, [0]) as child:
        child.tell("lost after", 0.3)
        settle()
        rig.fail("nvmlDeviceGetMemoryInfo", "GpuIsLost")
        time.sleep(0.8)
        began_s = time.monotonic()
        child.tell("mark", "workload")
        answer = child.tell("stop")

    assert "the GPU has fallen off the bus" in answer["error"]
    assert time.monotonic() - began_s < 2


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        ([7], "the memory of card 7 cannot be seen: InvalidArgument"),
        (["GPU-nobody"], "the memory of card GPU-nobody cannot be seen: NotFound"),
        ([1], "the memory of card 1 cannot be seen: NVML does not support the question on this card"),
        ([], "no card's memory can be seen: none was named"),
    ],
)
def test_a_card_that_cannot_be_seen_is_refused_before_the_engine_starts(
    devices: list[int | str], words: str, rig: NvmlRig
) -> None:
    """Also an integrated one, whose memory NVML does not know."""
    rig.put({"devices": [card(40 * GIB), {"name": "NVIDIA GB10"}]})
    with started(rig, SAMPLING) as process:
        answer = Child(process).tell("start", devices)

    assert answer["error"].startswith(words)


def test_without_a_driver_there_is_nothing_to_see(rig: NvmlRig) -> None:
    """In words, with what to do."""
    rig.put({"driver_error": "LibraryNotFound"})
    with started(rig, SAMPLING) as process:
        answer = Child(process).tell("start", [0])

    assert "install the NVIDIA driver" in answer["error"]
