"""What the card made of C says through ``pynvml``: figures, names, slices, and that the state is live."""

from __future__ import annotations

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.nvml import LIBRARY_NAME, NvmlRig, compiled_library
from tests.rigs.nvml_child import CARD_0, MIB, a_card, ask, started


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    return NvmlRig(tmp_path / "nvml")


def test_memory_v1_and_v2_answer_the_figures(rig: NvmlRig) -> None:
    """v2 tells reserved memory apart; total and free are the same in both (case C2-17)."""
    rig.put({"devices": [a_card()]})
    v1, v2 = ask(rig, CARD_0 + "say(figures(card)); say(figures(card, nvmlMemory_v2))")
    assert v1 == {"total": 42949672960, "free": 41993371648, "used": 912 * MIB}
    assert v2 == {"total": 42949672960, "reserved": 904 * MIB, "free": 41993371648, "used": 8 * MIB}


def test_used_memory_can_be_set_apart_from_free_memory(rig: NvmlRig) -> None:
    """``free`` is its own figure, not ``total - used``."""
    rig.put({"devices": [a_card(used_bytes=7)]})
    assert ask(rig, CARD_0 + "m = nvmlDeviceGetMemoryInfo(card); say([m.free, m.used])") == [40048 * MIB, 7]


def test_a_wrong_version_of_the_memory_structure_is_refused(rig: NvmlRig) -> None:
    """The version is the constant ``nvmlMemory_v2``, not the number 2 (pynvml 59)."""
    rig.put({"devices": [a_card()]})
    code = CARD_0 + "say([figures(card, version) for version in (1, 2, 0x02000029)])"
    assert ask(rig, code) == ["ArgumentVersionMismatch"] * 3


def test_a_card_without_reserved_bytes_has_only_the_v1_figures(rig: NvmlRig) -> None:
    """As in a machine file: no ``reserved_bytes`` is a driver without memory v2; zero is a figure."""
    rig.put({"devices": [a_card(reserved_bytes=None), a_card(reserved_bytes=0)]})
    code = CARD_0 + "say([figures(card)['total'], figures(card, nvmlMemory_v2)])\n"
    code += "say(figures(nvmlDeviceGetHandleByIndex(1), nvmlMemory_v2)['reserved'])"
    assert ask(rig, code) == [[40960 * MIB, "FunctionNotFound"], 0]


@pytest.mark.parametrize("keys", [{}, {"name": "NVIDIA GB10", "integrated": True}])
def test_a_card_without_figures_does_not_support_them(rig: NvmlRig, keys: dict[str, Any]) -> None:
    """What a machine file leaves out NVML does not know; ``integrated`` is no more than a name."""
    rig.put({"devices": [keys]})
    code = CARD_0 + "say([figures(card), figures(card, nvmlMemory_v2)])\n"
    code += "say(outcome(nvmlDeviceGetCudaComputeCapability, card)); say(nvmlDeviceGetName(card))"
    memory, capability, name = ask(rig, code)
    assert memory == ["NotSupported", "NotSupported"]
    assert capability == "NotSupported"
    assert name == keys.get("name", "NVIDIA Rig GPU")


def test_zeros_are_a_success(rig: NvmlRig) -> None:
    """NVML that answers 0 of 0 (case C2-10 b) is not NVML that refuses."""
    rig.put({"devices": [a_card(total_bytes=0, free_bytes=0)]})
    assert ask(rig, CARD_0 + "say(figures(card))") == {"total": 0, "free": 0, "used": 0}


