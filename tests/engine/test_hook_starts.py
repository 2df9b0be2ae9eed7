"""What ends a start and what does not: defects of ours, errors of vLLM's, a wrong name and the strict mode."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, choice, config_folder, field_config, said, taken
from tests.rigs.hook_child import cards, parsed, rig, serve, stand_in, written
from zenit_hub.errors import ProfileNotDeclared, StrictRefusal

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL, GIB = 85018877624, 1 << 30


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def break_the_reader(model: str) -> Launch:
    parsed(model)
    hook_module = sys.modules["zenit_hub.engine.hook"]
    hook_module.read_config = None
    return serve(model)


def test_a_defect_of_ours_is_one_line_and_vllm_starts(hook: HookServer, p3: str) -> None:
    """Whatever goes wrong in our part, the arguments are what the caller typed, and the line says what to do."""
    launch = hook.run(break_the_reader, model=p3)
    assert taken(launch, "max_model_len", "kv_cache_memory_bytes") == [None, None]
    assert [level for level, _ in launch["lines"]] == ["WARNING"]
    assert "TypeError" in said(launch)
    assert "ZENIT_SERVING_PROFILE=off" in said(launch)


def refusals(model: str) -> list[Launch]:
    cards(GIB, total_bytes=80 * GIB)
    os.environ["ZENIT_SERVING_PROFILE"] = "m128k"
    undeclared = serve(model)
    del os.environ["ZENIT_SERVING_PROFILE"]
    os.environ["ZENIT_SERVING_STRICT"] = "1"
    strict = serve(model)
    rig().put({"driver_error": "DriverNotLoaded"})
    return [undeclared, strict, serve(model)]


def test_only_a_wrong_name_and_the_strict_mode_end_a_start(hook: HookServer, p3: str) -> None:
    """A ValueError that lists the declared names; one with the figures; unknown memory is no reason."""
    undeclared, strict, unknown = hook.run(refusals, model=p3)
    assert undeclared["raised"].startswith("ProfileNotDeclared")
    assert "allowed: l1m, m256k, s32k" in undeclared["raised"]
    assert strict["raised"].startswith("StrictRefusal")
    assert "1.00 GiB of 80.00 GiB are free" in strict["raised"]
    assert unknown["raised"] is None
    assert choice(unknown) == ("s32k", "default")
    assert issubclass(ProfileNotDeclared, ValueError)
    assert issubclass(StrictRefusal, ValueError)


FREED = (
    "Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. "
    "This happens when other processes sharing the same container release GPU memory while vLLM is profiling."
)


def vllm_fails(model: str) -> Launch:
    def create_engine_config(self: Any, *_: Any, **__: Any) -> None:
        raise AssertionError(FREED)

    stand_in(create_engine_config)
    cards(82 << 30, total_bytes=100485038080)
    return serve(model)


def test_vllms_own_errors_pass_through(hook: HookServer, p3: str) -> None:
    """An AssertionError about freed memory is vLLM's to say; we never call it out of memory (C1-05)."""
    launch = hook.run(vllm_fails, model=p3)
    assert launch["raised"] == f"AssertionError: {FREED}"
    assert "out of memory" not in said(launch).lower()
    assert choice(launch) == ("l1m", "widest_fitting")


def broken_vllm(model: str) -> tuple[Launch, str]:
    import vllm.utils.argparse_utils

    del vllm.utils.argparse_utils.FlexibleArgumentParser.load_config_file
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    return serve(model), written()


def test_a_vllm_that_lacks_what_we_stand_on_starts_all_the_same(hook: HookServer, p3: str) -> None:
    """vLLM does not catch what a plug-in raises: ours says one line and stays out."""
    launch, text = hook.run(broken_vllm, model=p3)
    assert launch["raised"] is None
    assert taken(launch, "max_model_len") == [None]
    lines = [line for line in text.splitlines() if "ZENIT_MODEL_OWNED" in line]
    assert len(lines) == 1
    assert "load_config_file" in lines[0]
