"""The doctor's checks of the driver, the cards and the host, and its look at who holds memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.doctor_facts import HERE, ROOMY, facts, found
from tests.rigs.nvml import NvmlRig
from tests.rigs.nvml_child import ask
from tests.stage import GIB, card, cards, host
from zenit_hub.machine import Host, Machine, Platform, Slice
from zenit_hub.maintain.doctor.checks import examine
from zenit_hub.maintain.doctor.facts import (
    Cgroup,
    Holder,
    Memory,
)
from zenit_hub.nvml_words import _WORDS, in_words


@pytest.mark.parametrize("error", _WORDS)
def test_every_error_of_nvml_has_words_and_something_to_type(error: str) -> None:
    """A failure where a vLLM for CUDA is; without a vLLM nothing is served, and it is a warning."""
    broken = Machine("nvml", driver_error=in_words(error))
    check = found(facts(machine=broken), "driver")
    alone = found(facts(machine=broken, installed=replace(HERE, vllm=None)), "driver")

    assert (check.status, alone.status) == ("fail", "warn")
    assert in_words(error) in check.message
    assert check.next


@pytest.mark.parametrize(("platform", "said"), [("cpu", "built for CPUs"), ("rocm", "on rocm no memory")])
def test_other_platforms_ask_no_driver(platform: Platform, said: str) -> None:
    """And have no cards to show."""
    machine = host(60, 64) if platform == "cpu" else None
    of = facts(platform=platform, memory=Memory(machine, host=ROOMY))

    assert said in found(of, "driver").message
    assert not [check for check in examine(of) if check.name.startswith(("card", "CUDA"))]


def test_a_driver_without_cards() -> None:
    assert found(facts(machine=cards()), "driver").status == "fail"


@pytest.mark.parametrize(
    ("free_gib", "status"),
    [(31.5, "ok"), (30.4, "ok"), (30.1, "warn"), (4, "warn"), (0.7, "fail"), (0, "fail")],
)
def test_a_card_is_full_where_vllms_own_default_is_refused(free_gib: float, status: str) -> None:
    """Of 32 GiB, 0.92 are asked for, and the engine takes 768 MiB before it looks."""
    assert found(facts(machine=cards(free_gib)), "card 0").status == status


def test_who_holds_a_card() -> None:
    """The largest five with their names where they are known, the others counted."""
    held = (Holder(7, 7 * GIB, "vllm"), *(Holder(pid, 7 * GIB) for pid in (6, 5, 4, 3, 2)), Holder(1, None))
    check = found(facts(memory=Memory(cards(4, 30), holders={0: held}, host=ROOMY)), "card 0")

    assert "Held by vllm (pid 7) 7.00 GiB, pid 6 7.00 GiB, pid 5 7.00 GiB, pid 4" in check.message
    assert "pid 3 7.00 GiB and 2 more." in check.message
    assert "export CUDA_VISIBLE_DEVICES=GPU-1" in (check.next or "")


def test_nobody_is_named_where_nvml_names_nobody() -> None:
    """As in a container."""
    assert "NVML names nobody" in found(facts(machine=cards(4)), "card 0").message


def test_a_card_that_the_shell_hides_is_never_wrong() -> None:
    """A launch from here cannot take it."""
    of = facts(machine=cards(0, 31), CUDA_VISIBLE_DEVICES="1")

    assert found(of, "card 0").message.endswith("not visible from this shell")
    assert [check.status for check in examine(of) if check.status != "ok"] == []


def test_a_card_that_gives_no_figures() -> None:
    """With its error's words."""
    lost = Machine("nvml", (card(None, error=in_words("GpuIsLost")),))
    check = found(facts(machine=lost), "card 0")

    assert (check.status, check.next) == ("fail", "reboot")
    assert "fallen off the bus" in check.message


def test_a_card_in_mig_mode_is_its_slices() -> None:
    """Each that is named; by its index the one with the least free."""
    parts = (Slice("MIG-a", 20 * GIB, 19 * GIB, "Slice a"), Slice("MIG-b", 20 * GIB, 2 * GIB, "Slice b"))
    machine = Machine("nvml", (card(30, slices=parts),))

    assert "Slice b (MIG-b): 2.00 GiB free of 20.00 GiB" in found(facts(machine=machine), "card 0").message
    both = examine(facts(machine=machine, CUDA_VISIBLE_DEVICES="MIG-a,MIG-b"))
    assert [check.message[:7] for check in both if check.name == "card 0"] == ["Slice a", "Slice b"]


UNLIKE = Machine("nvml", (card(31), card(31, index=1, name="Card B")))