def test_cards_tell_who_they_are(rig: NvmlRig) -> None:
    """Index, UUID, name, compute capability and bus id, in NVML's order; a UUID finds its card."""
    second = a_card(uuid="GPU-bbbb", name="NVIDIA GeForce RTX 5090", compute_capability="12.0")
    rig.put({"devices": [a_card(), {**second, "index": 1, "pci_bus_id": "00000000:C1:00.0"}]})
    code = """
nvmlInit()
for index in range(nvmlDeviceGetCount()):
    card = nvmlDeviceGetHandleByIndex(index)
    same = nvmlDeviceGetHandleByUUID(nvmlDeviceGetUUID(card))
    pci = nvmlDeviceGetPciInfo(card)
    say([nvmlDeviceGetIndex(same), nvmlDeviceGetUUID(card), nvmlDeviceGetName(card), pci.busId, pci.bus])
    say(nvmlDeviceGetCudaComputeCapability(card))
say([nvmlSystemGetDriverVersion(), nvmlSystemGetCudaDriverVersion(), nvmlSystemGetCudaDriverVersion_v2()])
say([outcome(nvmlDeviceGetHandleByUUID, "GPU-bbb"), outcome(nvmlDeviceGetHandleByIndex, 2)])
"""
    *cards, versions, strangers = ask(rig, code)
    assert cards[:2] == [[0, "GPU-aaaa", "Card A", "00000000:01:00.0", 0x01], [9, 0]]
    assert cards[2:] == [[1, "GPU-bbbb", "NVIDIA GeForce RTX 5090", "00000000:C1:00.0", 0xC1], [12, 0]]
    assert versions == ["580.95.05", 13000, 13000]
    assert strangers == ["NotFound", "InvalidArgument"]


def test_processes_on_a_card(rig: NvmlRig) -> None:
    """Nobody, or those that the device lists."""
    processes = [{"pid": 777, "used_bytes": 6442450944}, {"pid": 4711, "used_bytes": 1}]
    drawing = [{"pid": 9, "used_bytes": 2}]
    rig.put({"devices": [a_card(), a_card(processes=processes, graphics_processes=drawing)]})
    code = "nvmlInit()\nfor index in 0, 1: say([[p.pid, p.usedGpuMemory] for p in "
    code += "nvmlDeviceGetComputeRunningProcesses(nvmlDeviceGetHandleByIndex(index))])\n"
    code += "say([p.pid for p in nvmlDeviceGetGraphicsRunningProcesses(nvmlDeviceGetHandleByIndex(1))])"
    assert ask(rig, code) == [[], [[777, 6442450944], [4711, 1]], [9]]


MIG_CARD = a_card(
    memory_error="NoPermission",
    mig=[
        {"uuid": "MIG-bbbb", "total_bytes": 17179869184, "free_bytes": 16986931200},
        {"uuid": "MIG-cccc", "total_bytes": 21072183296, "free_bytes": 21034434560, "reserved_bytes": 1},
    ],
)


def test_a_slice_answers_where_its_card_refuses(rig: NvmlRig) -> None:
    """A slice has a handle, UUID, name and memory of its own; the card's NoPermission is not its own."""
    rig.put({"devices": [a_card(uuid="GPU-whole"), MIG_CARD]})
    code = """
nvmlInit()
whole, card = nvmlDeviceGetHandleByIndex(0), nvmlDeviceGetHandleByIndex(1)
say([outcome(nvmlDeviceGetMigMode, whole), nvmlDeviceGetMaxMigDeviceCount(whole), nvmlDeviceGetMigMode(card)])
say([figures(card), figures(card, nvmlMemory_v2)])
for index in range(nvmlDeviceGetMaxMigDeviceCount(card)):
    part = outcome(nvmlDeviceGetMigDeviceHandleByIndex, card, index)
    if isinstance(part, str):
        continue
    say([nvmlDeviceGetUUID(part), nvmlDeviceGetName(part), nvmlDeviceGetIndex(part), figures(part)["free"]])
    say([figures(part, nvmlMemory_v2), nvmlDeviceGetCudaComputeCapability(part)])
part = nvmlDeviceGetHandleByUUID("MIG-cccc")
say([nvmlDeviceIsMigDeviceHandle(handle).value for handle in (card, part)])
say(nvmlDeviceGetIndex(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)))
say([outcome(f, part) for f in (nvmlDeviceGetMigMode, nvmlDeviceGetMaxMigDeviceCount)])
say(outcome(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, card))
"""
    modes, refused, first, first_v2, second, second_v2, *rest = ask(rig, code)
    assert modes == ["NotSupported", 0, [1, 1]]
    assert refused == ["NoPermission", "NoPermission"]
    assert first == ["MIG-bbbb", "Card A MIG 1g.16gb", 0, 16986931200]
    assert first_v2 == ["FunctionNotFound", [9, 0]]
    assert second == ["MIG-cccc", "Card A MIG 1g.20gb", 1, 21034434560]
    assert second_v2[0]["reserved"] == 1
    assert rest == [[0, 1], 1, ["InvalidArgument", "InvalidArgument"], "InvalidArgument"]


