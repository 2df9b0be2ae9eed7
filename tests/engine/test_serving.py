"""`vllm serve <hub id>` on a real engine: what a person gets who types the id and, at most, one word more."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel
from tests.rigs.hub import LoopbackHub, directory_files
from zenit_hub.device import look_at_host
from zenit_hub.say import REPAIR_ID

ARCHITECTURE = "LomonosovZenitAltayForConditionalGeneration"
WINDOWS = {"narrow": 2048, "middle": 4096, "wide": 8192}

SMALL_POOL = {"VLLM_CPU_KVCACHE_SPACE": "1"}
"""GiB. Left alone, the CPU engine wants 92 % of the node's memory free, whatever else runs on it."""

QUICK = ("--enforce-eager",)
"""Compiling is not what these tests are about."""

Serve = Callable[..., ServedModel]


def section() -> dict[str, Any]:
    """Three windows, of which this host's memory holds two."""
    host = look_at_host().host
    assert host is not None
    needs = {"narrow": 2**30, "middle": 2 * 2**30, "wide": host.total_bytes + 2**30}
    return {
        "default_profile": "narrow",
        "profiles": {
            name: {
                "max_model_len": window,
                "max_num_batched_tokens": 2048,
                "max_num_seqs": 4,
                "enable_prefix_caching": False,
                "kv_cache_memory_bytes": 256 * 2**20,
                "enforce_eager": True,
                "requires_free_bytes": needs[name],
            }
            for name, window in WINDOWS.items()
        },
    }


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackHub]:
    """A hub with three repos: a dense and a hybrid model with profiles, and a model whose section is broken."""
    models = {
        "zenit/dense": CheckpointSpec(section=section()),
        "zenit/hybrid": CheckpointSpec(kind="hybrid", section=section()),
        "zenit/corrupt": CheckpointSpec(section={"profiles": "oops"}),
    }
    with LoopbackHub() as loopback:
        for repo, spec in models.items():
            folder = tmp_path_factory.mktemp("checkpoint")
            whole = CheckpointSpec(
                kind=spec.kind,
                section=spec.section,
                max_position_embeddings=8192,
                architectures_before=(ARCHITECTURE,),
            )
            build_checkpoint(folder, whole)
            loopback.create(repo, directory_files(folder))
        yield loopback


@pytest.fixture
def serve(hub: LoopbackHub, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """Start ``vllm serve`` with the given words and variables against the hub."""
    home = tmp_path_factory.getbasetemp() / "hf-home"

    def start(*words: str, **variables: str) -> ServedModel:
        return ServedModel(list(words), {**hub.environment(home=home), **variables}, tmp_path / "engine.log")

    return start


def ours(served: ServedModel) -> list[str]:
    """The lines that the plug-in wrote into vLLM's log, without what vLLM puts in front."""
    lines = served.log_text().splitlines()
    return [line[line.index(REPAIR_ID) + len(REPAIR_ID) + 1 :] for line in lines if REPAIR_ID in line]


def engine_config(served: ServedModel) -> str:
    """The configuration that vLLM's engine says it starts with."""
    found = re.search(r"Initializing a V1 LLM engine .*? with config: (.*)", served.log_text())
    assert found is not None
    return found[1]


def test_nothing_but_the_id(serve: Serve) -> None:
    """The widest window that the host's memory holds is served, said once, and answers."""
    with serve("zenit/dense") as served:
        assert served.window == WINDOWS["middle"]
        assert f"max_seq_len={WINDOWS['middle']}" in engine_config(served)
        assert served.complete("Once upon a time", max_tokens=8)
        said = [line for line in ours(served) if line.startswith("profile ")]
        assert len(said) == 1
        assert said[0].startswith("profile middle (widest_fitting): window 4096 tokens")
        assert ours(served)[-1].endswith("ZENIT_SERVING_PROFILE=off.")


def test_a_length_and_a_typed_default(serve: Serve) -> None:
    """A length is kept and served by the smallest profile that holds it; 0.92 typed stays, though it is the default."""
    with serve("zenit/dense", "--max-model-len", "3000", "--gpu-memory-utilization", "0.92") as served:
        assert served.window == 3000
        lines = ours(served)
        assert any(line.startswith("profile middle (requested_length)") for line in lines)
        kept = next(line for line in lines if line.startswith("kept as you gave them"))
        assert "max_model_len=3000" in kept
        written = next(line for line in lines if line.startswith("set:"))
        assert "gpu_memory_utilization" not in written
        assert "max_num_seqs=4" in written


def test_a_profile_by_name_on_a_hybrid_model(serve: Serve) -> None:
    """ZENIT_SERVING_PROFILE is obeyed, although a wider window fits."""
    with serve("zenit/hybrid", ZENIT_SERVING_PROFILE="narrow") as served:
        assert served.window == WINDOWS["narrow"]
        assert any(line.startswith("profile narrow (forced)") for line in ours(served))
        assert served.complete("Once upon a time", max_tokens=8)


def test_off_is_no_plugin(serve: Serve) -> None:
    """`off` starts the same engine as a vLLM that does not load the plug-in, without a word."""
    with serve("zenit/dense", *QUICK, ZENIT_SERVING_PROFILE="off", **SMALL_POOL) as served:
        switched_off, window = engine_config(served), served.window
        assert ours(served) == []
    with serve("zenit/dense", *QUICK, VLLM_PLUGINS="none", **SMALL_POOL) as served:
        assert engine_config(served) == switched_off
        assert served.window == window == WINDOWS["wide"]


def test_a_corrupt_section(serve: Serve) -> None:
    """vLLM starts with its own values, and one line says why and what to type."""
    with serve("zenit/corrupt", *QUICK, **SMALL_POOL) as served:
        assert served.window == WINDOWS["wide"]
        (line,) = ours(served)
        assert "profiles must be an object of profiles, got a string" in line
        assert "zenit-hub validate" in line
