"""The choice by memory: needs, budgets, pins, and whose figure counts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import (
    GIB,
    PAIR,
    THREE,
    asked,
    card,
    cards,
    config,
    measured,
    name,
    needs,
    sentence,
    told,
    unrated,
    verdicts,
)
from zenit_hub.decision import Reason
from zenit_hub.machine import Machine

# --- 3. memory


@pytest.mark.parametrize(
    ("free_gib", "profile", "reason"),
    [(45, "wide", "widest_fitting"), (30, "middle", "widest_fitting"), (5, "narrow", "nothing_fits")],
)
def test_the_widest_window_that_fits(free_gib: float, profile: str, reason: Reason) -> None:
    """And where none fits, the one that needs the least."""
    found = asked(THREE, cards(free_gib, total_gib=80))

    assert (name(found), found.reason) == (profile, reason)
    assert found.decision.fits is (reason == "widest_fitting")


@pytest.mark.parametrize(("missing", "profile"), [(0, "p"), (1, "q")])
def test_a_pinned_need_is_held_against_98_percent_of_the_free_memory_to_the_byte(
    missing: int, profile: str
) -> None:
    """One byte less and the narrower serves."""
    machine = Machine("machine", (card(1, free_bytes=20 * GIB - missing),))
    need_bytes = 20 * GIB * 98 // 100
    section = config(
        {
            "p": unrated(8192, requires_free_bytes=need_bytes, kv_cache_memory_bytes=1),
            "q": needs(1, kv_cache_memory_bytes=1),
        }
    )

    assert name(asked(section, machine)) == profile


def test_unmeasured_profiles_take_no_part_where_a_measured_one_fits() -> None:
    """However wide they are, and also as the default."""
    section = config({"u": unrated(10**6), "r": needs(10)}, default_profile="u")

    found = asked(section, cards(30))

    assert name(found) == "r"
    assert "default_does_not_fit" not in told(found)


def test_no_figure_at_all_is_the_default() -> None:
    """Memory decides nothing then."""
    section = config({"u": unrated(4096), "v": unrated(8192)}, default_profile="u")

    found = asked(section, cards(30))

    assert (name(found), found.reason, found.decision.fits) == ("u", "default", None)
    assert verdicts(found) == {"u": "unrated", "v": "unrated"}


def test_nothing_measured_fits_and_the_narrowest_unmeasured_below_all_of_them_is_tried() -> None:
    """Not the widest unmeasured, and none that is as wide as a measured one."""
    section = config(
        {"u1": unrated(1024), "u2": unrated(2048), "u3": unrated(4096), "r": needs(40, 4096)},
        default_profile="r",
    )

    found = asked(section, cards(30))

    assert (name(found), found.reason, found.decision.fits) == ("u1", "unrated_fallback", None)
    assert told(found) >= {"unrated_fallback", "default_does_not_fit"}


def test_where_nothing_fits_the_smallest_requirement_is_tried_not_the_narrowest_window() -> None:
    """Of two that need the same, the wider."""
    section = config({"a": needs(50, 1024), "b": needs(40, 4096), "c": needs(40, 8192)})

    found = asked(section, cards(30))

    assert (name(found), found.reason) == ("c", "nothing_fits")
    assert "30.00 GiB of 32.00 GiB are free" in sentence(found, "nothing_fits")
    assert "40.00 GiB" in sentence(found, "nothing_fits")


def test_a_pool_above_the_cards_total_is_too_large_although_the_figure_fits() -> None:
    """By how much is said of the pool."""
    section = config({"p": needs(10, 8192, kv_cache_memory_bytes=33 * GIB), "q": needs(10)})

    found = asked(section, cards(30))

    assert name(found) == "q"
    assert found.decision.considered["p"].short_bytes == GIB


def test_a_pool_of_the_callers_own_frees_the_profile_of_its_pool() -> None:
    """The profile's pin is not what will run; the figure still chooses, with the pinned margin."""
    section = config({"p": needs(10, 8192, kv_cache_memory_bytes=33 * GIB)})

    found = asked(section, cards(30), typed={"kv_cache_memory_bytes": GIB})

    assert (name(found), found.decision.fits) == ("p", True)
    assert found.chosen is not None
    assert found.chosen.budget_bytes == 30 * GIB * 98 // 100
    assert "measurement_void" in told(found)


@pytest.mark.parametrize(
    ("typed", "environment", "yaml_false"),
    [
        ({}, {"ZENIT_SERVING_KEEP": "kv_cache_memory_bytes"}, ()),
        ({"kv_cache_memory_bytes": None}, {}, ()),
        ({"kv_cache_memory_bytes": 0}, {}, ()),
        ({}, {}, ("kv_cache_memory_bytes",)),
    ],
)
def test_a_pin_that_is_kept_back_is_none(
    typed: dict[str, Any], environment: dict[str, str], yaml_false: tuple[str, ...]
) -> None:
    """The engine takes what the utilization allows: the gate is the budget, and nobody knows the need."""
    section = config({"p": needs(28, 8192, kv_cache_memory_bytes=GIB)})

    found = asked(section, cards(30), typed=typed, environment=environment, yaml_false=yaml_false)

    assert found.chosen is not None
    assert not found.chosen.pinned
    assert found.chosen.budget_bytes == 32 * GIB * 9140 // 10_000
    assert found.decision.fits is None
    assert "kv_cache_memory_bytes" not in found.filling.set


