"""What is written: engine arguments and environment, only where the caller was silent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import (
    GIB,
    NO_DRIVER,
    PAIR,
    asked,
    card,
    cards,
    config,
    forced,
    measured,
    needs,
    sentence,
    told,
    unrated,
)
from zenit_hub import env
from zenit_hub.machine import Machine

PINNED = {"kv_cache_memory_bytes": GIB}
WINDOW = "ZENIT_EFFECTIVE_MAX_MODEL_LEN"


def one(profile: dict[str, object]) -> dict[str, Any]:
    """A section of one profile that is also the default."""
    return config({"p": profile}, default_profile="p")


# --- the utilization


@pytest.mark.parametrize(
    ("profile", "free_gib", "written", "lowered"),
    [
        (needs(16, **PINNED), 31, 0.5, False),
        (needs(8, gpu_memory_utilization=0.2, **PINNED), 31, 0.2, False),
        (needs(16, gpu_memory_utilization=0.95, **PINNED), 31, 0.5, False),
        (needs(16.001, **PINNED), 31, 0.5001, False),
        (needs(10, **PINNED), 10.5, 0.3046, True),
        (needs(16), 31, None, False),
        (needs(16, gpu_memory_utilization=0.9), 31, 0.9, False),
        (needs(16, gpu_memory_utilization=0.95), 31, 0.9453, True),
        (needs(16), 20, 0.6015, True),
        (unrated(4096, **PINNED), 31, None, False),
        (unrated(4096, **PINNED), 20, 0.6015, True),
        (unrated(4096, gpu_memory_utilization=0.5), 31, 0.5, False),
        (unrated(4096, gpu_memory_utilization=0.5), 0.75, 0.5, False),
        (unrated(4096, gpu_memory_utilization=0.5), 0, 0.5, False),
        (needs(0.001, **PINNED), 31, 0.0001, False),
        (needs(10, gpu_memory_utilization=1, **PINNED), 31, 0.3125, False),
        (unrated(4096, gpu_memory_utilization=0.00001), 31, 0.00001, False),
    ],
)
def test_the_utilization_only_ever_goes_down(
    profile: dict[str, object], free_gib: float, written: float | None, lowered: bool
) -> None:
    """Pinned and measured: as much as is needed; else the gate; the engine's default is not written back."""
    found = asked(one(profile), cards(free_gib))

    assert found.filling.set.get("gpu_memory_utilization") == written
    assert ("utilization_lowered" in told(found)) is lowered


def test_below_the_need_where_it_must_be_for_a_forced_profile_too() -> None:
    """The clamp is another question than the choice: with a pin the utilization is only the gate."""
    found = asked(one(needs(20, **PINNED)), cards(15), environment=forced("p"))

    assert found.filling.set["gpu_memory_utilization"] == 0.4453


def test_where_nothing_fits_and_more_is_needed_than_is_free_nothing_is_lowered() -> None:
    """The engine's own message is the clearer end; a forced profile is lowered all the same."""
    profile = needs(20, gpu_memory_utilization=0.9, **PINNED)

    hopeless = asked(one(profile), cards(15))
    exactly = asked(one(profile), cards(20))

    assert hopeless.filling.set["gpu_memory_utilization"] == 0.9
    assert exactly.filling.set["gpu_memory_utilization"] == 0.6015


def test_hopeless_is_held_card_by_card() -> None:
    """25 GiB on the card that has 25, 10 on the one that has 11: neither needs more than is free."""
    machine = Machine("machine", (card(25, 32), card(11, 16, index=1, name="Card B")))
    pair = unrated(4096, **PAIR, **PINNED, **measured(None, Card_A=25, Card_B=10))

    found = asked(config({"pair": pair}), machine, typed={"tensor_parallel_size": 2})

    assert found.reason == "nothing_fits"
    assert found.filling.set["gpu_memory_utilization"] == 0.6406


def test_of_unlike_ranks_the_smallest_total_and_the_smallest_gate_count() -> None:
    """The requirement's share of the smaller card, the gate of the fuller one."""
    roomy = Machine("machine", (card(31, 32), card(15, 16, index=1)))
    full = Machine("machine", (card(9, 32), card(15, 16, index=1)))
    pair = needs(8, **PAIR, **PINNED)

    assert asked(config({"p": pair}), roomy).filling.set["gpu_memory_utilization"] == 0.5
    assert asked(config({"p": pair}), full).filling.set["gpu_memory_utilization"] == 0.2578


def test_unknown_memory_leaves_the_profiles_utilization() -> None:
    """Nothing to clamp by."""
    found = asked(one(needs(8, gpu_memory_utilization=0.95, **PINNED)), NO_DRIVER)

    assert found.filling.set["gpu_memory_utilization"] == 0.95


