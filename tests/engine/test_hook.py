"""The hook in the real vLLM: one process, several engines, and what stays in the environment between them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, choice, codes, config_folder, field_config, said, taken
from tests.rigs.hook_child import cards, engine, launched, parsed, serve, serve_parsed

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL, GIB = 85018877624, 1 << 30
SERIES = "ZENIT_MODEL_OWNED_SERVING_PROFILES_V1 "


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def two_engines(model: str) -> list[Launch]:
    cards(440234148, total_bytes=H100_TOTAL)
    first = serve(model)
    cards(84460531876, total_bytes=H100_TOTAL)
    return [first, serve(model, "--max-num-seqs", "1")]


def test_a_second_engine_of_a_process_probes_afresh(hook: HookServer, p3: str) -> None:
    """Neither the first look at the card nor the first window is there for the second engine (C1-12)."""
    first, second = hook.run(two_engines, model=p3)
    assert choice(first) == ("s32k", "nothing_fits")
    assert taken(first, "max_model_len", "gpu_memory_utilization") == [32768, 0.92]
    warned = [line for level, line in first["lines"] if level == "WARNING"]
    assert len(warned) == 1
    assert "0.41 GiB" in warned[0]
    assert first["env"]["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == "32768"
    assert choice(second) == ("l1m", "widest_fitting")
    assert taken(second, "max_model_len", "gpu_memory_utilization") == [1048576, 0.5052]
    assert "budget 72.85 GiB" in said(second)
    assert second["env"]["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == "1048576"


def at_once(model: str) -> Launch:
    cards(33285996544, total_bytes=33683281019)
    return serve(model)


def test_two_processes_that_see_one_card_at_once_choose_alike(hook: HookServer, p3: str) -> None:
    """Nobody reserves: the pools stay whole, and vLLM refuses one of the two (C1-13)."""
    for launch in hook.together((at_once, {"model": p3}), (at_once, {"model": p3})):
        assert choice(launch) == ("m256k", "widest_fitting")
        assert taken(launch, "gpu_memory_utilization", "kv_cache_memory_bytes") == [0.7651, 8589934592]
        assert "budget 28.86 GiB" in said(launch)
        assert "reserv" not in said(launch)


def ask_twice(model: str) -> list[Launch]:
    from vllm.engine.arg_utils import EngineArgs

    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    made = EngineArgs(model=model)
    first = launched(made.create_engine_config, "cuda")
    made.tokenizer = model  # vLLM turns fields that are None into concrete ones
    return [first, launched(made.create_engine_config, "cuda")]


def test_one_object_asked_twice_gets_one_decision(hook: HookServer, p3: str) -> None:
    """The second time nothing is probed, said or changed."""
    first, second = hook.run(ask_twice, model=p3)
    assert second["fields"] == {**first["fields"], "tokenizer": p3}
    assert (second["nvml"], second["lines"]) == ([], [])
    assert second["env"] == first["env"]


def change_and_ask_again(model: str) -> list[Launch]:
    from vllm.engine.arg_utils import EngineArgs

    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    made = EngineArgs(model=model)
    first = launched(made.create_engine_config, "cuda")
    made.max_model_len = 200_000
    return [first, launched(made.create_engine_config, "cuda")]


def test_what_is_set_on_the_object_afterwards_is_the_callers(hook: HookServer, p3: str) -> None:
    """A field that he changes between two calls stands; what was ours before is chosen anew."""
    first, second = hook.run(change_and_ask_again, model=p3)
    assert choice(first) == ("l1m", "widest_fitting")
    assert choice(second) == ("m256k", "requested_length")
    assert taken(second, "max_model_len", "max_num_seqs", "kv_cache_memory_bytes") == [200_000, 4, 8589934592]
    assert second["env"]["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == "200000"


def set_on_the_parsed(model: str) -> Launch:
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    args = parsed(model, "--max-num-seqs", "3")
    args.max_model_len = 30_000
    return launched(lambda: serve_parsed(args), "cuda")


def test_what_a_script_sets_on_the_parsed_arguments_is_the_callers(hook: HookServer, p3: str) -> None:
    """Nobody typed it, and still it is somebody's word."""
    launch = hook.run(set_on_the_parsed, model=p3)
    assert choice(launch) == ("s32k", "requested_length")
    assert taken(launch, "max_model_len", "max_num_seqs") == [30_000, 3]


