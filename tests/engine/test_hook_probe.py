"""What the hook finds out about the machine, through the real ``pynvml`` and a card made of C."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import (
    HookServer,
    Launch,
    choice,
    codes,
    config_folder,
    field_config,
    said,
)
from tests.rigs.hook_child import rig, serve

pytest_plugins = ("tests.rigs.hook_fixtures",)

MIB = 1 << 20
H100_TOTAL = 85899345920
SLICE = {
    "uuid": "MIG-aaaa1111-2222-3333-4444-555555555555",
    "total_bytes": 17179869184,
    "free_bytes": 16986931200,
}
MIG_CARD = {
    "uuid": "GPU-0e5d0000-2222-3333-4444-555555555555",
    "name": "NVIDIA H100",
    "total_bytes": H100_TOTAL,
    "free_bytes": H100_TOTAL,
}


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def figures() -> list[int] | None:
    """``(free, total)`` as the package itself tells them."""
    import zenit_hub

    found = zenit_hub.device_memory()
    return None if found is None else list(found)


def slice_of_a_locked_card(model: str, visible: str | None) -> tuple[Any, Launch]:
    rig().put({"devices": [{**MIG_CARD, "memory_error": "NoPermission", "mig": [SLICE]}]})
    if visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = visible
    return figures(), serve(model)


@pytest.mark.parametrize("visible", [None, "0", SLICE["uuid"]])
def test_a_slice_answers_where_its_card_may_not_be_asked(
    hook: HookServer, p3: str, visible: str | None
) -> None:
    """The parent's handle has no permission, the MIG handle answers: those figures (C2-03, C2-04)."""
    found, launch = hook.run(slice_of_a_locked_card, model=p3, visible=visible)
    assert found == [16986931200, 17179869184]
    assert choice(launch) == ("s32k", "nothing_fits")
    assert "15.82 GiB of 16.00 GiB free" in said(launch)


def card_without_slice_handles(model: str, parent: dict[str, str], error: str) -> tuple[Any, Launch]:
    rig().put({"devices": [{**MIG_CARD, **parent, "mig": [SLICE]}]})
    rig().fail("nvmlDeviceGetMigDeviceHandleByIndex", error)
    return figures(), serve(model)


LOCKED = {"memory_error": "NoPermission"}


@pytest.mark.parametrize(
    ("parent", "error", "words"),
    [
        (LOCKED, "NoPermission", "no permission"),
        (LOCKED, "NotFound", "no permission"),
        ({}, "NoPermission", "no permission"),
        ({}, "NotFound", "no slice"),
    ],
)
def test_without_a_slice_nothing_is_known(
    hook: HookServer, p3: str, parent: dict[str, str], error: str, words: str
) -> None:
    """Never the parent's figure: unknown with the reason, and the default profile (C2-03, C2-04)."""
    found, launch = hook.run(card_without_slice_handles, model=p3, parent=parent, error=error)
    assert found is None
    assert choice(launch) == ("s32k", "default")
    assert codes(launch) == ["memory_unknown"]
    assert words in said(launch)
    assert "Traceback" not in said(launch)


def card_and_host(card: dict[str, Any], root: str) -> Any:
    import zenit_hub.device

    # /proc/meminfo cannot be had for a test: the same reader looks at a folder with the same file in it.
    zenit_hub.device.read_system = functools.partial(zenit_hub.device.read_system, Path(root))
    rig().put({"devices": [card]})
    return figures()


@pytest.mark.parametrize(
    "answers",
    [
        {"memory_error": "NotSupported"},
        {"total_bytes": 0, "free_bytes": 0},
        {"total_bytes": 8128 * MIB, "free_bytes": 8000 * MIB},
    ],
    ids=["NotSupported", "zeros", "too small"],
)
def test_an_integrated_gpu_has_the_hosts_memory(
    hook: HookServer, tmp_path: Path, answers: dict[str, Any]
) -> None:
    """MemTotal and MemAvailable whatever NVML says, never MemFree; a discrete card stays unknown (C2-10)."""
    meminfo = tmp_path / "proc" / "meminfo"
    meminfo.parent.mkdir()
    meminfo.write_text("MemTotal: 127600748 kB\nMemFree: 60000000 kB\nMemAvailable: 118566368 kB\n")
    arguments = {"root": str(tmp_path)}
    integrated = {"name": "NVIDIA GB10", "compute_capability": "12.1", **answers}
    assert hook.run(card_and_host, card=integrated, **arguments) == [121411960832, 130663165952]
    discrete = {"name": "NVIDIA H100", "compute_capability": "9.0", "memory_error": "NotSupported"}
    assert hook.run(card_and_host, card=discrete, **arguments) is None


def memory_versions(error: str | None) -> tuple[Any, list[str]]:
    card = {
        "total_bytes": 40960 * MIB,
        "free_bytes": 40048 * MIB,
        "reserved_bytes": 904 * MIB,
        "used_bytes": 8 * MIB,
    }
    rig().put({"devices": [card]})
    if error is not None:
        rig().fail("nvmlDeviceGetMemoryInfo_v2", error)
    return figures(), rig().calls()


@pytest.mark.parametrize(
    ("error", "total_bytes"),
    [(None, 42001760256), ("FunctionNotFound", 42949672960), ("Unknown", 42949672960)],
)
def test_the_second_version_of_the_figures_comes_first(
    hook: HookServer, error: str | None, total_bytes: int
) -> None:
    """Total is without the reserved part where v2 answers, v1's else; free is NVML's own (C2-17)."""
    found, calls = hook.run(memory_versions, error=error)
    assert found == [41993371648, total_bytes]
    assert calls.count("nvmlDeviceGetMemoryInfo_v2") == 1
    assert calls.count("nvmlDeviceGetMemoryInfo") == (0 if error is None else 1)
