"""The variables that a launch publishes: only what is unset, and nothing that collides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import (
    GIB,
    PAIR,
    asked,
    cards,
    config,
    needs,
    told,
    unrated,
)
from zenit_hub import env
from zenit_hub.apply import split_allocator

PINNED = {"kv_cache_memory_bytes": GIB}
WINDOW = "ZENIT_EFFECTIVE_MAX_MODEL_LEN"


def one(profile: dict[str, object]) -> dict[str, Any]:
    """A section of one profile that is also the default."""
    return config({"p": profile}, default_profile="p")


@pytest.mark.parametrize(
    ("typed", "window"),
    [
        ({}, "4096"),
        ({"max_model_len": 100}, "100"),
        ({"max_model_len": -1}, "4096"),
        ({"max_model_len": 9999}, "9999"),
    ],
)
def test_the_window_that_the_engine_will_run_with_is_published(typed: dict[str, int], window: str) -> None:
    """The caller's length, else the profile's; under auto the profile's."""
    assert asked(one(unrated(4096)), cards(31), typed=typed).filling.env[WINDOW] == window


FLAT = {
    "group": 4,
    "first_pair": 8.0,
    "last_pair": 23,
    "faithful_prefix": True,
    "clamp": 1e22,
    "table_positions": 7,
}


def test_the_flat_plan_is_written_as_python_writes_it() -> None:
    """In the table's order."""
    found = asked(one(unrated(4096, noosphere_mode="deep.1", position_plan=FLAT)), cards(31))

    assert list(found.filling.env.items()) == [
        (WINDOW, "4096"),
        ("ZENIT_NOOSPHERE_MODE", "deep.1"),
        ("ZENIT_POSITION_GROUP", "4"),
        ("ZENIT_POSITION_GROUP_FIRST_PAIR", "8.0"),
        ("ZENIT_POSITION_GROUP_LAST_PAIR", "23"),
        ("ZENIT_POSITION_FAITHFUL_PREFIX", "True"),
        ("ZENIT_POSITION_CLAMP", "1e+22"),
        ("ZENIT_ROPE_TABLE_POSITIONS", "7"),
    ]


@pytest.mark.parametrize("there", [{}, {"ZENIT_POSITION_STAGES": "[]"}])
def test_with_stages_no_flat_key_is_published(there: dict[str, str]) -> None:
    """Ours or the caller's own; ``table_positions`` included."""
    plan = FLAT | ({} if there else {"stages": [{"group": 2}]})

    found = asked(one(unrated(4096, position_plan=plan)), cards(31), environment=there)

    assert set(found.filling.env) == {WINDOW} | (set() if there else {"ZENIT_POSITION_STAGES"})
    assert found.filling.env.get("ZENIT_POSITION_STAGES") == (None if there else '[{"group":2}]')


def test_empty_stages_are_none() -> None:
    """The flat keys count."""
    found = asked(one(unrated(4096, position_plan={"stages": [], "group": 4})), cards(31))

    assert "ZENIT_POSITION_STAGES" not in found.filling.env
    assert found.filling.env["ZENIT_POSITION_GROUP"] == "4"


def test_what_the_caller_has_set_stands_also_where_it_is_empty() -> None:
    """Name by name."""
    there = {"ZENIT_NOOSPHERE_MODE": "", "ZENIT_POSITION_GROUP": "9", WINDOW: "1"}

    found = asked(
        one(unrated(4096, noosphere_mode="deep", position_plan={"group": 4, "clamp": 1})),
        cards(31),
        environment=there,
    )

    assert dict(found.filling.env) == {"ZENIT_POSITION_CLAMP": "1"}


@pytest.mark.parametrize(
    "spelling", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"]
)
@pytest.mark.parametrize("value", ["", "max_split_size_mb:128"])
def test_an_allocator_setting_of_the_callers_in_any_spelling_stands(spelling: str, value: str) -> None:
    """PyTorch reads all three."""
    profile = unrated(4096, cuda_alloc_conf="expandable_segments:True")

    assert set(asked(one(profile), cards(31), environment={spelling: value}).filling.env) == {WINDOW}


LISTED = "roundup_power2_divisions:[256:1,512:2,>:8]"


