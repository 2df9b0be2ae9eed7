"""How the card made of C refuses, hangs and keeps its log, and what it does not accept from a test."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.rigs.nvml import STATE_VARIABLE, NvmlRig, compiled_library, exported_functions
from tests.rigs.nvml_child import CARD_0, CHILD_TIMEOUT_S, a_card, ask, started


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    return NvmlRig(tmp_path / "nvml")


@pytest.mark.parametrize("error", ["LibRmVersionMismatch", "DriverNotLoaded"])
def test_a_driver_error_stops_initialisation(rig: NvmlRig, error: str) -> None:
    """``nvmlInit`` answers it, and all that follows is uninitialised (case C2-14)."""
    rig.put({"driver_error": error, "devices": [a_card()]})
    assert ask(rig, "say([outcome(nvmlInit), outcome(nvmlDeviceGetCount)])") == [error, "Uninitialized"]
    assert rig.calls() == ["nvmlInitWithFlags", "nvmlDeviceGetCount_v2"]


def test_a_missing_library_is_not_found_even_where_there_is_one(rig: NvmlRig, tmp_path: Path) -> None:
    """A real driver further down the path does not come in for it."""
    real = NvmlRig(tmp_path / "real")
    rig.put({"driver_error": "LibraryNotFound", "devices": [a_card()]})
    environment = rig.environment(base=real.environment())
    assert environment["LD_LIBRARY_PATH"].split(":")[1] == str(compiled_library().parent)
    assert ask(rig, "say(outcome(nvmlInit))", environment) == "LibraryNotFound"
    assert rig.calls() == []


def test_every_call_can_fail_with_every_error(rig: NvmlRig) -> None:
    """By its name in pynvml or in the library, by the error's name or number, for one card or for all."""
    rig.put({"devices": [a_card(), a_card(uuid="GPU-bbbb")]})
    rig.fail("nvmlDeviceGetName", "GpuIsLost", target=1)
    rig.fail("nvmlDeviceGetMemoryInfo_v2", 999)
    rig.fail("nvmlDeviceGetMemoryInfo_v2", "Success", target=1)
    rig.fail("nvmlDeviceGetCount", 18)
    code = """
nvmlInit()
say(outcome(nvmlDeviceGetCount))
for card in nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1):
    memory = outcome(nvmlDeviceGetMemoryInfo, card, version=nvmlMemory_v2)
    say([outcome(nvmlDeviceGetName, card), memory if isinstance(memory, str) else "memory"])
"""
    assert ask(rig, code) == ["LibRmVersionMismatch", ["Card A", "Unknown"], ["GpuIsLost", "memory"]]
    rig.mend()
    assert ask(rig, code) == [2, ["Card A", "memory"], ["Card A", "memory"]]


def test_a_lost_card_fails_at_everything(rig: NvmlRig) -> None:
    """``*`` is every function; the other card goes on."""
    rig.put({"devices": [a_card(), a_card(uuid="GPU-bbbb")]})
    rig.fail("*", "GpuIsLost", target=0)
    code = """
nvmlInit()
say([outcome(nvmlDeviceGetHandleByIndex, 0), outcome(nvmlDeviceGetHandleByUUID, "GPU-aaaa")])
say(nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(1)))
"""
    assert ask(rig, code) == [["GpuIsLost", "GpuIsLost"], "Card A"]


def test_every_error_has_a_text(rig: NvmlRig) -> None:
    """Those too that pynvml has to ask the library for."""
    numbers = [value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")]
    said = ask(rig, f"nvmlInit(); say([str(NVMLError(number)) for number in {numbers}])")
    texts = dict(zip(numbers, said, strict=True))
    assert texts[pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH] == "Argument version mismatch"
    assert [number for number, text in texts.items() if text == "Unknown Error"] == [999]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + CHILD_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_hang_holds_only_the_call_that_hangs(rig: NvmlRig) -> None:
    """The process sits in the named call until it is killed; other threads of it go on."""
    rig.put({"devices": [a_card()]})
    rig.hang("nvmlDeviceGetMemoryInfo", CHILD_TIMEOUT_S * 2)
    code = CARD_0 + "import threading\n"
    code += "threading.Thread(target=nvmlDeviceGetMemoryInfo, args=(card,), daemon=True).start()\n"
    code += "say(nvmlDeviceGetName(card)); nvmlDeviceGetMemoryInfo(card); say('not reached')"
    with started(rig, code) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == "Card A"
        wait_until(lambda: rig.calls().count("nvmlDeviceGetMemoryInfo") == 2)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.2)
        child.kill()
        assert child.stdout.read() == ""


def test_a_delay_comes_before_the_answer(rig: NvmlRig) -> None:
    """A short one is just slow, with an error or without."""
    rig.put({"devices": [a_card()]})
    rig.hang("nvmlInit", 0.2)
    rig.fail("nvmlDeviceGetName", "Timeout", delay_s=0.2)
    began_s = time.monotonic()
    assert ask(rig, CARD_0 + "say(outcome(nvmlDeviceGetName, card))") == "Timeout"
    assert time.monotonic() - began_s >= 0.4


def test_the_log_names_each_call_its_card_and_its_process(rig: NvmlRig) -> None:
    """So that a test can tell who probed what, and how often."""
    rig.put({"devices": [a_card(), a_card(mig=[{"uuid": "MIG-bbbb"}, {"uuid": "MIG-cccc"}])]})
    code = "import os\nsay(os.getpid()); nvmlInit()\nnvmlDeviceGetName(nvmlDeviceGetHandleByUUID('MIG-cccc'))"
    pids = [ask(rig, code), ask(rig, code)]
    assert rig.calls() == ["nvmlInitWithFlags", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetName"] * 2
    assert [call.target for call in rig.call_log()[:3]] == ["-", "1.1", "1.1"]
    assert [call.pid for call in rig.call_log()] == [pids[0]] * 3 + [pids[1]] * 3


def test_a_rig_without_its_state_is_loud(rig: NvmlRig) -> None:
    """An NVML error would look like the machine that a test asked for; the process ends instead."""
    with started(rig, "nvmlInit()", {STATE_VARIABLE: "/nonexistent/state"}) as child:
        _, err = child.communicate(timeout=CHILD_TIMEOUT_S)
    assert child.returncode == 70
    assert err == f"nvml rig: cannot read {STATE_VARIABLE}=/nonexistent/state\n"


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda rig: rig.fail("nvmlDeviceGetMemory", "Unknown"), "no nvmlDeviceGetMemory"),
        (lambda rig: rig.fail("nvmlInit", "Mismatch"), "NVMLError_Mismatch"),
        (lambda rig: rig.put({"devices": [a_card(index=1)]}), "NVML order"),
        (lambda rig: rig.put({"devices": [a_card(name="two\nlines")]}), "line break"),
        (lambda rig: rig.put({"devices": [a_card()] * 65}), "room for 64"),
        (lambda rig: rig.put({"devices": [a_card(mig=[{}] * 17)]}), "room for 16"),
    ],
)
def test_a_mistake_in_a_test_is_an_error(rig: NvmlRig, mistake: Any, message: str) -> None:
    """What could never take effect is not accepted in silence."""
    with pytest.raises(ValueError, match=message):
        mistake(rig)


def test_the_source_names_what_the_library_exports() -> None:
    """The list that ``fail`` checks against is the library's own, and pynvml knows every name in it."""
    command = ["nm", "-D", str(compiled_library())]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert exported_functions() == set(re.findall(r" T (\w+)", symbols))
    used = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(pynvml.__file__).read_text()))
    assert exported_functions() - used == {"nvmlInit_v2"}
