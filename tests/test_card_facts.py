"""Which window on which card: every figure of the card is what the decision answers, to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stage import GIB, PAIR, asked, config, name, needs, unrated
from zenit_hub.errors import CardError
from zenit_hub.machine import Device, Host, Machine
from zenit_hub.maintain.card.cards import COMMON_CARDS, CommonCard
from zenit_hub.maintain.card.facts import CardRow, Facts, Step, gather

EXAMPLE = Path(__file__).parents[1] / "model_card" / "config.example.json"
PIN = {"kv_cache_memory_bytes": GIB}
RTX_5090 = "NVIDIA GeForce RTX 5090"


def entry(device: str, gib: float, **more: object) -> dict[str, object]:
    return {"device": device, "requires_free_bytes": int(gib * GIB), "vllm": "0.33.0", **more}


MANY = config(
    {
        "wide": needs(60, 200_000, **PIN, gpu_memory_utilization=0.97),
        "middle": needs(
            30, 100_000, **PIN, requires_compute_capability="8.9", measurements=[entry(RTX_5090, 27)]
        ),
        "pair": needs(16, 150_000, **PIN, **PAIR),
        "open": needs(18, 50_000),
        "least": unrated(10_000),
        "never": unrated(20_000),
    },
    default_profile="middle",
)
"""Pinned and open KV caches, a card's own figure, a capability, two ranks, and profiles without a figure."""

CONFIGS = {
    "zenit": json.loads(EXAMPLE.read_text("utf-8")),
    "many": MANY,
    "unrated": config({"a": unrated(10), "b": unrated(20)}, default_profile="b"),
    "no default": config({"a": unrated(10)}),
    "too large": config({"a": needs(500, 10, **PIN), "b": needs(400, 5)}),
}

FACTS = {which: gather(of) for which, of in CONFIGS.items()}


def real(card: CommonCard, count: int, free_bytes: int, card_name: str | None = None) -> Machine:
    """The machine, put together once more and otherwise than the card does it."""
    devices = tuple(
        Device(
            index=index,
            uuid=f"GPU-{index}",
            name=card.name if card_name is None else card_name,
            compute_capability=card.compute_capability,
            total_bytes=None if card.integrated else card.total_bytes,
            free_bytes=None if card.integrated else free_bytes,
            integrated=card.integrated,
        )
        for index in range(count)
    )
    return Machine("machine", devices, host=Host(card.total_bytes, free_bytes))


def row(facts: Facts, label: str, count: int = 1) -> CardRow:
    (found,) = [r for r in facts.cards if r.count == count and label in [card.label for card in r.cards]]
    return found


def step(facts: Facts, profile: str) -> Step:
    return next(each for each in facts.steps if each.outcome.name == profile)


def test_the_million_is_chosen_from_the_number_of_the_specification_on() -> None:
    """29.75 GiB needed, 30.36 GiB free; the 5090 that has them leaves 1.03 GiB to others."""
    facts = FACTS["zenit"]

    million, fallback = facts.steps
    assert (million.outcome.name, million.outcome.free_bytes) == ("million", 32595733943)
    assert (fallback.outcome.name, fallback.outcome.free_bytes) == ("262k", 0)
    outcome = row(facts, "RTX 5090").outcome
    assert (outcome.name, outcome.floor_bytes) == ("million", 32595733943)
    assert outcome.spare_bytes == 33704378368 - 32595733943


@pytest.mark.parametrize("which", CONFIGS)
def test_every_row_of_a_card_is_what_the_launch_gets(which: str) -> None:
    """And the profile of a fitting one is lost with the last byte of what is to spare."""
    of = CONFIGS[which]

    for each in FACTS[which].cards:
        for card, outcome in zip(each.cards, each.outcomes, strict=True):
            free_bytes, floor_bytes = card.idle_free_bytes, outcome.floor_bytes
            assert name(asked(of, real(card, each.count, free_bytes))) == outcome.name
            if outcome.fits:
                assert asked(of, real(card, each.count, free_bytes)).decision.fits is True
                assert floor_bytes is not None
                assert name(asked(of, real(card, each.count, floor_bytes))) == outcome.name
                assert name(asked(of, real(card, each.count, floor_bytes - 1))) != outcome.name


