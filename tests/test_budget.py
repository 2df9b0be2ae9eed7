"""The arithmetic of memory, to the byte."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest

from zenit_hub import budget

GIB = 2**30
CARD = 32 * GIB


@pytest.mark.parametrize(
    ("utilization", "share"),
    [
        (0.92, Fraction(92, 100)),
        (1.0, Fraction(1)),
        (1e-7, Fraction(1, 10**7)),
        (-0.5, Fraction(-1, 2)),
        (math.nan, Fraction(0)),
        (math.inf, Fraction(0)),
        (-math.inf, Fraction(0)),
    ],
)
def test_a_utilization_is_the_decimal_that_was_written(utilization: float, share: Fraction) -> None:
    """0.92 is 92/100, not the binary fraction beside it; what is no share of a card is none of it."""
    assert budget.exact(utilization) == share


def test_the_pinned_budget_is_98_percent_of_what_is_free() -> None:
    """With a pinned KV cache 2 % of the free memory are kept back, rounded down to the byte."""
    assert budget.budget_bytes(101, 1000, 1.0, pinned=True) == 98


def test_the_utilization_bounds_the_pinned_budget() -> None:
    """A budget is never more than the utilization's share of the card."""
    assert budget.budget_bytes(1000, 1000, 0.5, pinned=True) == 500
    assert budget.budget_bytes(999, 999, 0.1, pinned=True) == 99


def test_the_unpinned_budget_is_the_gate() -> None:
    """Without a pin the engine takes what it is let have: the rounded gate decides."""
    free_bytes = 30 * GIB
    gate = Fraction(math.floor(10_000 * (free_bytes - 768 * 2**20) / Fraction(CARD)), 10_000)

    assert budget.gate(free_bytes, CARD) == gate
    assert budget.budget_bytes(free_bytes, CARD, 1.0, pinned=False) == math.floor(CARD * gate)


@pytest.mark.parametrize(
    ("free_bytes", "kept_back_bytes"),
    [(10 * GIB, 768 * 2**20), (50 * 768 * 2**20, 768 * 2**20), (100 * GIB, 2 * GIB)],
)
def test_the_gate_keeps_back_the_larger_of_two_percent_and_768_mib(
    free_bytes: int, kept_back_bytes: int
) -> None:
    """768 MiB on small cards, 2 % on large ones; both are the same at 37.5 GiB."""
    total_bytes = 200 * GIB

    assert budget.gate(free_bytes, total_bytes) == budget.round_down(
        Fraction(free_bytes - kept_back_bytes, total_bytes)
    )


@pytest.mark.parametrize(
    ("free_bytes", "total_bytes"), [(0, CARD), (768 * 2**20, CARD), (5, 0), (5, -1), (0, 0)]
)
def test_where_nothing_is_left_the_gate_is_not_positive_and_the_budget_is_nothing(
    free_bytes: int, total_bytes: int
) -> None:
    """A full card, and a card without a size, admit nothing."""
    assert budget.gate(free_bytes, total_bytes) <= 0
    assert budget.budget_bytes(free_bytes, total_bytes, 0.9, pinned=False) == 0


def test_a_budget_is_never_negative() -> None:
    """A negative utilization, which nobody means, gives no budget rather than a debt."""
    assert budget.budget_bytes(GIB, CARD, -0.5, pinned=True) == 0


def test_missing_bytes_are_those_that_vllm_would_miss() -> None:
    """vLLM asks ``ceil(total × u) ≤ free``: equality starts, one byte less does not."""
    total_bytes, utilization = 1001, 0.5

    assert budget.missing_bytes(501, total_bytes, utilization) == 0
    assert budget.missing_bytes(500, total_bytes, utilization) == 1


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("need_bytes", [1, GIB, 20 * GIB + 1, 29 * GIB])
def test_the_free_memory_that_a_message_asks_for_is_enough_and_a_byte_less_is_not(
    need_bytes: int, pinned: bool
) -> None:
    """What a person is told to free makes the profile fit, to the byte."""
    free_bytes = budget.free_needed_bytes(need_bytes, CARD, 0.95, pinned=pinned)

    assert free_bytes is not None
    assert budget.budget_bytes(free_bytes, CARD, 0.95, pinned=pinned) >= need_bytes
    assert budget.budget_bytes(free_bytes - 1, CARD, 0.95, pinned=pinned) < need_bytes


def test_no_free_memory_helps_where_the_utilization_is_the_bound() -> None:
    """A card of which half may be used never holds more than half of itself."""
    assert budget.free_needed_bytes(CARD // 2 + 1, CARD, 0.5, pinned=True) is None


def test_shares_are_rounded_to_four_places_in_the_direction_asked_for() -> None:
    """Down for what is let in, up for what is needed."""
    assert budget.round_down(Fraction(92349, 100_000)) == Fraction(9234, 10_000)
    assert budget.round_up(Fraction(92341, 100_000)) == Fraction(9235, 10_000)
    assert budget.round_up(Fraction(9234, 10_000)) == Fraction(9234, 10_000)


def test_figures_beyond_a_float_stay_exact() -> None:
    """Bytes are integers of any length on their way through."""
    total_bytes = 10**400

    assert budget.budget_bytes(total_bytes, total_bytes, 0.5, pinned=True) == total_bytes // 2