TWO_KINDS: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "serving_profiles": {
        "default_profile": "plain",
        "profiles": {
            "staged": {
                "max_model_len": 4096,
                "cuda_alloc_conf": "expandable_segments:True",
                "noosphere_mode": "staged",
                "position_plan": {"stages": [{"group": 8}], "clamp": True},
            },
            "plain": {"max_model_len": 2048},
        },
    },
}


def with_and_without(model: str) -> list[Launch]:
    os.environ["ZENIT_POSITION_CLAMP"] = "users"
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    return [engine(model, max_model_len=4000), engine(model), engine(model, max_model_len=4000)]


def test_nothing_of_one_engine_is_left_for_the_next(hook: HookServer, tmp_path: Path) -> None:
    """What was ours goes, what was the user's stays as he set it (what is forgotten)."""
    staged, plain, again = hook.run(with_and_without, model=config_folder(tmp_path, TWO_KINDS))
    assert without_hand_down(staged) == {
        "ZENIT_EFFECTIVE_MAX_MODEL_LEN": "4000",
        "ZENIT_NOOSPHERE_MODE": "staged",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "ZENIT_POSITION_STAGES": '[{"group":8}]',
        "ZENIT_POSITION_CLAMP": "users",
    }
    assert without_hand_down(plain) == {
        "ZENIT_EFFECTIVE_MAX_MODEL_LEN": "2048",
        "ZENIT_POSITION_CLAMP": "users",
    }
    assert without_hand_down(again) == without_hand_down(staged)


def without_hand_down(launch: Launch) -> dict[str, str]:
    return {name: value for name, value in launch["env"].items() if name != "ZENIT_SERVING_DECISION"}


def allocator(model: str, torch_version: str, initialised: bool) -> Launch:
    import torch

    torch.__version__ = torch_version
    torch.cuda._initialized = initialised
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    return engine(model, max_model_len=4000)


def test_the_allocator_variable_is_there_before_an_engine_process_starts(
    hook: HookServer, tmp_path: Path
) -> None:
    """Under its oldest name, which every torch reads; a process that has CUDA already is told (C6-02)."""
    model = config_folder(tmp_path, TWO_KINDS)
    asked = [("2.8.0", False), ("2.9.1", False), ("2.11.0", False), ("2.11.0", True)]
    calls = [(allocator, {"model": model, "torch_version": v, "initialised": late}) for v, late in asked]
    launches = hook.together(*calls)
    for launch in launches:
        assert launch["env"]["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
        assert "PYTORCH_ALLOC_CONF" not in launch["env"]
    late = [line for line in said(launches[-1]).splitlines() if "too late" in line]
    assert len(late) == 1
    assert "PYTORCH_CUDA_ALLOC_CONF" in late[0]
    assert all("too late" not in said(launch) for launch in launches[:-1])


def say_everything(model: str) -> Launch:
    cards(30 * GIB, total_bytes=80 * GIB)
    return serve(model, "--max-num-seqs", "2", "--max-num-batched-tokens", "4096")


def test_every_line_says_its_part(hook: HookServer, p3: str) -> None:
    """Profile, reason, window and figures, what was set and kept, and how to start without; warnings as such."""
    launch = hook.run(say_everything, model=p3)
    assert all(line.startswith(SERIES) for _, line in launch["lines"])
    levels = {line: level for level, line in launch["lines"]}
    assert {level for line, level in levels.items() if line.endswith("]")} == {"WARNING"}
    assert {level for line, level in levels.items() if not line.endswith("]")} == {"INFO"}
    lines = [line.removeprefix(SERIES) for line in levels]
    profile = "profile m256k (widest_fitting): window 262144 tokens, needs 24.00 GiB, "
    assert profile + "30.00 GiB of 80.00 GiB free, budget 29.40 GiB." in lines
    assert "kept as you gave them: max_num_batched_tokens=4096, max_num_seqs=2." in lines
    assert lines[-1] == "To start without profiles: ZENIT_SERVING_PROFILE=off."
    assert codes(launch) == ["measurement_void"]
