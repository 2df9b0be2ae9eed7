"""What the machine is: capability, what could be seen, nodes that cannot agree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import (
    GIB,
    NO_DRIVER,
    PAIR,
    THREE,
    as_json,
    asked,
    card,
    cards,
    config,
    forced,
    host,
    measured,
    name,
    needs,
    never,
    sentence,
    told,
    verdicts,
)
from zenit_hub.decision import Reason
from zenit_hub.machine import Machine

# --- capability


@pytest.mark.parametrize(
    ("capability", "takes_part"),
    [((8, 9), True), ((9, 0), True), ((12, 0), True), ((8, 6), False), ((7, 5), False), (None, True)],
)
def test_a_card_below_the_capability_excludes_the_profile_and_an_unknown_one_nothing(
    capability: tuple[int, int] | None, takes_part: bool
) -> None:
    """12.0 is above 8.9."""
    section = config({"p": needs(10, requires_compute_capability="8.9")})

    found = asked(section, Machine("machine", (card(30, compute_capability=capability),)))

    assert (name(found) == "p") is takes_part
    assert (verdicts(found)["p"] == "compute_capability") is not takes_part


def test_the_weakest_rank_decides_the_capability() -> None:
    """All ranks run the same kernels."""
    both = Machine("machine", (card(30), card(30, index=1, compute_capability=(8, 0))))
    section = config({"p": needs(10, requires_compute_capability="9.0")})

    assert name(asked(section, both, typed={"tensor_parallel_size": 2})) is None
    assert name(asked(section, both)) is None
    assert name(asked(section, both, environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})) == "p"


def test_a_capability_means_nothing_off_cuda() -> None:
    """On the CPU platform, and where nothing is looked at."""
    section = config({"p": needs(10, requires_compute_capability="9.0")}, default_profile="p")

    assert name(asked(section, host(30, 32), platform="cpu")) == "p"
    assert name(asked(section, never, platform="rocm")) == "p"


# --- the sight


def test_planning_for_the_fullest_card_that_it_could_be_is_said() -> None:
    """With the card, its figure and what to set."""
    machine = Machine("machine", (card(30, 32), card(15, 80, index=1, name="Card B")))

    found = asked(THREE, machine)

    assert name(found) == "narrow"
    assert "Card B (15.00 GiB of 80.00 GiB are free)" in sentence(found, "cuda_order_ambiguous")
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in sentence(found, "cuda_order_ambiguous")


@pytest.mark.parametrize(
    ("machine", "environment", "device_ids", "code"),
    [
        (cards(30), {"CUDA_VISIBLE_DEVICES": "GPU-f"}, None, "device_unresolved"),
        (cards(30), {}, [3], "device_unresolved"),
        (cards(30), {"CUDA_VISIBLE_DEVICES": ""}, None, "memory_unknown"),
        (cards(None), {}, None, "memory_unknown"),
        (NO_DRIVER, {}, None, "memory_unknown"),
    ],
)
def test_what_could_not_be_seen_is_said_by_its_kind(
    machine: Machine, environment: dict[str, str], device_ids: list[int | str] | None, code: str
) -> None:
    """A name that names nothing, and memory that nobody tells."""
    found = asked(THREE, machine, environment=environment, device_ids=device_ids)

    assert (found.reason, told(found) & {"device_unresolved", "memory_unknown"}) == ("default", {code})


@pytest.mark.parametrize("platform", ["rocm", "xpu", "unspecified"])
def test_other_platforms_are_not_looked_at(platform: Any) -> None:
    """The default, its own utilization, nothing said of memory."""
    found = asked(THREE, never, platform=platform)

    assert (name(found), found.reason, told(found)) == ("narrow", "default", set())
    assert as_json(found)["memory"] is None


def test_the_host_is_the_device_of_the_cpu_platform() -> None:
    """Cards mean nothing there, nor does the order of theirs; ``cpu`` is the name of its measurements."""
    entry = {"device": "cpu", "requires_free_bytes": 5 * GIB}
    section = config({"p": needs(40, 8192, measurements=[entry]), "q": needs(1)})

    found = asked(section, host(10, 20), platform="cpu", environment={"CUDA_VISIBLE_DEVICES": ""})

    assert (name(found), found.decision.fits) == ("p", True)
    assert as_json(found)["memory"]["devices"][0]["name"] == "cpu"


# --- nodes that cannot agree

APART = [
    {"nnodes": 2},
    {"headless": True},
    {"data_parallel_size": 4, "data_parallel_size_local": 2},
    {"data_parallel_size": 4, "data_parallel_size_local": 0},
    {"data_parallel_size": 2, "data_parallel_rank": 1},
    {"distributed_executor_backend": "external_launcher"},
]


@pytest.mark.parametrize("typed", APART)
def test_nodes_apart_take_the_default_without_a_look_and_without_a_clamp(typed: dict[str, object]) -> None:
    """The same on every node, whatever it has; once said."""
    section = config(
        {"u": needs(10, 4096, gpu_memory_utilization=0.95), "w": needs(1, 8192)}, default_profile="u"
    )

    found = asked(section, never, typed=typed)

    assert (name(found), found.reason, found.decision.fits) == ("u", "default", None)
    assert found.filling.set["gpu_memory_utilization"] == 0.95
    assert told(found) == {"multi_node_uncoordinated"}
    assert as_json(found)["memory"] is None


@pytest.mark.parametrize(
    "typed",
    [
        {"nnodes": 1},
        {"headless": False},
        {"data_parallel_size": 4, "data_parallel_size_local": 4},
        {"data_parallel_size": 1, "data_parallel_rank": 0},
        {"distributed_executor_backend": "ray"},
        {"nnodes": True},
        {"nnodes": "2"},
    ],
)
def test_one_node_and_a_ray_cluster_are_looked_at(typed: dict[str, object]) -> None:
    """Ray is asked node by node."""
    assert "multi_node_uncoordinated" not in told(asked(THREE, cards(30, 30, 30, 30), typed=typed))


@pytest.mark.parametrize(
    ("typed", "environment", "profile", "reason"),
    [
        ({"max_model_len": 5000}, {}, "wide", "requested_length"),
        ({"max_model_len": 10**6}, {}, "widest", "requested_beyond_widest"),
        ({"max_model_len": -1}, {}, "narrow", "default"),
        ({}, forced("widest"), "widest", "forced"),
        ({"max_model_len": 5000}, forced("narrow"), "narrow", "forced"),
    ],
)
def test_nodes_apart_choose_by_name_then_by_length_then_the_default(
    typed: dict[str, int], environment: dict[str, str], profile: str, reason: Reason
) -> None:
    """Of equal windows the smaller need; capability and pools above some card mean nothing."""
    section = config(
        {
            "narrow": needs(10, 4096, requires_compute_capability="12.0"),
            "wider": needs(30, 8192),
            "wide": needs(20, 8192, kv_cache_memory_bytes=10**15, requires_compute_capability="12.0"),
            "widest": needs(50, 16384),
        },
        default_profile="narrow",
    )

    found = asked(section, never, typed={"nnodes": 2, **typed}, environment=environment)

    assert (name(found), found.reason) == (profile, reason)


@pytest.mark.parametrize(("typed", "profile"), [({}, None), ({"tensor_parallel_size": 2}, "pair")])
def test_nodes_apart_take_a_default_of_several_devices_only_where_its_layout_was_typed(
    typed: dict[str, int], profile: str | None
) -> None:
    """How many cards a node has must not matter."""
    section = config({"pair": needs(10, 4096, **PAIR), "one": needs(10)}, default_profile="pair")

    found = asked(section, never, typed={"nnodes": 2, **typed})

    assert name(found) == profile
    assert told(found) == {"multi_node_uncoordinated"}


def test_nodes_apart_ignore_what_only_one_card_was_measured_for() -> None:
    """A figure of this node's card may not be that of the other's."""
    section = config(
        {
            "a": needs(20, 8192, **measured(20, Card_A=1)),
            "b": needs(10, 8192),
        }
    )

    assert name(asked(section, never, typed={"nnodes": 2, "max_model_len": 1})) == "b"
