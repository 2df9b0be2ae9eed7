"""Cards made small by processes that hold the rest: how much is left, for how long, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cuda import LIBRARY_NAME as CUDA_LIBRARY
from tests.rigs.cuda import Neighbour, cuda_environment
from tests.rigs.nvml import NvmlRig
from tests.rigs.nvml_child import CARD_0, ask

MIB, GIB = 2**20, 2**30
FREE = 15 * GIB + 12345
UUIDS = tuple(f"GPU-0000000{index}-0000-4000-8000-000000000000" for index in range(2))

TOOL = """
import json, sys
from dataclasses import asdict
import pynvml
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import ballast, ballast_process
from zenit_hub.maintain.measure.confine import confiner

ballast.STILL_S = 0.2

def say(value):
    print(json.dumps(value), flush=True)

def free():
    pynvml.nvmlInit()
    cards = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    return [pynvml.nvmlDeviceGetMemoryInfo(card).free for card in cards]

uuids, wanted = sys.argv[1].split(","), int(sys.argv[2])
held = confiner("cuda", uuids)
try:
    with held.hold(wanted) as cgroup:
        say({"free": free(), "cgroup": cgroup, "held": [asdict(each) for each in held.held]})
        sys.stdin.readline()
    say({"free": free(), "moved": held.moved_bytes})
except MeasurementError as error:
    say({"error": str(error), "free": free()})
"""


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    made = NvmlRig(tmp_path / "card")
    made.put(machine())
    return made


def machine(**keys: Any) -> dict[str, Any]:
    card = {"total_bytes": 16 * GIB, "free_bytes": FREE, "context_bytes": 300 * MIB, **keys}
    return {"devices": [{**card, "uuid": uuid} for uuid in UUIDS]}


class Tool:
    """A process that holds, as the measuring tool does."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def says(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def goes_on(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.says()


@contextmanager
def tool(rig: NvmlRig, wanted_bytes: int, *uuids: str, cwd: Path | None = None) -> Iterator[Tool]:
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, ",".join(uuids or UUIDS[:1]), str(wanted_bytes)],
        env={**os.environ, **cuda_environment(rig)},
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Tool(process)
        finally:
            process.kill()


def free(rig: NvmlRig) -> int:
    return int(ask(rig, CARD_0 + "say(figures(card)['free'])"))


def until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return condition()


def test_so_much_is_left_on_every_card(rig: NvmlRig) -> None:
    """At least what was asked for, by NVML's figure, and less than a granule more; all is back at the end."""
    with tool(rig, 7 * GIB + 1, *UUIDS) as holder:
        inside = holder.says()
        assert inside["cgroup"] is None
        assert [each["granule_bytes"] for each in inside["held"]] == [2 * MIB, 2 * MIB]
        assert [each["left_bytes"] for each in inside["held"]] == inside["free"]
        assert all(0 <= left - (7 * GIB + 1) < 2 * MIB for left in inside["free"])
        assert holder.goes_on() == {
            "free": [FREE, FREE],
            "moved": 0,
        }


def test_of_several_cards_the_one_that_is_meant_is_held(rig: NvmlRig, tmp_path: Path) -> None:
    """By its UUID, whatever CUDA's order; nothing in the folder where the tool runs is taken for a module."""
    (tmp_path / "json.py").write_text("raise SystemExit(3)")
    (tmp_path / "ctypes.py").write_text("raise SystemExit(3)")
    rig.put(machine())
    with tool(rig, GIB, UUIDS[1]) as holder:
        first, second = holder.says()["free"]
        assert (first, second - GIB < 2 * MIB) == (FREE, True)


def test_a_driver_with_larger_steps_is_found_out(rig: NvmlRig) -> None:
    """What CUDA says of free memory is not looked at."""
    rig.put(machine(granularity_bytes=32 * MIB, cuda_hidden_bytes=GIB))
    with tool(rig, 7 * GIB) as holder:
        inside = holder.says()
        assert inside["held"][0]["granule_bytes"] == 32 * MIB
        assert 0 <= inside["free"][0] - 7 * GIB < 32 * MIB


def test_a_slice_is_held_like_a_card(rig: NvmlRig) -> None:
    """MIG: the slice's own figure."""
    part = {"uuid": "MIG-a", "total_bytes": 4 * GIB, "free_bytes": 4 * GIB}
    rig.put({"devices": [{"total_bytes": 16 * GIB, "free_bytes": FREE, "mig": [part]}]})
    with tool(rig, GIB, "MIG-a") as holder:
        assert holder.says()["held"] == [{"left_bytes": GIB, "granule_bytes": 2 * MIB, "held_bytes": 3 * GIB}]


