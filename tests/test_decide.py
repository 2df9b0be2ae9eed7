"""The choice: forced, default, ties; what became of each profile, and what a strict launch refuses."""

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
    never,
    sentence,
    told,
    unrated,
    verdicts,
)
from zenit_hub.errors import ProfileNotDeclared
from zenit_hub.machine import Machine

# --- 1. forced


def test_a_forced_profile_is_obeyed_whatever_fits() -> None:
    """It is named, so it serves; that it does not fit is said with both figures."""
    found = asked(THREE, cards(30), environment=forced("wide"))

    assert (name(found), found.reason, found.decision.fits) == ("wide", "forced", False)
    assert "40.00 GiB" in sentence(found, "chosen_does_not_fit")
    assert "30.00 GiB of 32.00 GiB" in sentence(found, "chosen_does_not_fit")


@pytest.mark.parametrize("setting", ["nope", "Narrow", " narrow", "OFF", "narrow\n"])
def test_a_name_that_is_not_declared_lists_the_declared_ones(setting: str) -> None:
    """The one exception outside strict mode, in one printable line."""
    with pytest.raises(ProfileNotDeclared) as caught:
        asked(THREE, cards(30), environment=forced(setting))

    assert isinstance(caught.value, ValueError)
    assert "narrow, middle, wide" in str(caught.value)
    assert str(caught.value).isprintable()


def test_an_invalid_profile_cannot_be_forced_and_its_fault_is_named() -> None:
    """Like an undeclared one, with what is wrong with it."""
    section = config({"bad": unrated(0), "good": unrated(1)})

    with pytest.raises(ProfileNotDeclared, match=r"it is invalid: max_model_len: must be 1 or more"):
        asked(section, environment=forced("bad"))
    with pytest.raises(ProfileNotDeclared, match="none: no profile of the section is valid"):
        asked(config({"bad": unrated(0)}), environment=forced("bad"))


def test_empty_is_unset_and_off_looks_at_nothing() -> None:
    """``off`` comes before everything, a broken section included."""
    assert asked(THREE, cards(30), environment=forced("")).reason == "widest_fitting"
    for of in (THREE, config({}), {}, None):
        found = asked(of, never, environment=forced("off"))
        assert (found.reason, name(found), told(found)) == ("off", None, set())


def test_a_forced_profile_with_a_condition_of_a_later_version_is_obeyed_with_the_warning() -> None:
    """Left alone it takes no part."""
    section = config({"later": needs(10, 8192, requires_moon=1), "now": needs(10)})

    found = asked(section, cards(30), environment=forced("later"))
    left_alone = asked(section, cards(30))

    assert (name(found), found.refusal) == ("later", None)
    assert "later.requires_moon" in sentence(found, "unknown_key")
    assert name(left_alone) == "now"
    assert verdicts(left_alone)["later"] == "unknown_requirement"


@pytest.mark.parametrize(
    ("typed", "pinned"), [({}, True), ({"max_model_len": 4096}, True), ({"max_model_len": 4097}, False)]
)
def test_a_forced_profile_narrower_than_the_length_loses_its_pin(typed: dict[str, int], pinned: bool) -> None:
    """It was sized for less; the length stays the caller's."""
    section = config({"p": needs(10, 4096, kv_cache_memory_bytes=GIB)})

    found = asked(section, cards(30), typed=typed, environment=forced("p"))

    assert ("kv_cache_memory_bytes" in found.filling.set) is pinned
    assert ("forced_too_narrow" in told(found)) is not pinned
    assert found.decision.fits is (True if pinned else None)


def test_a_forced_profile_of_another_layout_sets_its_sizes() -> None:
    """Nothing typed: the profile's own layout, and two cards are looked at."""
    section = config({"pair": needs(20, 8192, **PAIR), "one": needs(10)}, default_profile="one")

    found = asked(section, cards(30, 12), environment=forced("pair"))

    assert found.filling.set["tensor_parallel_size"] == 2
    assert found.decision.fits is False
    assert "12.00 GiB" in sentence(found, "chosen_does_not_fit")


