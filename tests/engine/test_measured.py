"""What a measured engine says of its memory, and how it pins a KV cache that its profile does not."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel
from tests.rigs.hook import FOLDER_VARIABLE, HookServer
from tests.rigs.hook_child import own_config
from tests.rigs.hook_server import OUTPUT
from zenit_hub import env
from zenit_hub.engine import measured
from zenit_hub.maintain.measure.engine_report import (
    EngineReport,
    read_report,
    report_environment,
    report_words,
)
from zenit_hub.maintain.measure.reasons import parse_failure

pytest_plugins = ("tests.rigs.hook_fixtures",)

MIB = 2**20
SEQUENCES = 24
WINDOW = 2048
PROFILE = {
    "max_model_len": WINDOW,
    "max_num_batched_tokens": WINDOW,
    "max_num_seqs": SEQUENCES,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "gpu_memory_utilization": 0.1,
}
"""The utilization is what a start without a pin would take, should pinning fail."""


# --- two real engines


def served(spec: CheckpointSpec, folder: Path) -> ServedModel:
    """An engine that accounts for its memory in ``folder``."""
    model = build_checkpoint(folder / "model", spec)
    environment = {env.PROFILE: "p", **report_environment(folder)}
    return ServedModel([str(model), *report_words()], environment, folder / "engine.log")


def spec_of(kind: Any, **values: object) -> CheckpointSpec:
    section = {"profiles": {"p": {**PROFILE, **values}}}
    return CheckpointSpec(kind=kind, section=section, section_key="serving_profiles")


def completed(engine: ServedModel, prompts: list[list[int]], generated: int) -> dict[str, int]:
    """Complete all prompts at once; the tokens that were counted."""
    body = {
        "model": engine.models()["data"][0]["id"],
        "prompt": prompts,
        "max_tokens": generated,
        "temperature": 0,
        "ignore_eos": True,
    }
    usage: dict[str, int] = engine.request("/v1/completions", body)["usage"]
    return usage


def most_at_once(engine: ServedModel, work: Callable[[], object]) -> int:
    """The most requests that the engine ran in one step while ``work`` went on."""
    loopback = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    worker = threading.Thread(target=work)
    worker.start()
    most = 0
    while worker.is_alive():
        with loopback.open(f"http://127.0.0.1:{engine.port}/metrics", timeout=60) as answer:
            running = re.findall(r"(?m)^vllm:num_requests_running\{.*\} (\d+)", answer.read().decode())
        most = max(most, *map(int, running))
        time.sleep(0.02)
    worker.join()
    return most


def weights(folder: Path) -> Any:
    """The size of the checkpoint, and of the tables that a model makes itself (positions: half a MiB)."""
    return pytest.approx((folder / "model" / "model.safetensors").stat().st_size, abs=MIB)


def account(folder: Path) -> dict[str, int]:
    written: dict[str, int] = json.loads((folder / "kv_cache.json").read_text())
    return written


def test_an_engine_without_a_pin_pins_what_it_needs(tmp_path: Path) -> None:
    """The window is answered and all sequences run at once, with a pool of that size and no other."""
    with served(spec_of("hybrid"), tmp_path) as engine:
        window = engine.window
        usage = completed(engine, [[7] * (WINDOW - 8)], 8)
        prompts = [[7 + number] * 16 for number in range(SEQUENCES)]
        at_once = most_at_once(engine, lambda: completed(engine, prompts, 96))
        report = read_report(engine, tmp_path)
        log = engine.log_text()

    needed_bytes = report.needed_kv_bytes
    assert needed_bytes is not None
    assert needed_bytes % MIB == 0
    assert account(tmp_path) == {"needed_bytes": needed_bytes, "pinned_bytes": needed_bytes}
    assert (window, usage["total_tokens"], at_once) == (WINDOW, WINDOW, SEQUENCES)
    assert report.kv_cache_bytes is not None
    # Whole blocks of it; one block of this checkpoint is smaller than a MiB.
    assert needed_bytes - 2 * MIB < report.kv_cache_bytes <= needed_bytes
    assert report.weights_bytes == weights(tmp_path)
    assert report.cuda_graphs_bytes == 0
    assert report.activation_peak_bytes is None  # a CPU's allocator counts nothing
    assert "does not tell" not in log


def test_an_engine_with_a_pin_keeps_it(tmp_path: Path) -> None:
    """What it needs is said beside it."""
    pin_bytes = 96 * MIB
    with served(spec_of("dense", kv_cache_memory_bytes=pin_bytes), tmp_path) as engine:
        usage = completed(engine, [[7] * (WINDOW - 8)], 8)
        report = read_report(engine, tmp_path)

    assert usage["total_tokens"] == WINDOW
    assert account(tmp_path) == {"needed_bytes": report.needed_kv_bytes, "pinned_bytes": pin_bytes}
    assert report.needed_kv_bytes is not None
    assert 0 < report.needed_kv_bytes < pin_bytes
    assert report == EngineReport(
        weights_bytes=weights(tmp_path),
        kv_cache_bytes=pytest.approx(pin_bytes, abs=MIB),
        activation_peak_bytes=None,
        cuda_graphs_bytes=0,
        needed_kv_bytes=report.needed_kv_bytes,
    )


# --- where it is put in


def registrations(folder: str) -> dict[str, bool]:
    """The class of vLLM's executors before and after the plug-in was asked to account."""
    from vllm.v1.executor.abstract import Executor

    from zenit_hub.plugin import register

    own: Any = Executor.__init__
    register()
    unasked = Executor.__init__ is own
    os.environ[env.MEASURE_REPORT] = folder
    register()
    register()
    patched: Any = Executor.__init__
    return {"unasked": unasked, "asked": patched is not own, "once": patched.__wrapped__ is own}