def test_a_slice_can_be_refused_too(rig: NvmlRig) -> None:
    """By its own ``memory_error``, by a fault of its own, or by not giving its handle away."""
    refused, other = MIG_CARD["mig"]
    rig.put({"devices": [a_card(mig=[{**refused, "memory_error": "NoPermission"}, other, {}])]})
    rig.fail("nvmlDeviceGetMemoryInfo", "GpuIsLost", target="0.1")
    rig.fail("nvmlDeviceGetMigDeviceHandleByIndex", "NoPermission", target="0.2")
    code = CARD_0 + "say([figures(nvmlDeviceGetMigDeviceHandleByIndex(card, index)) for index in (0, 1)])\n"
    code += "say([outcome(nvmlDeviceGetMigDeviceHandleByIndex, card, index) for index in (2, 3, 99)])\n"
    code += "say(figures(card)['free'])"
    expected = [["NoPermission", "GpuIsLost"], ["NoPermission", "NotFound", "NotFound"], 40048 * MIB]
    assert ask(rig, code) == expected


def test_initialisation_is_counted(rig: NvmlRig) -> None:
    """Two inits take two shutdowns; without one, and without a handle, nothing works."""
    rig.put({"devices": [a_card()]})
    code = """
say(outcome(nvmlInit))
nvmlInit(); nvmlShutdown()
say(nvmlDeviceGetCount())
nvmlShutdown()
say([outcome(nvmlShutdown), outcome(nvmlDeviceGetCount)])
nvmlInit()
say(outcome(nvmlDeviceGetName, None))
"""
    assert ask(rig, code) == [None, 1, ["Uninitialized", "Uninitialized"], "InvalidArgument"]


def free_bytes_now(child: subprocess.Popen[str]) -> Any:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    answer = json.loads(child.stdout.readline())
    return answer["free"] if isinstance(answer, dict) else answer


def test_the_state_may_change_while_a_process_runs(rig: NvmlRig) -> None:
    """The next call sees the new figures through the old handle; a card that is gone is lost."""
    rig.put({"devices": [a_card(free_bytes=440234148)]})
    with started(rig, CARD_0 + "for _ in sys.stdin: say(figures(card))") as child:
        assert free_bytes_now(child) == 440234148
        rig.put({"devices": [a_card(free_bytes=84460531876)]})
        assert free_bytes_now(child) == 84460531876
        rig.fail("nvmlDeviceGetMemoryInfo", "Unknown", target=0)
        assert free_bytes_now(child) == "Unknown"
        rig.mend()
        rig.put({"devices": []})
        assert free_bytes_now(child) == "GpuIsLost"


def test_a_reader_never_sees_half_a_state(rig: NvmlRig) -> None:
    """A state is replaced in one step: total and free always belong together."""
    rig.put({"devices": [a_card(total_bytes=1, free_bytes=1)]})
    code = "seen = {(m.total, m.free) for _ in range(3000) for m in [nvmlDeviceGetMemoryInfo(card)]}\n"
    code += "say(all(total == free for total, free in seen))"
    done = threading.Event()

    def change_it_on_and_on() -> None:
        size = 1
        while not done.is_set():
            size = size * 10 % (10**12 - 1)
            rig.put({"devices": [a_card(total_bytes=size, free_bytes=size)]})

    writer = threading.Thread(target=change_it_on_and_on)
    writer.start()
    try:
        assert ask(rig, CARD_0 + code) is True
    finally:
        done.set()
        writer.join()


def test_several_processes_may_compile_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache ends with one library that works and nothing beside it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with ThreadPoolExecutor(4) as pool:
        libraries = set(pool.map(lambda _: compiled_library(), range(4)))
    assert [path.name for path in libraries] == [LIBRARY_NAME]
    assert list(libraries.pop().parent.iterdir()) == list(tmp_path.rglob(LIBRARY_NAME))
