"""The choice by the length that the caller asked for, ``auto`` included."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import (
    GIB,
    THREE,
    asked,
    cards,
    config,
    name,
    needs,
    sentence,
    told,
    unrated,
)
from zenit_hub.decision import Reason

# --- 2. a length


@pytest.mark.parametrize(
    ("tokens", "free_gib", "profile", "reason"),
    [
        (1, 30, "narrow", "requested_length"),
        (4096, 30, "narrow", "requested_length"),
        (4097, 30, "middle", "requested_length"),
        (8193, 30, "wide", "requested_length"),
        (16385, 30, "wide", "requested_beyond_widest"),
        (2**31, 30, "wide", "requested_beyond_widest"),
        (10**30, 30, "wide", "requested_beyond_widest"),
        (4097, 15, "middle", "requested_length"),
        (1, 5, "narrow", "requested_length"),
    ],
)
def test_the_smallest_window_that_holds_the_length(
    tokens: int, free_gib: float, profile: str, reason: Reason
) -> None:
    """Inclusive; one that holds it and does not fit is still taken where none of them fits."""
    found = asked(THREE, cards(free_gib), typed={"max_model_len": tokens})

    assert (name(found), found.reason) == (profile, reason)
    assert found.filling.kept["max_model_len"] == tokens
    assert "max_model_len" not in found.filling.set


def test_a_length_whose_window_does_not_fit_takes_the_narrowest_wider_one_that_does() -> None:
    """A wider window can need less: fewer sequences, another KV type."""
    section = config(
        {"a": needs(40, 4096), "b": needs(50, 8192), "c": needs(10, 16384), "d": needs(9, 32768)}
    )

    found = asked(section, cards(30), typed={"max_model_len": 4000})

    assert (name(found), found.reason, found.decision.fits) == ("c", "requested_length", True)


def test_an_unmeasured_window_that_holds_the_length_is_not_known_not_to_fit() -> None:
    """The narrowest that holds it stays."""
    section = config({"a": unrated(4096), "b": needs(10, 8192)})

    assert name(asked(section, cards(30), typed={"max_model_len": 4000})) == "a"


def test_a_window_whose_pool_is_larger_than_the_card_is_known_not_to_fit_without_a_figure() -> None:
    """Rated or not, a pool above the card's total cannot be."""
    section = config({"a": unrated(4096, kv_cache_memory_bytes=33 * GIB), "b": needs(10, 8192)})

    assert name(asked(section, cards(30), typed={"max_model_len": 4000})) == "b"


def test_beyond_the_widest_the_widest_that_takes_part_serves_without_its_pin() -> None:
    """The pin was sized for less; the window is named."""
    section = config(
        {
            "wide": needs(10, 8192, kv_cache_memory_bytes=GIB),
            "wider": needs(10, 16384, requires_compute_capability="10.0"),
        }
    )

    found = asked(section, cards(30), typed={"max_model_len": 10_000})

    assert (name(found), found.decision.fits) == ("wide", None)
    assert "8192" in sentence(found, "requested_beyond_widest")
    assert "kv_cache_memory_bytes" not in found.filling.set


def test_a_pool_that_was_dropped_no_longer_makes_the_profile_too_large() -> None:
    """Beyond the widest the pin is left out, and with it what did not fit."""
    section = config({"p": unrated(4096, kv_cache_memory_bytes=33 * GIB)})

    assert asked(section, cards(30), typed={"max_model_len": 5000}).decision.fits is None
    assert asked(section, cards(30), typed={"max_model_len": 4000}).decision.fits is False


@pytest.mark.parametrize("value", [0, -2, True, None, "4096", 4096.0, [4096], {}])
def test_a_length_that_is_none_is_kept_and_chooses_nothing(value: Any) -> None:
    """What EngineArgs holds may be anything; the engine will refuse it itself."""
    found = asked(THREE, cards(30), typed={"max_model_len": value})

    assert (name(found), found.reason) == ("middle", "widest_fitting")
    assert "max_model_len" not in found.filling.set
    assert "ZENIT_EFFECTIVE_MAX_MODEL_LEN" not in found.filling.env


# --- auto


@pytest.mark.parametrize("value", [-1, "auto"])
def test_auto_leaves_the_length_and_chooses_by_memory_without_the_pin(value: object) -> None:
    """The profile gives its other values; its window is what is published."""
    section = config({"p": needs(10, 8192, kv_cache_memory_bytes=GIB, max_num_seqs=1)})

    found = asked(section, cards(30), typed={"max_model_len": value})

    assert (name(found), found.reason, found.decision.fits) == ("p", "widest_fitting", None)
    assert found.filling.set == {"max_num_seqs": 1, "gpu_memory_utilization": 0.9140}
    assert found.filling.env["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == "8192"
    assert "auto_length" in told(found)


def test_auto_with_nothing_fitting_is_tried_and_not_refused() -> None:
    """The figure contains a pin that this launch runs without."""
    section = config({"p": needs(31, 8192, kv_cache_memory_bytes=GIB)})

    found = asked(section, cards(20), typed={"max_model_len": -1})

    assert (found.reason, found.decision.fits, found.refusal) == ("nothing_fits", None, None)
    assert {"auto_length", "nothing_fits"} <= told(found)


def test_auto_with_nothing_chosen_says_nothing_of_a_profile() -> None:
    """No default and no figure: vLLM's own fit, alone."""
    found = asked(config({"p": unrated(4096)}), cards(20), typed={"max_model_len": -1})

    assert (found.reason, told(found)) == ("no_default", set())