def test_only_a_measured_engine_is_patched_and_once(hook: HookServer, tmp_path: Path) -> None:
    """Serving never sees it."""
    assert hook.run(registrations, folder=str(tmp_path)) == {"unasked": True, "asked": True, "once": True}


# --- vLLM's planner, without an engine


def config_of(model: str, *, window: int = 4096, sequences: int = 8) -> Any:
    """vLLM's own config for a launch, as the engine core has it when it plans the pool."""
    from vllm.engine.arg_utils import EngineArgs

    made = EngineArgs(model=model, max_model_len=window, max_num_seqs=sequences, kv_cache_memory_bytes=MIB)
    config = own_config(made)
    if hasattr(config.cache_config, "kv_cache_layout"):
        config.cache_config.kv_cache_layout = "LBNHC"
    return config


def attention(block_tokens: int = 16) -> Any:
    """A layer whose block has 256 KiB for 16 tokens."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return FullAttentionSpec(block_size=block_tokens, num_kv_heads=32, head_size=128, dtype=torch.bfloat16)


def state(page_bytes: int) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import MambaSpec

    return MambaSpec(block_size=4096, shapes=((page_bytes // 4,),), dtypes=(torch.float32,))


def refusal(function: Callable[..., Any], *arguments: Any) -> str:
    """What vLLM says when it refuses."""
    try:
        function(*arguments)
    except ValueError as error:
        return f"ValueError: {error}"
    return ""


def plan_all(model: str) -> dict[str, Any]:
    """What is asked of vLLM's planner in this module: importing the engine core takes a while."""
    import vllm.v1.engine.core
    from vllm.v1.worker.utils import request_memory

    assert vllm.v1.engine.core
    config, two = config_of(model), [{"a": attention(), "b": attention()}]
    hybrid = [{"full": attention(128), "state": state(2 * MIB)}]
    plan = measured._planner(config, two)
    needed_bytes = measured.needed_kv_bytes(config, two)
    counted, fitted = config_of(model), config_of(model)
    counted.cache_config.num_gpu_blocks_override = 100
    fitted.model_config.original_max_model_len = -1
    written = len(output())
    mixed = measured.needed_kv_bytes(config, [{"a": attention(), "b": state(MIB // 4)}])
    said = output()[written:]
    config.cache_config.gpu_memory_utilization = 0.9
    card = SimpleNamespace(total_memory=32 * 2**30, free_memory=11 * 2**30, device_="cuda:0")
    return {
        "two": needed_bytes,
        "blocks": min(each.num_blocks for each in plan(needed_bytes)),
        "less": refusal(plan, needed_bytes - MIB) or min(x.num_blocks for x in plan(needed_bytes - MIB)),
        "few": measured.needed_kv_bytes(config_of(model, sequences=2), hybrid),
        "many": measured.needed_kv_bytes(config_of(model, sequences=64), hybrid),
        "stages": measured.needed_kv_bytes(config, [{"a": attention()}, {"b": attention()}]),
        "uneven": measured.needed_kv_bytes(
            config, [{"a": attention()}, {"b": attention(), "c": attention()}]
        ),
        "mixed": mixed,
        "said": said,
        "window": config.model_config.max_model_len,
        "none": [
            measured.needed_kv_bytes(counted, two),
            measured.needed_kv_bytes(fitted, two),
            measured.needed_kv_bytes(config, [{}]),
        ],
        "too_small": refusal(plan, 64 * MIB),
        "no_memory": refusal(plan, 0),
        "not_admitted": refusal(request_memory, card, config.cache_config),
    }


def output() -> str:
    """What this process has written so far."""
    return (Path(os.environ[FOLDER_VARIABLE]) / OUTPUT).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def planned(hook: HookServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    model = build_checkpoint(tmp_path_factory.mktemp("model"))
    answers: dict[str, Any] = hook.run(plan_all, model=str(model))
    return answers


def test_one_request_of_the_window_and_the_block_kept_back(planned: dict[str, Any]) -> None:
    """4096 tokens in 256 blocks of two layers, and one that vLLM keeps back: 128.5 MiB."""
    assert planned["two"] == 129 * MIB
    assert planned["blocks"] == 258
    assert (
        planned["less"] == 256 or "max seq len" in planned["less"]
    )  # vLLM itself counts that block since 0.29


def test_recurrent_layers_need_their_states_for_all_sequences(planned: dict[str, Any]) -> None:
    """A short window and many sequences: each begins with a block of either kind."""
    assert planned["few"] == (32 + 1 + 1) * 2 * MIB
    assert planned["many"] == (64 * 2 + 1) * 2 * MIB


def test_pipeline_stages_get_what_the_largest_needs(planned: dict[str, Any]) -> None:
    """The pin is the same on every rank, and so is the number of blocks."""
    assert planned["stages"] == 65 * MIB
    assert planned["uneven"] == 129 * MIB


def test_planning_leaves_nothing_behind(planned: dict[str, Any]) -> None:
    """Neither a changed window nor a line for each try."""
    assert planned["mixed"] is not None
    assert planned["window"] == 4096
    assert planned["said"] == ""


def test_a_pool_that_the_profile_does_not_decide_has_no_need(planned: dict[str, Any]) -> None:
    """A number of blocks from the command line, a length that vLLM fits itself, no cache at all."""
    assert planned["none"] == [None, None, None]


def test_vllm_s_own_words_are_understood(planned: dict[str, Any]) -> None:
    """The messages of the installed version, with their numbers."""
    too_small = parse_failure(planned["too_small"], 1)
    refused = parse_failure(planned["not_admitted"], 1)

    assert too_small.kind == "kv_cache_too_small"
    assert too_small.numbers["max_model_len"] == 4096
    assert too_small.numbers["needed_gib"] in (0.12, 0.13)
    assert too_small.numbers["available_gib"] == 0.06
    assert 1900 < (too_small.numbers["estimated_max_model_len"] or 0) <= 2048
    assert parse_failure(planned["no_memory"], 1).kind == "no_kv_cache_memory"
    assert refused.kind == "not_admitted"
    assert refused.numbers == {"free_gib": 11.0, "total_gib": 32.0, "utilization": 0.9, "needed_gib": 28.8}