@pytest.mark.parametrize(
    ("typed", "budget_gib"),
    [({}, 16), ({"gpu_memory_utilization": 0.25}, 8), ({"gpu_memory_utilization": 1}, 29.4)],
)
def test_the_callers_utilization_decides_the_budget_before_the_profiles(
    typed: dict[str, float], budget_gib: float
) -> None:
    """Also where it is wider."""
    section = config({"p": needs(1, gpu_memory_utilization=0.5, kv_cache_memory_bytes=1)})

    found = asked(section, cards(30), typed=typed)

    assert found.chosen is not None
    assert found.chosen.budget_bytes == int(budget_gib * GIB)


@pytest.mark.parametrize(
    ("typed", "yaml_false"),
    [
        ({"gpu_memory_utilization": None}, ()),
        ({"gpu_memory_utilization": "0.3"}, ()),
        ({}, ("gpu_memory_utilization",)),
    ],
)
def test_a_utilization_that_is_no_number_leaves_the_engines_default(
    typed: dict[str, Any], yaml_false: tuple[str, ...]
) -> None:
    """It is not written, so the profile's own is not what will run."""
    section = config({"p": needs(1, gpu_memory_utilization=0.5, kv_cache_memory_bytes=1)})

    found = asked(section, cards(30, total_gib=30), typed=typed, yaml_false=yaml_false)

    assert found.chosen is not None
    assert found.chosen.utilization == 0.92
    assert "gpu_memory_utilization" not in found.filling.set


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), -1.0])
def test_a_utilization_beyond_reason_breaks_nothing(value: float) -> None:
    """The engine will refuse it; the plan still answers."""
    found = asked(THREE, cards(30), typed={"gpu_memory_utilization": value})

    assert name(found) == "narrow" or found.reason == "nothing_fits"
    assert "gpu_memory_utilization" not in found.filling.set


# --- measurements


@pytest.mark.parametrize(
    ("values", "need_gib"),
    [
        (measured(40, Card_A=10), 10),
        (measured(40, Card_B=10), 40),
        (measured(10, Card_A=40), 40),
        (measured(None, Card_A=10), 10),
        (measured(None, Card_B=10), None),
        (measured(40, card_a=10), 40),
    ],
)
def test_this_cards_own_figure_counts_before_the_general_one(
    values: dict[str, object], need_gib: float | None
) -> None:
    """By NVML's name, to the letter; a card that nobody measured has the general figure or none."""
    found = asked(config({"p": unrated(4096, **values)}), cards(30))

    need_bytes = found.decision.considered["p"].requires_free_bytes
    assert need_bytes == (None if need_gib is None else need_gib * GIB)


def test_an_entry_without_a_figure_is_passed_over() -> None:
    """It says which version was run, and nothing of memory."""
    entries = [{"device": "Card A"}, {"device": "Card A", "requires_free_bytes": 10 * GIB}]

    found = asked(config({"p": needs(40, measurements=entries)}), cards(30))

    assert found.decision.considered["p"].requires_free_bytes == 10 * GIB


UNLIKE = Machine("machine", (card(30, 32), card(12, 16, index=1, name="Card B")))


@pytest.mark.parametrize(
    ("need_a", "need_b", "fits", "short_gib"),
    [(25, 10, True, 0), (10, 25, False, 25 - 11.76), (30, 10, False, 30 - 29.4), (31, 14, False, 14 - 11.76)],
)
def test_each_of_two_unlike_ranks_is_held_against_its_own_budget(
    need_a: float, need_b: float, fits: bool, short_gib: float
) -> None:
    """25 GiB on the large card and 10 on the small one fit, although 25 are more than the small one has."""
    pair = unrated(
        4096,
        **PAIR,
        kv_cache_memory_bytes=1,
        gpu_memory_utilization=1,
        **measured(None, Card_A=need_a, Card_B=need_b),
    )

    found = asked(config({"pair": pair}), UNLIKE, typed={"tensor_parallel_size": 2})

    assert found.decision.fits is fits
    assert (found.decision.considered["pair"].short_bytes or 0) / GIB == pytest.approx(short_gib)


def test_a_profile_that_is_measured_on_one_of_two_unlike_cards_is_unmeasured() -> None:
    """Half a figure says nothing of the launch."""
    pair = unrated(4096, **PAIR, **measured(None, Card_A=10))

    assert verdicts(asked(config({"pair": pair}), UNLIKE, typed={"tensor_parallel_size": 2})) == {
        "pair": "unrated"
    }