def largest() -> CommonCard:
    return max((card for card in COMMON_CARDS if not card.integrated), key=lambda card: card.total_bytes)


@pytest.mark.parametrize("which", CONFIGS)
def test_every_step_begins_where_the_choice_changes(which: str) -> None:
    """On a new card that no measurement names."""
    of = CONFIGS[which]

    for each in FACTS[which].steps:
        if each.below is None:
            at, count = each.outcome.free_bytes, each.count
            found = asked(of, real(largest(), count, at, "Card X"))
            assert (name(found), found.reason) == (each.outcome.name, each.outcome.reason)
            if at:
                before = asked(of, real(largest(), count, at - 1, "Card X"))
                assert (name(before), before.reason) != (each.outcome.name, each.outcome.reason)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, largest().total_bytes), st.sampled_from(sorted(CONFIGS)), st.sampled_from([1, 2]))
def test_between_two_steps_nothing_else_is_chosen(free_bytes: int, which: str, count: int) -> None:
    """The steps are all that there are."""
    of = CONFIGS[which]
    found = name(asked(of, real(largest(), count, free_bytes, "Card X")))

    ladder = [s for s in FACTS[which].steps if s.count == count and s.below is None]
    inside = [
        s for s in ladder if s.outcome.free_bytes <= free_bytes and (s.until_bytes or 2**63) > free_bytes
    ]
    if count == 1 or found == "pair":
        assert [s.outcome.name for s in inside] == [found]
    else:
        assert inside == []


@pytest.mark.parametrize("card", [c for c in COMMON_CARDS if not c.integrated], ids=lambda c: c.label)
@pytest.mark.parametrize("which", ["zenit", "many"])
def test_a_step_holds_on_every_smaller_card_that_is_large_enough(card: CommonCard, which: str) -> None:
    """What a person reads as enough is enough, also where the utilization is rounded."""
    facts = FACTS[which]
    needed = {cap.profile.name: cap.total_bytes for cap in facts.caps}

    for each in facts.steps:
        free_bytes, profile = each.outcome.free_bytes, each.outcome.name
        if each.outcome.fits and each.below is None and card.compute_capability >= (8, 9):
            reached = card.total_bytes >= max(free_bytes, needed.get(profile or "", 0))
            found = asked(CONFIGS[which], real(card, each.count, min(free_bytes, card.total_bytes), "Card X"))
            assert (name(found) == profile) is reached


def test_the_smallest_card_of_a_profile_is_the_smallest() -> None:
    """One byte less in all, and no free memory reaches it."""
    (cap,) = FACTS["zenit"].caps

    assert (cap.profile.name, cap.utilization) == ("million", 0.95)
    for total_bytes, reached in ((cap.total_bytes, True), (cap.total_bytes - 1, False)):
        machine = Machine("machine", (Device(index=0, total_bytes=total_bytes, free_bytes=total_bytes),))
        assert (name(asked(CONFIGS["zenit"], machine)) == "million") is reached


def test_a_cards_own_measurement_counts_on_it_alone() -> None:
    facts = FACTS["many"]

    assert (row(facts, "RTX 5090").outcome.name, row(facts, "RTX 5090").outcome.basis) == (
        "middle",
        "this_card",
    )
    assert (row(facts, "L40S").outcome.name, row(facts, "L40S").outcome.basis) == ("middle", "another_card")
    assert row(facts, "H200").outcome.basis == "stated"


def test_a_card_below_the_capability_has_a_row_and_steps_of_its_own() -> None:
    """An A100 has no fp8 of the newer ones: the next profile that it can run."""
    of = config({"new": needs(20, 9000, requires_compute_capability="8.9"), "old": needs(15, 5000)})
    facts = gather(of)

    assert row(facts, "A100").outcome.name == "old"
    assert row(facts, "H100").outcome.name == "new"
    assert [(s.below, s.outcome.name, s.outcome.reason) for s in facts.steps] == [
        (None, "new", "widest_fitting"),
        (None, "old", "widest_fitting"),
        (None, "old", "nothing_fits"),
        ((8, 9), "old", "widest_fitting"),
        ((8, 9), "old", "nothing_fits"),
    ]