def test_it_waits_until_the_memory_is_back(rig: NvmlRig) -> None:
    """A driver gives it back some time after the process's end."""
    rig.put({"release_ms": 600, **machine()})
    with tool(rig, GIB) as holder:
        holder.says()
        assert holder.goes_on()["free"] == [FREE, FREE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_the_tool(rig: NvmlRig, number: signal.Signals) -> None:
    """Whatever ended that."""
    with tool(rig, GIB) as holder:
        holder.says()
        holder.process.send_signal(number)
        holder.process.wait()
        assert until(lambda: free(rig) == FREE)


def test_a_tool_that_is_stopped_while_it_takes_leaves_nothing(rig: NvmlRig) -> None:
    """Ctrl-C reaches the tool alone, which then ends what holds."""
    rig.hang("cuMemAlloc_v2", 0.1)
    with tool(rig, GIB) as holder:
        assert until(lambda: "cuMemAlloc_v2" in rig.calls())
        holder.process.send_signal(signal.SIGINT)
        assert holder.process.wait(5) != 0
        assert free(rig) == FREE


def test_who_takes_memory_meanwhile_is_told_of(rig: NvmlRig) -> None:
    """As soon as it ends."""
    with Neighbour(rig) as neighbour, tool(rig, 7 * GIB) as holder:
        holder.says()
        neighbour.take(64 * MIB)
        after = holder.goes_on()
        assert after["moved"] == 64 * MIB
        assert after["free"][0] == FREE - 364 * MIB


def test_a_card_that_does_not_keep_still_is_refused(rig: NvmlRig) -> None:
    """After its time, with what was left and what was wanted."""
    code = TOOL.replace("uuids, wanted", "ballast_process.LEVEL_TIMEOUT_S = 0.5; uuids, wanted")
    code = code.replace('held = confiner("cuda", uuids)', "ballast_process.SETTLED_S = 0.01")
    code = code[: code.index("try:\n    with")] + (
        "try:\n    say(ballast_process.Ballast(ballast_process.CardMemory(uuids[0]), wanted).hold().left_bytes)\n"
        "except ballast_process.NotPossible as why:\n    say(str(why))"
    )
    rig.hang("nvmlDeviceGetMemoryInfo", 0.02)
    with Neighbour(rig) as neighbour:
        process = subprocess.Popen(
            [sys.executable, "-c", code, UUIDS[0], str(7 * GIB)],
            env={**os.environ, **cuda_environment(rig)},
            stdout=subprocess.PIPE,
            text=True,
        )
        while process.poll() is None:
            neighbour.take(4 * MIB)
            time.sleep(0.005)
        assert "does not settle within 0.5 s" in process.communicate()[0]


@pytest.mark.parametrize(
    ("wanted_bytes", "words"),
    [
        (FREE + 1, "are free, and"),
        (FREE - 100 * MIB, "holding anything at all takes 314572800 bytes, more than the 104857600"),
    ],
)
def test_what_cannot_be_left_is_refused(rig: NvmlRig, wanted_bytes: int, words: str) -> None:
    """More than is free; and less than that by so little that a context is too much."""
    with tool(rig, wanted_bytes) as holder:
        answer = holder.says()
        assert words in answer["error"]
        assert answer["free"] == [FREE, FREE]


def test_where_nothing_is_too_much_nothing_is_held(rig: NvmlRig) -> None:
    """Not even a context."""
    with tool(rig, FREE - MIB) as holder:
        assert holder.says()["free"][0] == FREE


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        ("cuInit", 999, "CUDA refuses cuInit: CUDA_ERROR_UNKNOWN"),
        ("cuDevicePrimaryCtxRetain", 2, "CUDA refuses cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY"),
        ("nvmlDeviceGetMemoryInfo", "NotSupported", "NVML gives no memory figures of GPU-00000000"),
        ("nvmlDeviceGetHandleByUUID", "NotFound", "NVML gives no memory figures of GPU-00000000"),
    ],
)
def test_a_driver_that_refuses_is_one_sentence(
    rig: NvmlRig, function: str, error: int | str, words: str
) -> None:
    """With its own word."""
    rig.fail(function, error, target=0 if function == "nvmlDeviceGetMemoryInfo" else None)
    code = TOOL.replace("def free():", "def free():\n    return []\ndef unused():")
    child = subprocess.run(
        [sys.executable, "-c", code, UUIDS[0], str(GIB)],
        env={**os.environ, **cuda_environment(rig)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = json.loads(child.stdout)["error"]
    assert words in said
    assert "\n" not in said


def test_without_cudas_library_there_is_no_confiner(tmp_path: Path) -> None:
    """NVML alone is no way to hold anything."""
    (tmp_path / CUDA_LIBRARY).touch()  # so that a real one further down the path is not found
    code = "from zenit_hub.maintain.measure.confine import confiner; print(confiner('cuda', ['GPU-a']))"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert "libcuda.so.1 is not there" in said