@pytest.mark.parametrize(
    ("setting", "typed", "published", "said"),
    [
        ("expandable_segments:True", {}, "expandable_segments:True", False),
        ("expandable_segments:True", {"tensor_parallel_size": 2}, None, True),
        ("expandable_segments:True", {"pipeline_parallel_size": 2}, None, True),
        (
            "expandable_segments:True",
            {"tensor_parallel_size": 2, "disable_custom_all_reduce": True},
            "expandable_segments:True",
            False,
        ),
        (
            "expandable_segments:True",
            {"tensor_parallel_size": 2, "disable_custom_all_reduce": False},
            None,
            True,
        ),
        ("expandable_segments:True", {"kv_transfer_config": {"kv_connector": "X"}}, None, True),
        ("expandable_segments:True", {"kv_transfer_config": None}, "expandable_segments:True", False),
        (
            "expandable_segments:True",
            {"kv_transfer_config": {"kv_connector": "X"}, "disable_custom_all_reduce": True},
            None,
            True,
        ),
        ("expandable_segments:False", {"tensor_parallel_size": 2}, "expandable_segments:False", False),
        (
            f"max_split_size_mb:128,expandable_segments:True,{LISTED}",
            {"tensor_parallel_size": 2},
            f"max_split_size_mb:128,{LISTED}",
            True,
        ),
        (f"{LISTED},expandable_segments:True", {"tensor_parallel_size": 2}, LISTED, True),
        (LISTED, {"tensor_parallel_size": 2}, LISTED, False),
        ("expandable_segments:True", {"data_parallel_size": 2}, "expandable_segments:True", False),
    ],
)
def test_expandable_segments_are_left_out_where_they_collide(
    setting: str, typed: dict[str, Any], published: str | None, said: bool
) -> None:
    """With custom all-reduce of two ranks or KV transfer: that one key, the others stay, a line says why."""
    found = asked(one(unrated(4096, cuda_alloc_conf=setting)), cards(31, 31), typed=typed)

    assert found.filling.env.get("PYTORCH_CUDA_ALLOC_CONF") == published
    assert ("alloc_conf_conflict" in told(found)) is said


def test_the_layout_of_a_taken_pair_collides_as_a_typed_one_does() -> None:
    """Two ranks are two ranks."""
    pair = needs(10, **PAIR, cuda_alloc_conf="expandable_segments:True")

    assert "alloc_conf_conflict" in told(asked(config({"p": pair}), cards(31, 31)))


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("a:1", ["a:1"]),
        ("a:1,b:2", ["a:1", "b:2"]),
        ("a:[1:2,3:4],b:1", ["a:[1:2,3:4]", "b:1"]),
        ("b:1,a:[>:8]", ["b:1", "a:[>:8]"]),
    ],
)
def test_a_list_in_an_allocator_setting_keeps_its_commas(setting: str, parts: list[str]) -> None:
    """PyTorch's ``roundup_power2_divisions`` has them."""
    assert split_allocator(setting) == parts


@pytest.mark.parametrize(
    ("typed", "there", "copied"),
    [
        ({"distributed_executor_backend": "ray"}, {}, f"{WINDOW},ZENIT_NOOSPHERE_MODE"),
        ({"data_parallel_backend": "ray"}, {}, f"{WINDOW},ZENIT_NOOSPHERE_MODE"),
        ({"distributed_executor_backend": "mp"}, {}, None),
        ({}, {}, None),
        (
            {"distributed_executor_backend": "ray"},
            {env.RAY_COPIES: " MINE , OTHER,"},
            f"MINE,OTHER,{WINDOW},ZENIT_NOOSPHERE_MODE",
        ),
        (
            {"distributed_executor_backend": "ray"},
            {env.RAY_COPIES: "ZENIT_NOOSPHERE_MODE"},
            f"ZENIT_NOOSPHERE_MODE,{WINDOW}",
        ),
        ({"distributed_executor_backend": "ray"}, {WINDOW: "1"}, "ZENIT_NOOSPHERE_MODE"),
        ({"distributed_executor_backend": "ray"}, {WINDOW: "1", "ZENIT_NOOSPHERE_MODE": "x"}, None),
    ],
)
def test_rays_workers_get_the_names_that_this_launch_sets(
    typed: dict[str, str], there: dict[str, str], copied: str | None
) -> None:
    """The caller's names first, ours in the table's order, each once; nothing set, nothing added."""
    found = asked(one(unrated(4096, noosphere_mode="deep")), cards(31), typed=typed, environment=there)

    assert found.filling.env.get(env.RAY_COPIES) == copied


def test_a_setting_that_was_left_out_is_not_copied_to_ray() -> None:
    """Only what was set."""
    found = asked(
        one(unrated(4096, cuda_alloc_conf="expandable_segments:True")),
        cards(31, 31),
        typed={"distributed_executor_backend": "ray", "tensor_parallel_size": 2},
    )

    assert found.filling.env[env.RAY_COPIES] == WINDOW
