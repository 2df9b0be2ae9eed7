"""CUDA's driver made of C: what processes hold is missing in NVML's figure for everybody, and ends with them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cuda import HOLDS, OUT_OF_MEMORY, Neighbour, compiled_library, cuda_environment
from tests.rigs.nvml import _CUDA_SOURCE, NvmlRig, exported_functions
from tests.rigs.nvml_child import CARD_0, MIB, ask

GIB = 2**30
FREE = 15 * GIB + 12345


def a_card(**keys: Any) -> dict[str, Any]:
    return {"total_bytes": 16 * GIB, "free_bytes": FREE, "context_bytes": 300 * MIB, **keys}


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    made = NvmlRig(tmp_path / "card")
    made.put({"devices": [a_card(), a_card()]})
    return made


def held(rig: NvmlRig, card: int = 0) -> int:
    """What is missing on the card, as NVML tells a process that holds nothing."""
    code = f"nvmlInit(); say(nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByIndex({card})).free)"
    return FREE - int(ask(rig, code))


def until(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return condition()


def test_what_a_process_holds_is_missing_for_others(rig: NvmlRig) -> None:
    """Its context, and what it takes in steps of 2 MiB; both are listed under its pid, and come back."""
    with Neighbour(rig) as neighbour:
        assert held(rig) == 300 * MIB
        neighbour.take(GIB + 1)
        assert held(rig) == 300 * MIB + GIB + 2 * MIB
        listed = ask(
            rig,
            CARD_0 + "say([[p.pid, p.usedGpuMemory] for p in nvmlDeviceGetComputeRunningProcesses(card)])",
        )
        assert listed == [[neighbour.process.pid, held(rig)]]
        assert neighbour.tell("look()") == [0, FREE - held(rig), 16 * GIB]
        neighbour.give_back()
        assert held(rig) == 300 * MIB
        assert held(rig, card=1) == 0
    assert held(rig) == 0


def test_what_a_killed_process_held_is_free(rig: NvmlRig) -> None:
    """At once; with ``release_ms`` so much later, as a driver does it."""
    with Neighbour(rig) as neighbour:
        neighbour.take(GIB)
        neighbour.process.kill()
        neighbour.process.wait()
        assert held(rig) == 0
    rig.put({"release_ms": 700, "devices": [a_card(), a_card()]})
    with Neighbour(rig, card=1) as neighbour:
        neighbour.take(GIB)
        neighbour.process.kill()
        neighbour.process.wait()
        assert held(rig, card=1) == GIB + 300 * MIB
        assert until(lambda: held(rig, card=1) == 0)


def test_nobody_gets_more_than_there_is(rig: NvmlRig) -> None:
    """CUDA's own number for it; what does not fit takes nothing."""
    with Neighbour(rig) as neighbour:
        assert neighbour.tell(f"hold({15 * GIB})") == OUT_OF_MEMORY
        assert neighbour.tell(f"hold({14 * GIB})") == 0
        assert neighbour.tell(f"hold({GIB})") == OUT_OF_MEMORY
        with pytest.raises(RuntimeError, match="no device"):
            Neighbour(full(rig))


def full(rig: NvmlRig) -> NvmlRig:
    rig.put({"devices": [a_card(free_bytes=200 * MIB)]})
    return rig


def test_processes_that_race_share_what_there_is(rig: NvmlRig) -> None:
    """Each takes until it is refused; together they have every step of the card and none twice."""
    rig.put({"devices": [a_card(free_bytes=801 * MIB, context_bytes=0)]})
    code = (
        HOLDS
        + f"begin(); taken = 0\nwhile not hold({MIB}): taken += 1\nprint(taken, flush=True); sys.stdin.read()"
    )
    racers = [
        subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            env={**os.environ, **cuda_environment(rig)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    try:
        taken = [int(racer.stdout.readline()) for racer in racers if racer.stdout is not None]
        assert sum(taken) == 400
        assert ask(rig, CARD_0 + "say(figures(card)['free'])") == MIB
    finally:
        for racer in racers:
            racer.communicate()


def test_a_forked_child_holds_nothing(rig: NvmlRig) -> None:
    """It lives on after its parent, whose memory is free all the same."""
    with Neighbour(rig) as neighbour:
        neighbour.take(GIB)
        child = neighbour.tell("os.fork() or os.close(0) or os.close(1) or __import__('time').sleep(30)")
        neighbour.process.kill()
        neighbour.process.wait()
        try:
            assert held(rig) == 0
        finally:
            os.kill(int(str(child)), 9)


@pytest.mark.parametrize(
    ("visible", "targets"),
    [
        (None, ["GPU-a", "MIG-b"]),
        ("1", ["MIG-b"]),
        ("GPU-a", ["GPU-a"]),
        ("MIG-c,0", ["MIG-c", "GPU-a"]),
        ("", []),
    ],
)
def test_devices_are_those_that_are_visible(rig: NvmlRig, visible: str | None, targets: list[str]) -> None:
    """By number, UUID or slice; a card that is cut by its first slice. What is held counts on card and slice."""
    slices = [{"uuid": f"MIG-{name}", "total_bytes": 4 * GIB, "free_bytes": 4 * GIB} for name in "bc"]
    rig.put({"devices": [a_card(uuid="GPU-a"), a_card(uuid="GPU-cut", mig=slices, context_bytes=0)]})
    code = HOLDS + (
        "count = ctypes.c_int(); begun = cuda.cuInit(0); cuda.cuDeviceGetCount(ctypes.byref(count))\n"
        f"for device in range(count.value): begin(device); hold((device + 1) * {GIB})\n"
        "from pynvml import *; nvmlInit()\n"
        "free = lambda uuid: nvmlDeviceGetMemoryInfo(nvmlDeviceGetHandleByUUID(uuid)).free\n"
        "print(json.dumps([begun, *map(free, ('GPU-a', 'GPU-cut', 'MIG-b', 'MIG-c'))]))"
    )
    environment = {**os.environ, **cuda_environment(rig)}
    if visible is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    begun, *free = __import__("json").loads(said.stdout)
    assert begun == (0 if targets else 100)
    sizes = {uuid: (place + 1) * GIB for place, uuid in enumerate(targets)}
    whole = sizes.get("GPU-a", -300 * MIB) + 300 * MIB
    parts = [sizes.get(uuid, 0) for uuid in ("MIG-b", "MIG-c")]
    assert free == [FREE - whole, FREE - sum(parts), *(4 * GIB - part for part in parts)]


def test_a_driver_may_refuse_and_hide(rig: NvmlRig) -> None:
    """Faults have CUDA's numbers; pids and bytes may be another namespace's, and CUDA's free figure its own."""
    rig.put({"devices": [a_card(cuda_hidden_bytes=7, pid_offset=100000, process_bytes_hidden=1)]})
    rig.fail("cuMemAlloc_v2", 999, target=0)
    with Neighbour(rig) as neighbour:
        assert neighbour.tell("hold(1)") == 999
        rig.mend()
        assert neighbour.tell("hold(1)") == 0
        assert neighbour.tell("look()") == [0, FREE - held(rig) - 7, 16 * GIB]
        code = CARD_0 + "say([[p.pid, p.usedGpuMemory] for p in nvmlDeviceGetComputeRunningProcesses(card)])"
        assert ask(rig, code) == [[neighbour.process.pid + 100000, None]]


def test_the_source_names_what_the_library_exports() -> None:
    """So that ``fail`` knows every function and no other."""
    command = ["nm", "-D", "--defined-only", str(compiled_library())]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert exported_functions(_CUDA_SOURCE) == set(re.findall(r" T (\w+)", symbols))
