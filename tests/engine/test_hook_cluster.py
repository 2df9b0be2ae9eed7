"""When the hook looks at a Ray cluster, and when at the launcher's own cards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.rigs.hook import HookServer, Launch, choice, config_folder, field_config
from tests.rigs.hook_child import cards, parsed, serve
from tests.stage import GIB, card
from zenit_hub.machine import Machine

pytest_plugins = ("tests.rigs.hook_fixtures",)

CLUSTER = Machine("nvml", (card(79, 80, index=0), card(30, 80, index=1)), cluster=True)


def serve_with(model: str, words: list[str]) -> Launch:
    parsed(model, *words)
    sys.modules["zenit_hub.engine.hook"].look_through_ray = lambda: CLUSTER
    cards(79 * GIB, total_bytes=80 * GIB)
    return serve(model, *words)


@pytest.mark.parametrize(
    ("words", "profile"),
    [
        ([], "l1m"),
        (["--distributed-executor-backend", "mp"], "l1m"),
        (["--distributed-executor-backend", "ray"], "m256k"),
        (["--data-parallel-backend", "ray"], "m256k"),
    ],
)
def test_with_the_ray_backend_the_cluster_is_looked_at(
    hook: HookServer, tmp_path: Path, words: list[str], profile: str
) -> None:
    """And the launcher's own cards are not; with any other backend it is the other way round."""
    launch = hook.run(serve_with, model=config_folder(tmp_path / "m", field_config("C1-03a")), words=words)
    assert choice(launch) == (profile, "widest_fitting")
    assert bool(launch["nvml"]) is (profile == "l1m")
