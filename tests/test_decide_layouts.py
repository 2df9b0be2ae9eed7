"""Profiles for several devices, and ranks that the caller typed."""

from __future__ import annotations

import pytest

from tests.stage import (
    GIB,
    NO_DRIVER,
    PAIR,
    THREE,
    asked,
    cards,
    config,
    forced,
    name,
    needs,
    told,
    verdicts,
)
from zenit_hub.decision import Reason

LAYOUTS = config(
    {
        "one": needs(10, 4096),
        "one_wide": needs(28, 16384),
        "pair": needs(12, 8192, **PAIR),
        "pair_wide": needs(20, 32768, **PAIR),
        "stages": needs(12, 8192, pipeline_parallel_size=2),
    }
)


@pytest.mark.parametrize(
    ("free_gib", "typed", "profile"),
    [
        ((30, 30), {}, "one_wide"),
        ((30, 30), {"tensor_parallel_size": 2}, "pair_wide"),
        ((30, 15), {"tensor_parallel_size": 2}, "pair"),
        ((30, 30), {"tensor_parallel_size": 2, "max_model_len": 5000}, "pair"),
        ((30, 30), {"tensor_parallel_size": 2, "max_model_len": 10_000}, "pair_wide"),
        ((30, 15), {"tensor_parallel_size": 2, "max_model_len": 5000}, "pair"),
        ((30, 30), {"tensor_parallel_size": 2, "max_model_len": 1}, "pair"),
        ((30, 30), {"pipeline_parallel_size": 2}, "stages"),
        ((30, 30), {"pipeline_parallel_size": 2, "max_model_len": 10_000}, "one_wide"),
        ((30, 30), {"tensor_parallel_size": 1}, "one_wide"),
        ((30, 30), {"tensor_parallel_size": 1, "max_model_len": 20_000}, "one_wide"),
        ((30, 30), {"max_model_len": 20_000}, "pair_wide"),
        ((30, 30), {"max_model_len": 9000}, "one_wide"),
        ((15, 25), {"max_model_len": 9000}, "one_wide"),
        ((25, 25), {"max_model_len": 9000}, "pair_wide"),
        ((9, 9), {}, "one"),
        ((13, 13), {"max_model_len": 5000}, "pair"),
        ((30,), {"max_model_len": 20_000}, "one_wide"),
        ((30, 30), {"tensor_parallel_size": 2, "pipeline_parallel_size": 1}, "pair_wide"),
        ((30, 30), {"pipeline_parallel_size": 1}, "one_wide"),
    ],
)
def test_the_typed_layout_first_and_a_second_card_only_where_one_is_not_enough(
    free_gib: tuple[float, ...], typed: dict[str, int], profile: str
) -> None:
    """A typed size counts for both; nobody's second card is taken while one device holds what is asked."""
    assert name(asked(LAYOUTS, cards(*free_gib), typed=typed)) == profile


def test_a_profile_for_several_devices_sets_its_sizes_only_where_nothing_was_typed() -> None:
    """What was typed is kept."""
    taken = asked(LAYOUTS, cards(30, 30), typed={"max_model_len": 20_000})
    typed = asked(LAYOUTS, cards(30, 30), typed={"tensor_parallel_size": 2})

    assert taken.filling.set["tensor_parallel_size"] == 2
    assert "pipeline_parallel_size" not in taken.filling.set
    assert typed.filling.kept["tensor_parallel_size"] == 2
    assert "tensor_parallel_size" not in typed.filling.set


def test_one_device_that_holds_the_length_exactly_keeps_the_second_card_out() -> None:
    """Inclusive, as everywhere."""
    assert (
        verdicts(asked(LAYOUTS, cards(30, 30), typed={"max_model_len": 16384}))["pair_wide"] == "other_layout"
    )
    assert verdicts(asked(LAYOUTS, cards(30, 30), typed={"max_model_len": 16385}))["pair_wide"] == "fits"