def test_the_callers_utilization_is_untouched_and_what_it_misses_is_named() -> None:
    """To the byte, with the value that would be admitted."""
    found = asked(one(needs(8, **PINNED)), cards(20), typed={"gpu_memory_utilization": 0.92})

    missing_bytes = -(-32 * GIB * 92 // 100) - 20 * GIB
    assert "gpu_memory_utilization" not in found.filling.set
    assert f"{missing_bytes} bytes" in sentence(found, "utilization_not_admitted")
    assert "Type 0.6015 or less" in sentence(found, "utilization_not_admitted")


def test_one_byte_is_missed() -> None:
    """Half of the card is asked for, and one byte less than half is free."""
    machine = Machine("machine", (card(1, 32, free_bytes=16 * GIB - 1),))

    found = asked(one(unrated(4096)), machine, typed={"gpu_memory_utilization": 0.5})

    assert "asks 1 bytes" in sentence(found, "utilization_not_admitted")


def test_what_was_lowered_is_said_with_its_figures() -> None:
    """Before, after, and what is free of what."""
    said = sentence(asked(one(unrated(4096)), cards(20)), "utilization_lowered")

    assert "0.92 of 32.00 GiB would not be admitted with 20.00 GiB free: lowered to 0.6015" in said


@pytest.mark.parametrize(
    ("utilization", "said"), [(0.5, False), (0.500001, True), (0.1, False), (float("nan"), False)]
)
def test_a_utilization_that_is_admitted_to_the_byte_is_not_complained_of(
    utilization: float, said: bool
) -> None:
    """vLLM asks ``ceil(total × u) ≤ free``."""
    found = asked(one(needs(8)), cards(16), typed={"gpu_memory_utilization": utilization})

    assert ("utilization_not_admitted" in told(found)) is said


# --- what is filled, and what is kept


def test_explicit_values_are_the_callers_also_where_they_equal_the_default() -> None:
    """``False``, ``0``, ``None`` and the engine's own default are words."""
    profile = unrated(
        4096,
        max_num_seqs=4,
        enforce_eager=True,
        enable_prefix_caching=True,
        kv_cache_dtype="fp8",
        gpu_memory_utilization=0.5,
    )
    typed = {
        "max_num_seqs": None,
        "enforce_eager": False,
        "enable_prefix_caching": False,
        "kv_cache_dtype": "auto",
        "gpu_memory_utilization": 0.92,
    }

    found = asked(one(profile), cards(31), typed=typed)

    assert dict(found.filling.kept) == typed
    assert dict(found.filling.set) == {"max_model_len": 4096}


def test_a_value_that_the_profile_does_not_name_is_neither_set_nor_kept() -> None:
    """``kept`` holds arguments of the profile."""
    found = asked(one(unrated(4096)), cards(31), typed={"max_num_seqs": 3, "seed": 1})

    assert dict(found.filling.kept) == {}


@pytest.mark.parametrize(
    "word", ["max_num_seqs", "--max-num-seqs", " max-num-seqs , seed", "seed,,max_num_seqs,"]
)
def test_a_field_that_is_named_as_kept_is_the_callers(word: str) -> None:
    """In either spelling, with spaces, beside fields that no profile has."""
    found = asked(one(unrated(4096, max_num_seqs=4)), cards(31), environment={env.KEEP: word})

    assert "max_num_seqs" not in found.filling.set
    assert "max_num_seqs" in found.filling.kept


def test_keeping_the_window_publishes_none() -> None:
    """What the engine will run with cannot be seen from here."""
    found = asked(one(unrated(4096)), cards(31), environment={env.KEEP: "max_model_len"})

    assert "max_model_len" not in found.filling.set
    assert WINDOW not in found.filling.env


def test_a_field_that_the_engine_lacks_is_not_set_and_named_once_with_the_version() -> None:
    """``setattr`` on a dataclass would accept it."""
    found = asked(one(unrated(4096, swap_space=4)), cards(31), version="0.33.0")
    old = asked(one(unrated(4096, swap_space=4)), cards(31), version="0.17.1")

    assert "swap_space" not in found.filling.set
    assert "vLLM 0.33.0 has no swap_space" in sentence(found, "engine_lacks_field")
    assert old.filling.set["swap_space"] == 4


def test_a_field_that_the_engine_lacks_is_not_kept_either() -> None:
    """It is nobody's."""
    found = asked(one(unrated(4096, swap_space=4)), cards(31), typed={"swap_space": 1})

    assert "swap_space" not in found.filling.kept


@pytest.mark.parametrize(
    ("own", "typed", "environment", "applies"),
    [
        (None, {}, {}, True),
        (1, {}, {}, True),
        (2, {}, {}, False),
        (2, {"max_num_seqs": 1}, {}, True),
        (1, {"max_num_seqs": 2}, {}, False),
        (None, {"max_num_seqs": 2}, {}, False),
        (4, {"max_num_seqs": None}, {}, True),
        (1, {"async_scheduling": True}, {}, False),
        (1, {}, {env.KEEP: "async_scheduling"}, False),
    ],
)
def test_synchronous_scheduling_is_for_one_sequence(
    own: int | None, typed: dict[str, Any], environment: dict[str, str], applies: bool
) -> None:
    """It yields where more than one runs; nobody names a number: it applies."""
    profile = unrated(4096, async_scheduling=False, **({} if own is None else {"max_num_seqs": own}))

    found = asked(one(profile), cards(31), typed=typed, environment=environment)

    assert (found.filling.set.get("async_scheduling") is False) is applies


def test_asynchronous_scheduling_is_for_any_number() -> None:
    """Only ``false`` yields."""
    found = asked(one(unrated(4096, async_scheduling=True, max_num_seqs=64)), cards(31))

    assert found.filling.set["async_scheduling"] is True


def test_a_false_in_the_file_leaves_the_field_alone_and_says_how_to_write_it() -> None:
    """vLLM drops it; nothing of the profile goes in its place."""
    found = asked(
        one(unrated(4096, enable_prefix_caching=True, enforce_eager=True)),
        cards(31),
        yaml_false=["enable_prefix_caching", "seed"],
    )

    assert "enable_prefix_caching" not in found.filling.set
    assert found.filling.set["enforce_eager"] is True
    assert "no-enable-prefix-caching: true" in sentence(found, "yaml_false")
    assert "seed" not in sentence(found, "yaml_false")


def test_nothing_is_written_where_nothing_was_chosen() -> None:
    """vLLM starts as if nothing were there."""
    found = asked(config({"p": unrated(4096, cuda_alloc_conf="expandable_segments:True")}), cards(31))

    assert (dict(found.filling.set), dict(found.filling.kept), dict(found.filling.env)) == ({}, {}, {})
