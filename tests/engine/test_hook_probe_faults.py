"""Where the machine cannot be asked, or must not be: what the hook says, and what it leaves alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.rigs.hook import (
    SWITCH_VARIABLE,
    HookServer,
    Launch,
    choice,
    codes,
    config_folder,
    field_config,
    said,
    taken,
)
from tests.rigs.hook_child import cards, engine, rig, serve
from tests.rigs.nvml import LIBRARY_NAME

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL = 85899345920


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def mismatch(model: str) -> Launch:
    rig().put(
        {
            "driver_error": "LibRmVersionMismatch",
            "devices": [{"total_bytes": H100_TOTAL, "free_bytes": H100_TOTAL}],
        }
    )
    return serve(model)


def test_a_driver_of_another_version_is_named_with_the_remedy(hook: HookServer, p3: str) -> None:
    """Default profile, one line, and no nvmlShutdown after an init that failed (C2-14)."""
    launch = hook.run(mismatch, model=p3)
    assert launch["raised"] is None
    assert choice(launch) == ("s32k", "default")
    named = [line for line in said(launch).splitlines() if "mismatch" in line]
    assert len(named) == 1
    assert "reboot or reload" in named[0]
    assert "nvmlShutdown" not in launch["nvml"]
    assert set(launch["nvml"]) <= {"nvmlInitWithFlags", "nvmlInit_v2"}


def without_library(model: str) -> Launch:
    switch = Path(os.environ[SWITCH_VARIABLE], LIBRARY_NAME)
    switch.touch()
    try:
        return serve(model)
    finally:
        switch.unlink()


def test_a_missing_library_is_named(hook: HookServer, p3: str) -> None:
    """No libnvidia-ml.so.1: unknown with a line that says so, and the default profile."""
    launch = hook.run(without_library, model=p3)
    assert (choice(launch), codes(launch)) == (("s32k", "default"), ["memory_unknown"])
    assert "libnvidia-ml.so.1 is not there" in said(launch)
    assert launch["nvml"] == []


def hanging(model: str) -> Launch:
    import zenit_hub.device

    zenit_hub.device.TIMEOUT_S = 0.2  # of the 5 s
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    rig().hang("nvmlDeviceGetName", 20)
    return serve(model)


def test_a_driver_that_hangs_is_left_behind(hook: HookServer, p3: str) -> None:
    """The start goes on after the deadline: unknown with a line that says so."""
    launch = hook.run(hanging, model=p3)
    assert (choice(launch), codes(launch)) == (("s32k", "default"), ["memory_unknown"])
    assert "did not answer" in said(launch)


def without_modules(model: str, missing: list[str]) -> Launch:
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    sys.modules.update(dict.fromkeys(missing))  # None there is an ImportError
    return serve(model)


def test_the_binding_that_vllm_carries_stands_in(hook: HookServer, p3: str) -> None:
    """Without pynvml, vllm.third_party.pynvml answers; without both, a line says so."""
    launch = hook.run(without_modules, model=p3, missing=["pynvml"])
    assert choice(launch) == ("l1m", "widest_fitting")
    launch = hook.run(without_modules, model=p3, missing=["pynvml", "vllm.third_party.pynvml"])
    assert (choice(launch), codes(launch)) == (("s32k", "default"), ["memory_unknown"])
    assert "neither pynvml nor vllm.third_party.pynvml can be imported" in said(launch)
    assert launch["nvml"] == []


def without_cuda_calls(model: str) -> tuple[Launch, bool, int]:
    import torch

    def touched(*_: object, **__: object) -> None:
        raise AssertionError("the launcher made a CUDA context")

    for name in ("mem_get_info", "init", "current_device", "_lazy_init"):
        setattr(torch.cuda, name, touched)
    cards(188409184256, total_bytes=192265846784)
    launch = serve(model)
    pid = os.fork()
    if pid == 0:
        os._exit(int(torch.cuda.is_initialized()))
    return launch, torch.cuda.is_initialized(), os.waitpid(pid, 0)[1]


def test_the_look_makes_no_cuda_context(hook: HookServer, p3: str) -> None:
    """No torch.cuda call in the launcher, CUDA not initialised, and a fork still works (C2-15)."""
    launch, initialised, forked = hook.run(without_cuda_calls, model=p3)
    assert choice(launch) == ("l1m", "widest_fitting")
    assert "175.47 GiB of 179.06 GiB free" in said(launch)
    assert (initialised, forked) == (False, 0)


def off_cuda(model: str, platform: str) -> Launch:
    import psutil
    import torch

    class Untouchable:
        def __getattr__(self, name: str) -> None:
            raise AssertionError(f"{name} was touched")

    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    sys.modules["amdsmi"] = Untouchable()
    serve(model, platform="unspecified")  # whatever vLLM itself looks at is imported by now
    real = torch.cuda, psutil.virtual_memory
    torch.cuda, psutil.virtual_memory = Untouchable(), Untouchable()
    try:
        return engine(model, platform=platform)
    finally:
        torch.cuda, psutil.virtual_memory = real


@pytest.mark.parametrize("platform", ["rocm", "xpu", "unspecified"])
def test_other_platforms_are_not_looked_at(hook: HookServer, p3: str, platform: str) -> None:
    """Neither NVML nor amdsmi, torch or psutil is asked; the default with its own utilization (C6-07)."""
    launch = hook.run(off_cuda, model=p3, platform=platform)
    assert choice(launch) == ("s32k", "default")
    assert taken(launch, "gpu_memory_utilization") == [0.92]
    assert (launch["nvml"], codes(launch)) == ([], [])


def on_cpu(model: str) -> Launch:
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    return serve(model, platform="cpu")


def test_on_the_cpu_platform_nvml_is_not_asked(hook: HookServer, p3: str) -> None:
    """What the host has decides there, with a card beside it or not."""
    launch = hook.run(on_cpu, model=p3)
    assert launch["nvml"] == []
    assert "80.00 GiB" not in said(launch)