@pytest.mark.parametrize(
    ("machine", "setting", "name", "status", "said"),
    [
        (cards(31, 31), None, "CUDA_VISIBLE_DEVICES", "ok", "not set: 2 cards of 2"),
        (cards(31, 31), "1", "CUDA_VISIBLE_DEVICES", "ok", "“1”: 1 card of 2"),
        (cards(31, 31), "", "CUDA_VISIBLE_DEVICES", "fail", "“” hides every card"),
        (cards(31, 31), "0,0", "CUDA_VISIBLE_DEVICES", "fail", "hides every card"),
        (cards(31, 31), "0,x,1", "CUDA_VISIBLE_DEVICES", "warn", "stops reading behind 1 card"),
        (cards(31, 31), "GPU-f", "CUDA_VISIBLE_DEVICES", "fail", "GPU-f names no visible device"),
        (UNLIKE, "0", "CUDA_DEVICE_ORDER", "warn", "the cards are unlike"),
        (UNLIKE, "GPU-1", "CUDA_VISIBLE_DEVICES", "ok", "1 card of 2"),
    ],
)
def test_which_cards_a_shell_sees(
    machine: Machine, setting: str | None, name: str, status: str, said: str
) -> None:
    """As CUDA reads the variable."""
    variables = {} if setting is None else {"CUDA_VISIBLE_DEVICES": setting}
    check = found(facts(machine=machine, **variables), name)

    assert (check.status, bool(check.next)) == (status, status != "ok")
    assert said in check.message


def test_an_order_that_is_set_is_no_question() -> None:
    assert found(facts(machine=UNLIKE, CUDA_DEVICE_ORDER="PCI_BUS_ID"), "CUDA_VISIBLE_DEVICES").status == "ok"


@pytest.mark.parametrize(
    ("memory", "platform", "status", "said"),
    [
        (Memory(cards(31), host=Host(64 * GIB, 2 * GIB)), "cuda", "warn", "2.00 GiB available of 64.00 GiB"),
        (Memory(cards(31), host=None), "cuda", "warn", "cannot be read"),
        (
            Memory(cards(31), host=ROOMY, cgroup=Cgroup(8 * GIB, 6 * GIB)),
            "cuda",
            "warn",
            "the control group allows 8.00 GiB, of which 2.00 GiB are left",
        ),
        (Memory(cards(31), host=ROOMY, cgroup=Cgroup(8 * GIB, GIB)), "cuda", "ok", "7.00 GiB are left"),
        (Memory(host(20, 24), cgroup=Cgroup(24 * GIB, 0)), "cpu", "ok", "20.00 GiB available of 24.00 GiB"),
        (Memory(Machine("host")), "cpu", "fail", "it is what this vLLM serves from"),
    ],
)
def test_the_hosts_memory(memory: Memory, platform: Platform, status: str, said: str) -> None:
    """What is available, and what the control group leaves of it."""
    check = found(facts(memory=memory, platform=platform), "host memory")

    assert check.status == status
    assert said in check.message


def test_who_holds_memory_is_asked_of_nvml(tmp_path: Path) -> None:
    """By the real binding: sizes, names of this machine's own processes, and a card that tells nothing."""
    rig = NvmlRig(tmp_path)
    processes = [{"pid": 1, "used_bytes": GIB}, {"pid": 2**30, "used_bytes": 2 * GIB}]
    silent = {"uuid": "GPU-b", "total_bytes": 1, "free_bytes": 1}
    rig.put(
        {"devices": [{"uuid": "GPU-a", "total_bytes": 1, "free_bytes": 1, "processes": processes}, silent]}
    )
    rig.fail("nvmlDeviceGetComputeRunningProcesses", "NoPermission", target=1)
    code = (
        "from zenit_hub.maintain.doctor import holders\n"
        "def told():\n"
        "    driver, cards = holders.ask_nvml()\n"
        "    return driver, [[index, [[h.pid, h.used_bytes, h.name] for h in held]] for index, held in cards.items()]\n"
        "holders._pids_are_ours = lambda: True\nsay(told())\n"
        "holders._pids_are_ours = lambda: False\nsay(told())\n"
    )
    (driver, named), (_, unnamed) = ask(rig, code)

    own = Path("/proc/1/comm").read_text().strip()
    assert driver == "580.95.05"
    assert dict(named).get(1, []) == []
    assert dict(named)[0] == [[2**30, 2 * GIB, None], [1, GIB, own]]
    assert [name for *_, name in dict(unnamed)[0]] == [None, None]


@pytest.mark.parametrize("error", ["LibRmVersionMismatch", "DriverNotLoaded"])
def test_a_driver_that_does_not_start_names_nobody(tmp_path: Path, error: str) -> None:
    rig = NvmlRig(tmp_path)
    rig.put({"driver_error": error})

    assert ask(rig, "from zenit_hub.maintain.doctor.holders import ask_nvml\nsay(ask_nvml())") == [None, {}]
