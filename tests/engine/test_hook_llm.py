"""``LLM(...)`` and ``EngineArgs(...)`` from Python: what can be known of the caller's words, and when."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, config_folder, said, taken
from tests.rigs.hook_child import cards, engine, launched, llm, parsed, serve

pytest_plugins = ("tests.rigs.hook_fixtures",)

TOTAL = 85899345920
WRITTEN = {"gpu_memory_utilization": 0.88, "enforce_eager": True, "skip_mm_profiling": True}
KEEP = "ZENIT_SERVING_KEEP=gpu_memory_utilization"


def model_with(tmp_path: Path, **values: Any) -> str:
    profile = {"max_model_len": 32768, **values}
    section = {"default_profile": "s32k", "profiles": {"s32k": profile}}
    return config_folder(tmp_path, {"architectures": ["Qwen2ForCausalLM"], "serving_profiles": section})


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model whose profile has utilization 0.88, eager mode and no multimodal profiling."""
    return model_with(tmp_path, **WRITTEN)


def first_engine(model: str, environment: dict[str, str], **fields: Any) -> Launch:
    os.environ.update(environment)
    cards(TOTAL, total_bytes=TOTAL)
    return llm(model, **fields)


def test_of_a_first_llm_nobody_sees_what_was_given(hook: HookServer, tmp_path: Path) -> None:
    """LLM hands 0.92 on itself: the profile's 0.88 is written, and a line says how to keep 0.92 (C3-11)."""
    model = model_with(tmp_path, gpu_memory_utilization=0.88)
    for given in ({}, {"gpu_memory_utilization": 0.92}):
        launch = hook.run(first_engine, model=model, environment={}, **given)
        assert taken(launch, "max_model_len", "gpu_memory_utilization") == [32768, 0.88]
        unseen = [line for level, line in launch["lines"] if "does not show whether" in line]
        assert len(unseen) == 1
        assert f"{KEEP}." in unseen[0]


def test_of_a_first_llm_another_value_than_the_default_is_seen(hook: HookServer, model: str) -> None:
    """0.9 is the caller's, whoever looks; and so is 0.92 with ZENIT_SERVING_KEEP (C3-11)."""
    launch = hook.run(first_engine, model=model, environment={}, gpu_memory_utilization=0.9)
    assert taken(launch, "gpu_memory_utilization") == [0.9]
    keep = dict([KEEP.split("=")])
    launch = hook.run(first_engine, model=model, environment=keep, gpu_memory_utilization=0.92)
    assert taken(launch, "gpu_memory_utilization") == [0.92]
    assert "does not show whether enforce_eager,skip_mm_profiling was" in said(launch)


def test_of_a_first_llm_config_objects_are_not_taken_for_the_callers(
    hook: HookServer, tmp_path: Path
) -> None:
    """LLM makes compilation_config and the like itself: the measured figure is not void for that."""
    model = model_with(tmp_path, requires_free_bytes=1 << 30)
    launch = hook.run(first_engine, model=model, environment={})
    assert "measurement_void" not in said(launch)


def later_engines(model: str, installed: bool) -> list[Launch]:
    cards(TOTAL, total_bytes=TOTAL)
    if installed:
        from zenit_hub import install_model_owned_serving_defaults

        install_model_owned_serving_defaults()
    else:
        llm(model)
    return [
        llm(model, gpu_memory_utilization=0.92),
        llm(model, gpu_memory_utilization=0.9),
        llm(model),
        llm(model, enforce_eager=False, skip_mm_profiling=False),
    ]


@pytest.mark.parametrize("installed", [False, True], ids=["second engine", "installed before"])
def test_later_llms_are_seen_whole(hook: HookServer, model: str, installed: bool) -> None:
    """0.92 stays 0.92, 0.9 stays 0.9, nothing gives 0.88; False is a word (C3-07, C3-11)."""
    launches = hook.run(later_engines, model=model, installed=installed)
    fields = ("gpu_memory_utilization", "enforce_eager", "skip_mm_profiling")
    assert [taken(launch, *fields) for launch in launches] == [
        [0.92, True, True],
        [0.9, True, True],
        [0.88, True, True],
        [0.88, False, False],
    ]
    assert "does not show" not in "".join(map(said, launches))


def engine_args(model: str, installed: bool) -> list[Launch]:
    cards(TOTAL, total_bytes=TOTAL)
    if installed:
        from zenit_hub import install_model_owned_serving_defaults

        install_model_owned_serving_defaults()
    given = {"gpu_memory_utilization": 0.92, "enforce_eager": False, "max_num_seqs": None}
    return [engine(model, **given), engine(model, **given)]


def test_engine_args_are_seen_once_the_plugin_is_in(hook: HookServer, model: str) -> None:
    """Values that equal the default are words; of the object that loads the plug-in it is said that they may be."""
    fields = ("gpu_memory_utilization", "enforce_eager", "skip_mm_profiling")
    first, second = hook.run(engine_args, model=model, installed=False)
    assert taken(first, *fields) == [0.88, True, True]
    assert KEEP in said(first)
    assert taken(second, *fields) == [0.92, False, True]
    first, second = hook.run(engine_args, model=model, installed=True)
    assert taken(first, *fields) == taken(second, *fields) == [0.92, False, True]


def copies(model: str) -> list[Launch]:
    from vllm.engine.arg_utils import EngineArgs

    cards(TOTAL, total_bytes=TOTAL)
    serve(model)
    made = EngineArgs(model=model, enforce_eager=False)
    kinds = [made, copy.copy(made), dataclasses.replace(made)]
    return [launched(kind.create_engine_config, "cuda") for kind in kinds]


def test_a_copy_of_engine_args_does_not_take_every_field_for_the_callers(
    hook: HookServer, model: str
) -> None:
    """All fields at once are a copy and say nothing about who chose them: the profile is written all the same."""
    for launch in hook.run(copies, model=model):
        assert taken(launch, "max_model_len", "gpu_memory_utilization") == [32768, 0.88]


def namespaces(model: str) -> Launch:
    cards(TOTAL, total_bytes=TOTAL)
    args = argparse.Namespace(**vars(parsed(model, "--max-num-seqs", "3")))
    args.model = model

    def start() -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs

        AsyncEngineArgs.from_cli_args(args).create_engine_config()

    return launched(start, "cuda")


def test_a_namespace_of_somebody_elses_is_judged_by_its_values(hook: HookServer, model: str) -> None:
    """Every field is in it, typed or not: those that differ from the default are the caller's."""
    launch = hook.run(namespaces, model=model)
    assert taken(launch, "max_model_len", "gpu_memory_utilization", "max_num_seqs") == [32768, 0.88, 3]
    assert KEEP in said(launch)
