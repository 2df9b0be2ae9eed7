"""The arithmetic of memory: what a launch may take, and what vLLM will let in. Exact, in bytes.

Figures are compared to the byte, so utilizations are taken as the decimals that people wrote and not
as the binary fractions that stand for them.
"""

from __future__ import annotations

import math
from fractions import Fraction

NEED_MARGIN = Fraction(2, 100)
"""Kept free beside a pinned KV cache: a desktop grew by 0.6 of 29 GiB between the look and the start
(measured by the model's maintainer)."""

ENGINE_MARGIN_BYTES = 768 * 2**20
"""What the engine takes before it looks at the free memory itself: 612 MiB of CUDA context (measured on
vLLM 0.32) and NCCL; on large cards 2 % are more."""

_PLACES = 10_000
"""vLLM's utilization is written with four places."""


def exact(utilization: float) -> Fraction:
    """The decimal that ``utilization`` is written as; 0 for what is no number of the card's share."""
    return Fraction(repr(utilization)) if math.isfinite(utilization) else Fraction(0)


def gate(free_bytes: int, total_bytes: int) -> Fraction:
    """The largest utilization that vLLM will admit when it looks, four places, rounded down; may be ≤ 0."""
    if total_bytes <= 0:
        return Fraction(0)
    kept_back_bytes = max(NEED_MARGIN * free_bytes, Fraction(ENGINE_MARGIN_BYTES))
    return round_down((free_bytes - kept_back_bytes) / total_bytes)


def budget_bytes(free_bytes: int, total_bytes: int, utilization: float, *, pinned: bool) -> int:
    """What a launch may need on one device, in bytes, when it runs with ``utilization``.

    ``pinned``: the size of its KV cache is fixed, so the utilization only decides the admission.
    """
    share = (1 - NEED_MARGIN) * free_bytes if pinned else total_bytes * gate(free_bytes, total_bytes)
    return max(0, math.floor(min(total_bytes * exact(utilization), share)))


def missing_bytes(free_bytes: int, total_bytes: int, utilization: float) -> int:
    """By how many bytes vLLM would refuse to start (it asks ``ceil(total × u) ≤ free``); ≤ 0: it starts."""
    return math.ceil(total_bytes * exact(utilization)) - free_bytes


def free_needed_bytes(need_bytes: int, total_bytes: int, utilization: float, *, pinned: bool) -> int | None:
    """The least free memory whose budget holds ``need_bytes``; ``None``: no free memory of that card does.

    Found by asking :func:`budget_bytes` itself, so that a message and the decision cannot differ.
    """
    low, high = 0, total_bytes
    if budget_bytes(high, total_bytes, utilization, pinned=pinned) < need_bytes:
        return None
    while low < high:
        middle = (low + high) // 2
        if budget_bytes(middle, total_bytes, utilization, pinned=pinned) >= need_bytes:
            high = middle
        else:
            low = middle + 1
    return high


def round_down(share: Fraction) -> Fraction:
    return Fraction(math.floor(share * _PLACES), _PLACES)


def round_up(share: Fraction) -> Fraction:
    return Fraction(math.ceil(share * _PLACES), _PLACES)