def test_a_forced_profile_of_another_layout_than_the_typed_one_yields_the_sizes() -> None:
    """-tp 1 is the caller's word; the pair's figure is not of that layout."""
    section = config({"pair": needs(20, 8192, tensor_parallel_size=2, pipeline_parallel_size=2)})

    found = asked(section, cards(15), typed={"tensor_parallel_size": 1}, environment=forced("pair"))

    assert found.filling.kept["tensor_parallel_size"] == 1
    assert not {"tensor_parallel_size", "pipeline_parallel_size"} & set(found.filling.set)
    assert found.decision.fits is None
    assert "measurement_void" in told(found)


def test_a_forced_profile_for_more_devices_than_are_visible_is_obeyed_without_figures() -> None:
    """The engine's own error is the clearer end."""
    found = asked(config({"pair": needs(20, 1, **PAIR)}), cards(30), environment=forced("pair"))

    assert (name(found), found.decision.fits) == ("pair", None)
    assert "needs 2 devices and 1 are visible" in sentence(found, "memory_unknown")


def test_a_forced_profile_above_the_cards_capability_is_obeyed_and_said() -> None:
    """It may not start; nobody but the caller can know better."""
    section = config({"p": needs(10, requires_compute_capability="10.0")})

    found = asked(section, cards(30), environment=forced("p"))

    assert name(found) == "p"
    assert "compute capability 10.0" in sentence(found, "chosen_does_not_fit")


# --- 4. the default


@pytest.mark.parametrize("default", [None, "nope", "later", "pair", "new"])
def test_a_default_that_takes_no_part_is_none(default: str | None) -> None:
    """vLLM starts as if nothing were there."""
    section = config(
        {
            "u": unrated(4096),
            "later": unrated(1, requires_moon=1),
            "pair": unrated(1, **PAIR),
            "new": unrated(1, requires_compute_capability="10.0"),
        },
        **({} if default is None else {"default_profile": default}),
    )

    found = asked(section, cards(30))

    assert (name(found), found.reason) == (None, "no_default")
    assert (dict(found.filling.set), dict(found.filling.env)) == ({}, {})


def test_a_default_that_is_known_not_to_fit_is_obeyed_with_a_warning() -> None:
    """Nothing measured, its pool larger than the card."""
    section = config({"u": unrated(4096, kv_cache_memory_bytes=40 * GIB)}, default_profile="u")

    found = asked(section, cards(30))

    assert (name(found), found.reason, found.decision.fits) == ("u", "default", False)
    assert "40.00 GiB" in sentence(found, "chosen_does_not_fit")


def test_unknown_memory_is_the_default_and_no_refusal() -> None:
    """With the reason and what to type, and verdicts left open."""
    found = asked(THREE, NO_DRIVER, environment={"ZENIT_SERVING_STRICT": "1"})

    assert (name(found), found.reason, found.decision.fits) == ("narrow", "default", None)
    assert "no permission" in sentence(found, "memory_unknown")
    assert found.refusal is None
    assert set(verdicts(found).values()) == {None}


# --- ties


@pytest.mark.parametrize(
    ("profiles", "free_gib", "typed", "profile"),
    [
        ({"a": needs(10, 4096), "b": needs(20, 4096)}, 30, {}, "b"),
        ({"a": needs(10, 4096), "b": needs(20, 4096)}, 30, {"max_model_len": 1}, "b"),
        ({"a": needs(10, 4096), "b": needs(40, 4096)}, 30, {}, "a"),
        ({"b": needs(10, 4096), "a": needs(10, 4096)}, 30, {}, "a"),
        ({"a": unrated(4096), "b": needs(10, 4096)}, 30, {"max_model_len": 1}, "b"),
        ({"a": needs(40, 4096), "b": unrated(4096)}, 30, {"max_model_len": 1}, "b"),
        ({"a": needs(50, 4096), "b": needs(40, 4096)}, 30, {"max_model_len": 1}, "b"),
        ({"a": needs(50, 4096), "b": needs(40, 4096)}, 30, {"max_model_len": 9999}, "b"),
        ({"b": unrated(4096), "a": unrated(4096)}, 30, {"max_model_len": 1}, "a"),
        ({"a": needs(20, 4096), "b": needs(10, 4096), "c": unrated(4096)}, None, {"max_model_len": 1}, "b"),
        ({"a": unrated(4096), "b": needs(99, 4096)}, None, {"max_model_len": 1}, "b"),
        ({"a": needs(20, 4096), "b": needs(10, 4096)}, None, {"max_model_len": 9999}, "b"),
    ],
)
def test_ties_of_one_window(
    profiles: dict[str, object], free_gib: float | None, typed: dict[str, int], profile: str
) -> None:
    """One that fits (the larger need), with memory unknown the smaller; unmeasured; too large; the name."""
    machine = NO_DRIVER if free_gib is None else cards(free_gib)

    assert name(asked(config(profiles), machine, typed=typed)) == profile


