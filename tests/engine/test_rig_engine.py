"""The rigs against the real engine: a tiny checkpoint from a folder answers, and nothing stays behind."""

from __future__ import annotations

from pathlib import Path

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel, group_is_alive

ARGUMENTS = ["--max-model-len", "2048", "--kv-cache-memory-bytes", "64M", "--enforce-eager"]


def test_a_tiny_checkpoint_is_served_and_its_engine_leaves_nothing_behind(tmp_path: Path) -> None:
    """ZENIT's own architecture, which the engine does not know, may stand before the one that it serves."""
    spec = CheckpointSpec(architectures_before=("LomonosovZenitAltayForConditionalGeneration",))
    model = build_checkpoint(tmp_path / "tiny", spec)
    with ServedModel([str(model), *ARGUMENTS], env={}, log=tmp_path / "engine.log") as served:
        first = served.complete("Once upon a time", max_tokens=12)
        again = served.complete("Once upon a time", max_tokens=12)
        reply = served.chat("Who are you?", max_tokens=12)
        window = served.window
        assert group_is_alive(served.process_group)
    assert first
    assert first == again
    assert reply
    assert window == 2048
    assert "Application startup complete" in served.log_text()
    assert not group_is_alive(served.process_group)