def test_two_cards_of_one_row_part_where_their_answers_do() -> None:
    of = config({"new": needs(20, 9000, requires_compute_capability="8.9"), "old": needs(15, 5000)})

    assert [c.label for c in row(gather(of), "RTX 3090").cards] == ["RTX 3090"]
    assert [c.label for c in row(FACTS["many"], "RTX 3090").cards] == ["RTX 3090", "RTX 4090"]


def test_several_cards_are_shown_only_where_one_is_not_enough() -> None:
    """A second card that nobody offered is not taken: 40 GiB do on an L40S."""
    of = config({"one": needs(40, 9000, **PIN), "two": needs(20, 9000, **PIN, **PAIR)})
    facts = gather(of)

    assert {(c.label, r.count) for r in facts.cards for c in r.cards if r.count > 1} == {
        ("RTX 3090", 2),
        ("RTX 4090", 2),
        ("RTX 5090", 2),
        ("L4", 2),
    }
    pair = step(facts, "two")
    assert (pair.count, pair.until_bytes) == (2, step(facts, "one").outcome.free_bytes)


def test_an_integrated_card_has_what_its_host_has_available() -> None:
    of = config({"a": needs(110, 10, **PIN, gpu_memory_utilization=1.0), "b": needs(1, 5)})

    outcome = row(gather(of), "DGX Spark").outcome
    assert outcome.name == "a"
    assert outcome.free_bytes == 121411960832


@pytest.mark.parametrize(
    ("of", "why"),
    [
        ({}, "carries no section"),
        ({"architectures": ["X"], "lomonosov_serving_profiles": {"profiles": {}}}, "0 profiles"),
        (
            {"architectures": ["X"], "lomonosov_serving_profiles": {"profiles": {"a": unrated(1)}}},
            "another architecture",
        ),
        (config({"a": {}}), "no profile of the section is valid"),
    ],
    ids=["none", "invalid", "other", "nothing valid"],
)
def test_without_profiles_there_is_no_card(of: dict[str, Any], why: str) -> None:
    with pytest.raises(CardError, match=why) as raised:
        gather(of)
    assert "zenit-hub validate" in str(raised.value)


# --- the cards themselves


def test_the_common_cards_are_the_eight_each_with_a_source() -> None:
    """Of the pair in one row both."""
    assert [card.label for card in COMMON_CARDS] == [
        "RTX 3090",
        "RTX 4090",
        "RTX 5090",
        "L4",
        "L40S",
        "A100",
        "H100",
        "H200",
        "DGX Spark",
    ]
    assert len({card.row for card in COMMON_CARDS}) == 8
    assert all(len(card.source) > 20 for card in COMMON_CARDS)


@pytest.mark.parametrize("card", COMMON_CARDS, ids=lambda card: card.label)
def test_a_card_addresses_a_little_less_than_is_on_its_box(card: CommonCard) -> None:
    """A box's GB is a GiB for chips that count in powers of two, and 10^9 bytes for the others."""
    on_the_box = int(card.size.removesuffix(" GB"))

    assert 0.9 * on_the_box * GIB < card.total_bytes < on_the_box * GIB
    assert card.idle_free_bytes <= card.total_bytes
    assert card.integrated == (card.system_bytes > 0)


def test_layouts_that_no_machine_holds_are_not_worked_out() -> None:
    """A section of a stranger may name a billion ranks, or each of 64 profiles its own number of them."""
    sizes = [1, 16, 17, 10**9, *range(100, 160)]
    profiles = {f"p{size}": needs(10, 1000 + size, **PIN, tensor_parallel_size=size) for size in sizes}
    facts = gather(config(profiles))

    assert {step.count for step in facts.steps} == {1, 16}
    assert {row.count for row in facts.cards} == {1}