def test_a_forced_profile_for_several_devices_takes_part_where_they_are_visible() -> None:
    """Its verdict is about its memory then, and not about its layout."""
    found = asked(LAYOUTS, cards(30, 30), environment=forced("pair"))

    assert verdicts(found)["pair"] == "fits"
    assert verdicts(found)["pair_wide"] == "other_layout"
    assert verdicts(asked(LAYOUTS, cards(30), environment=forced("pair")))["pair"] == "other_layout"


def test_with_memory_unknown_no_second_card_is_taken() -> None:
    """Nobody knows that one is not enough."""
    section = config({"one": needs(10), "pair": needs(5, 8192, **PAIR)}, default_profile="pair")

    assert asked(section, cards(None, None)).reason == "no_default"


def test_a_pair_whose_second_card_is_silent_is_not_chosen_by_memory() -> None:
    """Its need is smaller than the single's, and nobody knows that its cards hold it."""
    section = config({"one": needs(40), "pair": needs(5, 8192, **PAIR)})

    found = asked(section, cards(30, None))

    assert (name(found), found.reason) == ("one", "nothing_fits")


def test_where_the_count_is_unknown_the_profiles_for_several_devices_are_named() -> None:
    """With what to type to have one."""
    section = config({"one": needs(10), "pair": needs(5, 8192, **PAIR)}, default_profile="one")

    assert "unknown_device_count" in told(asked(section, NO_DRIVER))
    assert "unknown_device_count" not in told(asked(section, NO_DRIVER, typed={"tensor_parallel_size": 2}))
    assert "unknown_device_count" not in told(asked(section, cards(30)))
    assert "unknown_device_count" not in told(asked(THREE, NO_DRIVER))


@pytest.mark.parametrize(
    ("need_gib", "fits", "reason"), [(11, True, "widest_fitting"), (25, None, "nothing_fits")]
)
def test_a_one_device_figure_is_an_upper_bound_in_another_layout(
    need_gib: float, fits: bool | None, reason: Reason
) -> None:
    """Within the budget it fits; above it nobody knows, and a strict launch is not refused."""
    found = asked(config({"one": needs(need_gib)}), cards(20, 20), typed={"tensor_parallel_size": 2})

    assert (found.decision.fits, found.reason, found.refusal) == (fits, reason, None)
    assert "measurement_void" in told(found)


def test_a_figure_measured_in_the_launchs_layout_is_exact() -> None:
    """Then it does not fit, and that is known."""
    entry = {"device": "Card A", "tensor_parallel_size": 2, "requires_free_bytes": 25 * GIB}
    section = config({"one": needs(40, measurements=[entry])})

    found = asked(section, cards(20, 20), typed={"tensor_parallel_size": 2})

    assert found.decision.fits is False
    assert "measurement_void" not in told(found)
    assert found.refusal is not None


@pytest.mark.parametrize(
    ("free_gib", "typed", "profile"),
    [
        ((30, 15), {"data_parallel_size": 2}, "small"),
        ((30, 30), {"data_parallel_size": 2}, "large"),
        ((30, 30, 30, 15), {"data_parallel_size": 2, "tensor_parallel_size": 2}, "small"),
        ((30, 30, 30, 30, 1), {"data_parallel_size": 2, "tensor_parallel_size": 2}, "large"),
        ((30, 15), {"data_parallel_size": 1}, "large"),
    ],
)
def test_the_ranks_of_all_local_engines_count(
    free_gib: tuple[float, ...], typed: dict[str, int], profile: str
) -> None:
    """tensor × pipeline × local data-parallel: the worst of them decides."""
    section = config({"small": needs(10), "large": needs(25, 8192)})

    assert name(asked(section, cards(*free_gib), typed=typed)) == profile


def test_two_engines_of_two_ranks_need_four_devices() -> None:
    """A profile for a pair takes no part where its engines do not all have theirs."""
    section = config({"one": needs(40), "pair": needs(10, 8192, **PAIR)})

    assert name(asked(section, cards(30, 30, 30), typed={"data_parallel_size": 2})) == "one"
    assert name(asked(section, cards(30, 30, 30, 30), typed={"data_parallel_size": 2})) == "pair"
