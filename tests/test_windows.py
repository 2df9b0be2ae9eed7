"""The longest window that a config allows, as vLLM works it out."""

from __future__ import annotations

from typing import Any

import pytest

from zenit_hub.windows import window_limit


@pytest.mark.parametrize(
    ("config", "tokens", "where"),
    [
        ({"max_position_embeddings": 8192}, 8192, ("max_position_embeddings",)),
        ({"n_positions": 1024}, 1024, ("n_positions",)),
        ({"max_position_embeddings": 8192, "seq_length": 4096}, 4096, ("seq_length",)),
        ({"max_position_embeddings": 8192, "model_max_length": 131072}, 131072, ("model_max_length",)),
        (
            {"max_position_embeddings": 8192, "text_config": {"max_position_embeddings": 4096}},
            4096,
            ("text_config", "max_position_embeddings"),
        ),
        (
            {"max_position_embeddings": 8192, "rope_scaling": {"type": "linear", "factor": 4}},
            32768,
            ("max_position_embeddings",),
        ),
        (
            {
                "max_position_embeddings": 8192,
                "rope_parameters": {"full": {"rope_type": "dynamic", "factor": 2.0}},
            },
            16384,
            ("max_position_embeddings",),
        ),
        (
            {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
            131072,
            ("max_position_embeddings",),
        ),
        (
            {"model_type": "gemma3_text", "max_position_embeddings": 131072, "rope_scaling": {"factor": 8.0}},
            131072,
            ("max_position_embeddings",),
        ),
        (
            {"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": None}},
            8192,
            ("max_position_embeddings",),
        ),
    ],
)
def test_the_limit_is_vllms(config: dict[str, Any], tokens: int, where: tuple[str, ...]) -> None:
    limit = window_limit(config)

    assert limit is not None
    assert (limit.tokens, limit.where) == (tokens, where)


def test_yarn_allows_what_either_reading_of_it_allows() -> None:
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}

    limits = [
        window_limit({"max_position_embeddings": length, "rope_scaling": rope}) for length in (40960, 262144)
    ]

    assert [limit.tokens for limit in limits if limit is not None] == [131072, 262144]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_position_embeddings": None},
        {"max_position_embeddings": "8192"},
        {"max_position_embeddings": True},
        {"max_position_embeddings": -1},
        {"max_position_embeddings": float("inf")},
        {"max_position_embeddings": 10**400},
        {"max_position_embeddings": 8192, "text_config": {}},
        {"max_position_embeddings": 8192, "rope_scaling": {"rope_type": "linear", "factor": "4"}},
    ],
)
def test_a_limit_that_only_the_models_code_can_say_is_unknown(config: dict[str, Any]) -> None:
    assert window_limit(config) is None


@pytest.mark.parametrize("kind", [None, [], 7, "default"])
def test_a_kind_of_scaling_that_is_none_scales(kind: object) -> None:
    """Whatever stands there, it is not one of those whose factor the length contains already."""
    rope = {"rope_type": kind, "factor": 2.0}

    limit = window_limit({"max_position_embeddings": 4096, "rope_scaling": rope})

    assert limit is not None
    assert limit.tokens == 8192