def test_a_tie_goes_to_fewer_devices_before_anything_else() -> None:
    """Where both take part, the second card is not taken."""
    section = config({"pair": needs(10, 8192, **PAIR), "one": needs(40, 8192), "small": needs(35)})

    assert name(asked(section, cards(30, 30), typed={"max_model_len": 9999})) == "one"


def test_the_smaller_pool_wins_among_pools_that_are_too_large() -> None:
    """Both cannot be; the smaller lacks less."""
    section = config(
        {
            "a": unrated(4096, kv_cache_memory_bytes=50 * GIB),
            "b": unrated(4096, kv_cache_memory_bytes=40 * GIB),
        }
    )

    assert name(asked(section, cards(30), typed={"max_model_len": 1})) == "b"


# --- strict


@pytest.mark.parametrize(
    ("of", "machine", "typed", "words"),
    [
        (THREE, cards(5), {}, "no measured profile fits"),
        (THREE, cards(5), {"max_model_len": 1}, "profile narrow needs 10.00 GiB"),
        (THREE, cards(5), {"max_model_len": 10**6}, "profile wide needs 40.00 GiB"),
        (config({"bad": unrated(0), "good": needs(1)}), cards(30), {}, "profile bad drops out"),
        (config({"bad": unrated(1, kv_cache_dtype="fp7")}), cards(30), {}, "does not know"),
        (config({}), cards(30), {}, "the serving profiles cannot be used"),
        (
            config({"u": unrated(1, kv_cache_memory_bytes=40 * GIB)}, default_profile="u"),
            cards(30),
            {},
            "40.00 GiB",
        ),
    ],
)
def test_a_strict_launch_is_refused_with_the_reason(
    of: object, machine: Machine, typed: dict[str, int], words: str
) -> None:
    """What cannot be read, what dropped out, what does not fit."""
    assert words in str(asked(of, machine, typed=typed).refusal)


@pytest.mark.parametrize(
    ("of", "machine"),
    [
        (THREE, cards(30)),
        (THREE, NO_DRIVER),
        (config({"u": unrated(1)}), cards(30)),
        (config({"u": unrated(1), "r": needs(40)}), cards(30)),
        (config({"later": unrated(1, requires_moon=1)}), cards(30)),
        (config({"p": needs(10)}, requires_moon=1), cards(30)),
        ({}, cards(30)),
        (None, never),
    ],
)
def test_a_strict_launch_is_not_refused_for_less(of: object, machine: Machine) -> None:
    """Unknown memory, no figure, no section, a condition of a later version."""
    assert asked(of, machine).refusal is None


# --- what became of each


def test_every_declared_profile_is_considered_in_the_sections_order() -> None:
    """With its verdict, its figures, and what it lacks."""
    section = config(
        {
            "short": needs(1, 1024),
            "large": needs(40, 8192),
            "fits": needs(10, 8192),
            "bare": unrated(8192),
            "new": needs(1, 8192, requires_compute_capability="12.0"),
            "later": needs(1, 8192, requires_moon=1),
            "pair": needs(1, 8192, **PAIR),
            "bad": {},
        }
    )

    found = asked(section, cards(30), typed={"max_model_len": 5000})

    assert verdicts(found) == {
        "short": "too_short",
        "large": "too_large",
        "fits": "fits",
        "bare": "unrated",
        "new": "compute_capability",
        "later": "unknown_requirement",
        "pair": "other_layout",
        "bad": "invalid",
    }
    large = found.decision.considered["large"]
    assert large.short_bytes == 40 * GIB - (large.budget_bytes or 0)
    assert found.decision.considered["fits"].short_bytes is None
    assert name(found) == "fits"
