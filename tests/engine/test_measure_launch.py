"""A measured launch of the real engine: the profile forced, phases seen, the whole window answered, nothing left."""

from __future__ import annotations

import os
from pathlib import Path

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import group_is_alive, turn
from zenit_hub.maintain.measure.launch import Order, ServedEngine, find_command
from zenit_hub.maintain.measure.workload import Shape, run_workload
from zenit_hub.maintain.measurement import Answers

WINDOW, BATCH, SEQUENCES = 2048, 512, 4
PROFILE = {
    "max_model_len": WINDOW,
    "max_num_batched_tokens": BATCH,
    "max_num_seqs": SEQUENCES,
    "enable_prefix_caching": True,
    "kv_cache_memory_bytes": 64 * 2**20,
    "enforce_eager": True,
    "requires_free_bytes": 2**50,  # chosen by memory it would not be
}
SECTION = {"default_profile": "other", "profiles": {"measured": PROFILE, "other": {"max_model_len": 512}}}


def shared_memory() -> set[str]:
    return set(os.listdir("/dev/shm"))


def test_a_forced_profile_answers_its_whole_window_and_leaves_nothing(tmp_path: Path) -> None:
    """The largest prompt, the widest batch and all sequences at once, on one boot."""
    model = build_checkpoint(
        tmp_path / "tiny", CheckpointSpec(section=SECTION, section_key="serving_profiles")
    )
    environment = {"VLLM_CACHE_ROOT": str(tmp_path / "cache")}
    order = Order(find_command(), str(model), "measured", tmp_path, environment=environment)
    entered: list[str] = []
    with turn(timeout_s=3000):
        before = shared_memory()
        with ServedEngine(order) as engine:
            engine.start()
            engine.wait_until_ready(300, entered.append)
            engine.enter("workload")
            answers = run_workload(engine, Shape(WINDOW, BATCH, SEQUENCES), 300)
            version = engine.request("/version")
            during = shared_memory()
        after = shared_memory()

    assert entered == ["start", "loading", "kv_cache"], engine.log_text()
    prompts = WINDOW - 16 + SEQUENCES * (2 * BATCH // SEQUENCES + 16)
    assert answers == Answers(9, 9, prompt_tokens=prompts, generated_tokens=16 + SEQUENCES * (16 + 64))
    assert version["version"].startswith("0.")
    assert not group_is_alive(engine.root_pid)
    assert after <= before, f"left in shared memory; while it ran there were {during - before}"
    assert engine.ready_after_s is not None
    assert engine.ready_after_s < engine.ended_after_s
