"""One launch on several nodes or with Ray: they decide alike, and the workers get what the launcher set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.checkpoints import CheckpointSpec, checkpoint_config
from tests.rigs.hook import HookServer, Launch, choice, codes, config_folder, field_config, taken
from tests.rigs.hook_child import cards, rig, serve, vllm_goes_on

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL, GIB = 85899345920, 1 << 30
ZENIT = "LomonosovZenitAltayForConditionalGeneration"


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def node(model: str, words: list[str], free_bytes: int | None, environment: dict[str, str]) -> Launch:
    os.environ.update(environment)
    if free_bytes is None:
        rig().put({"driver_error": "LibraryNotFound"})
    else:
        cards(*[free_bytes] * 4, total_bytes=H100_TOTAL)
    return serve(model, *words)


@pytest.mark.parametrize(("forced", "profile"), [(None, "s32k"), ("m256k", "m256k")])
def test_two_nodes_decide_alike(hook: HookServer, p3: str, forced: str | None, profile: str) -> None:
    """Whatever is free on each: the default or the forced one, its own utilization, said once a node (C3-01)."""
    environment = {"ZENIT_SERVING_PROFILE": forced} if forced else {}
    both = ["--nnodes", "2", "-tp", "2", "--node-rank"]
    head, worker = hook.together(
        (node, {"model": p3, "words": [*both, "0"], "free_bytes": 83751862272, "environment": environment}),
        (
            node,
            {
                "model": p3,
                "words": [*both, "1", "--headless"],
                "free_bytes": 32212254720,
                "environment": environment,
            },
        ),
    )
    assert (head["headless"], worker["headless"]) == (False, True)
    assert {**worker["fields"], "node_rank": 0} == head["fields"]
    for launch in (head, worker):
        assert choice(launch) == (profile, "forced" if forced else "default")
        assert taken(launch, "gpu_memory_utilization") == [0.92]
        assert codes(launch).count("multi_node_uncoordinated") == 1
        assert launch["nvml"] == []


@pytest.mark.parametrize("head_free_bytes", [None, 78 * GIB], ids=["no NVML", "a card of its own"])
def test_a_head_that_only_routes_decides_as_its_engines_do(
    hook: HookServer, p3: str, head_free_bytes: int | None
) -> None:
    """Fewer local engines than all cannot agree: the same fields, no NVML error and no clamp (C3-02)."""
    routes = ["--data-parallel-size", "4", "--data-parallel-size-local"]
    head, engines = hook.together(
        (node, {"model": p3, "words": [*routes, "0"], "free_bytes": head_free_bytes, "environment": {}}),
        (
            node,
            {"model": p3, "words": [*routes, "4", "--headless"], "free_bytes": 78 * GIB, "environment": {}},
        ),
    )
    own = {"data_parallel_size_local", "_api_process_count", "_api_process_rank"}
    differ = {name for name, value in head["fields"].items() if engines["fields"][name] != value}
    assert differ <= own
    for launch in (head, engines):
        assert choice(launch) == ("s32k", "default")
        assert taken(launch, "gpu_memory_utilization") == [0.92]
        assert codes(launch) == ["multi_node_uncoordinated"]
        assert launch["nvml"] == []


def config_hash(model: str, words: list[str]) -> Launch:
    vllm_goes_on()
    cards(*[78 * GIB] * 4, total_bytes=H100_TOTAL)
    return serve(model, *words)


def test_the_engines_accept_the_heads_config(hook: HookServer, tmp_path: Path) -> None:
    """vLLM compares the hashes of the nodes' own configurations: they are equal (C3-02)."""
    section = field_config("C1-03a")["lomonosov_serving_profiles"]
    spec = CheckpointSpec(section=section, max_position_embeddings=1010000, architectures_before=(ZENIT,))
    model = config_folder(tmp_path, checkpoint_config(spec))
    words = ["--skip-tokenizer-init", "--data-parallel-size", "4", "--data-parallel-size-local"]
    head, engines, narrower = hook.together(
        (config_hash, {"model": model, "words": [*words, "0"]}),
        (config_hash, {"model": model, "words": [*words, "4", "--headless"]}),
        (config_hash, {"model": model, "words": [*words, "4", "--headless", "--max-model-len", "16384"]}),
    )
    assert taken(head, "max_model_len", "kv_cache_dtype") == [32768, "fp8"]
    assert head["config_hash"] == engines["config_hash"] != narrower["config_hash"]


RAY: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "serving_profiles": {
        "default_profile": "a",
        "profiles": {"a": {"max_model_len": 4096, "cuda_alloc_conf": "expandable_segments:True"}},
    },
}


def with_backend(model: str, backend: str) -> tuple[Launch, list[str]]:
    from vllm.ray.ray_env import get_env_vars_to_copy

    os.environ["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] = "MY_FLAG"
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    launch = serve(model, "--distributed-executor-backend", backend)
    return launch, sorted(get_env_vars_to_copy())


def test_ray_workers_get_the_variables_and_not_the_decision(hook: HookServer, tmp_path: Path) -> None:
    """The caller's names first, then ours in the table's order; with mp nothing is touched (C3-05)."""
    model = config_folder(tmp_path, RAY)
    launch, copied = hook.run(with_backend, model=model, backend="ray")
    names = "MY_FLAG,ZENIT_EFFECTIVE_MAX_MODEL_LEN,PYTORCH_CUDA_ALLOC_CONF"
    assert launch["env"]["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] == names
    assert set(names.split(",")) <= set(copied)
    assert "ZENIT_SERVING_DECISION" in launch["env"]
    assert "ZENIT_SERVING_DECISION" not in copied
    launch, copied = hook.run(with_backend, model=model, backend="mp")
    assert launch["env"]["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] == "MY_FLAG"
    assert "PYTORCH_CUDA_ALLOC_CONF" not in copied


def another_engine(model: str, environment: dict[str, str]) -> Launch:
    os.environ.update(environment)
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    return serve(model, "--distributed-executor-backend", "ray")


def with_ray(model: str) -> dict[str, str]:
    os.environ["VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"] = "MY_FLAG"
    return dict(another_engine(model, {})["env"])


def test_a_child_with_another_engine_forgets_what_its_parent_set(hook: HookServer, tmp_path: Path) -> None:
    """Of the inherited variables ours go, and the caller's names for Ray stay."""
    environment = hook.run(with_ray, model=config_folder(tmp_path / "ray", RAY))
    plain = {"a": {"max_model_len": 2048}}
    section = {**RAY["serving_profiles"], "profiles": plain}
    model = config_folder(tmp_path / "plain", {**RAY, "serving_profiles": section})
    launch = hook.run(another_engine, model=model, environment=environment)
    del launch["env"]["ZENIT_SERVING_DECISION"]
    assert launch["env"] == {
        "ZENIT_EFFECTIVE_MAX_MODEL_LEN": "2048",
        "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY": "MY_FLAG,ZENIT_EFFECTIVE_MAX_MODEL_LEN",
    }
