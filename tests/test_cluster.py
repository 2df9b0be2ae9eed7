"""What the cards of a Ray cluster mean for a decision. How they are asked: tests/engine/test_cluster.py."""

from __future__ import annotations

import sys

import pytest

from tests.stage import GIB, asked, card, config, name, needs, sentence
from zenit_hub.engine.cluster import look_at_cluster
from zenit_hub.machine import Machine


def test_without_ray_there_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """No child is started to find that out."""
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr("subprocess.Popen", None)
    assert look_at_cluster() is None


UNLIKE = Machine(
    "nvml",
    (
        card(79, 80, index=0, name="Card A"),
        card(31, 80, index=1, name="Card A"),
        card(30, 32, index=2, name="Card B"),
    ),
    cluster=True,
)


def test_each_card_must_do_for_any_rank() -> None:
    """The smallest budget is not that of the least free memory alone: 0.9 of 32 GiB are less than 31 GiB."""
    profiles = {"wide": needs(29.5, 8192), "narrow": needs(25)}
    found = asked(config(profiles), UNLIKE, typed={"gpu_memory_utilization": 0.9})
    assert name(found) == "narrow"
    assert found.chosen is not None
    assert found.chosen.worst is not None
    assert found.chosen.worst.name == "Card B"


def test_a_cards_own_measurement_counts_on_that_card() -> None:
    """One of three has a larger need of its own, and it may be the one."""
    measured = [{"device": "Card B", "requires_free_bytes": 31 * GIB}]
    profiles = {"wide": needs(20, 8192, measurements=measured), "narrow": needs(19)}
    assert name(asked(config(profiles), UNLIKE)) == "narrow"


def test_the_variables_of_the_head_hide_no_card_of_a_cluster() -> None:
    """Neither CUDA_VISIBLE_DEVICES nor --device-ids is about the other nodes."""
    found = asked(
        config({"only": needs(20)}),
        UNLIKE,
        environment={"CUDA_VISIBLE_DEVICES": "0"},
        device_ids=[0],
        typed={"tensor_parallel_size": 3},
    )
    assert found.chosen is not None
    assert len(found.chosen.ranks.cards) == 3


def test_a_launch_needs_as_many_cards_as_ranks() -> None:
    """What a fourth rank would run on is not known."""
    found = asked(config({"only": needs(20)}), UNLIKE, typed={"tensor_parallel_size": 4})
    assert "needs 4 devices and 3 are visible" in sentence(found, "memory_unknown")
