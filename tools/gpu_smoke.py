"""The body of ``tools/gpu_smoke.sh``: each check is some rows of a table, held against what is allowed.

It looks at the first card (or slice) that CUDA shows to this process, and expects nobody else to use it.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zenit_hub.device import look_at_cards
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.ballast import BallastConfiner, why_no_ballast
from zenit_hub.text import printable
from zenit_hub.visible import Card, see_cards

MIB, GIB = 2**20, 2**30
CANNOT_RUN, DEVIATES = 2, 1

PROBE_ALLOWED_BYTES = 64 * MIB
"""Between what NVML and CUDA say of the same card at the same time."""
PAGE_BYTES = 2 * MIB
TAKEN_BYTES = GIB
LOWEST_HZ, HIGHEST_COST = 100.0, 0.01


@dataclass(frozen=True, slots=True)
class Row:
    """``fine``: within what is allowed."""

    what: str
    expected: str
    got: str
    allowed: str
    fine: bool


class CannotRun(Exception):
    """Why there is nothing to check here, in one sentence."""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tools/gpu_smoke.sh", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to sample (default: 10)")
    seconds = parser.parse_args(words).seconds
    try:
        torch, card = find_torch(), find_card()
        if why_not := why_no_ballast():
            raise CannotRun(why_not)
    except CannotRun as why:
        print(f"gpu_smoke: {why}", file=sys.stderr)
        return CANNOT_RUN
    checks = {
        "probe": probe(torch),
        "sampling": sampling(card, seconds),
        "fall": fall(torch, card),
        "ballast": ballast(torch, card),
    }
    rows: list[Row] = []
    for name, found in checks.items():
        try:
            for row in found:
                rows.append(row)
        except (CannotRun, MeasurementError, RuntimeError) as why:  # the last is torch's own
            rows.append(Row(name, "", printable(why), "", fine=False))
    show(card, rows)
    return 0 if all(row.fine for row in rows) else DEVIATES


def find_torch() -> Any:
    try:
        import torch
    except ImportError:
        raise CannotRun(
            "torch cannot be imported: use a Python that has it (PYTHON=… tools/gpu_smoke.sh)"
        ) from None
    if not torch.cuda.is_available():
        raise CannotRun("torch sees no CUDA device here: this script needs a machine with an NVIDIA card")
    return torch


def find_card() -> Card:
    """The device that CUDA numbers 0."""
    machine = look_at_cards()
    if machine.driver_error is not None:
        raise CannotRun(f"no card can be seen: {machine.driver_error}")
    cards = see_cards(machine, os.environ, None).cards
    card = cards[0] if cards else None
    if not isinstance(card, Card) or card.uuid is None or card.free_bytes is None:
        why = "no card is visible" if card is None else getattr(card, "error", None) or card
        raise CannotRun(f"the memory of the first card cannot be read: {why}")
    return card


# --- the checks


def probe(torch: Any) -> Iterator[Row]:
    """What the serving side sees before a launch, beside what CUDA says with a context in place."""
    keep(torch, PAGE_BYTES)
    gc.collect()
    free_bytes, total_bytes = torch.cuda.mem_get_info(0)
    card = find_card()
    yield difference("probe: total, beside torch's", total_bytes, card.total_bytes or 0, PROBE_ALLOWED_BYTES)
    yield difference("probe: free, beside torch's", free_bytes, card.free_bytes or 0, PROBE_ALLOWED_BYTES)


def sampling(card: Card, seconds: float) -> Iterator[Row]:
    """How often and at what cost the tool looks."""
    with sampled(card) as sampler:
        time.sleep(seconds)
    hz, cost = sampler.trace.sampled_hz, sampler.trace.cost_share
    yield Row("NVML sampling", "", f"{hz:.1f} Hz", f">= {LOWEST_HZ:g} Hz", hz >= LOWEST_HZ)
    yield Row("its cost, of one core", "", f"{cost:.2%}", f"< {HIGHEST_COST:.0%}", cost < HIGHEST_COST)
    moved_bytes = sampler.trace.foreign_bytes or 0
    yield difference("moved by others meanwhile", 0, moved_bytes, 16 * MIB)


def fall(torch: Any, card: Card) -> Iterator[Row]:
    """The outside figure of something whose size is known."""
    with sampled(card) as sampler:
        kept = keep(torch, TAKEN_BYTES)
        time.sleep(0.2)
        del kept
        torch.cuda.empty_cache()
    yield difference(
        f"fall while torch takes {TAKEN_BYTES // MIB} MiB", TAKEN_BYTES, sampler.trace.drop_bytes, PAGE_BYTES
    )


def ballast(torch: Any, card: Card) -> Iterator[Row]:
    """A card made small is that small for NVML and for CUDA, and large again afterwards."""
    before_bytes = find_card().free_bytes or 0
    wanted_bytes = before_bytes // 2 // MIB * MIB + MIB // 2
    confiner = BallastConfiner([card.uuid or ""])
    with confiner.hold(wanted_bytes):
        held = confiner.held[0]
        left_bytes = find_card().free_bytes or 0
        yield difference("ballast: left, by NVML", wanted_bytes, left_bytes, held.granule_bytes)
        cuda_bytes = torch.cuda.mem_get_info(0)[0]
        yield difference("ballast: left, by torch", wanted_bytes, cuda_bytes, PROBE_ALLOWED_BYTES)
        for more_bytes, expected in ((-PROBE_ALLOWED_BYTES, "taken"), (PROBE_ALLOWED_BYTES, "refused")):
            got = "taken" if fits(torch, wanted_bytes + more_bytes) else "refused"
            yield Row(
                f"torch asks for {more_bytes // MIB:+d} MiB of that", expected, got, "", got == expected
            )
    yield difference("ballast: free again", before_bytes, find_card().free_bytes or 0, PAGE_BYTES)


# --- what they stand on


class Sampled:
    """What a sampler saw inside a ``with``."""

    trace: Any = None


@contextmanager
def sampled(card: Card) -> Iterator[Sampled]:
    from zenit_hub.maintain.measure.sample_nvml import NvmlSampler

    result, sampler = Sampled(), NvmlSampler((card.uuid or "",))
    sampler.start()
    try:
        yield result
    finally:
        result.trace = sampler.stop()


def keep(torch: Any, size_bytes: int) -> Any:
    """So many bytes of the card, straight from the driver: a new block each time."""
    torch.cuda.empty_cache()
    return torch.empty(size_bytes, dtype=torch.uint8, device="cuda:0")


def fits(torch: Any, size_bytes: int) -> bool:
    try:
        keep(torch, size_bytes)
    except torch.cuda.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def difference(what: str, expected_bytes: int, got_bytes: int, allowed_bytes: int) -> Row:
    fine = abs(got_bytes - expected_bytes) <= allowed_bytes
    return Row(what, str(expected_bytes), str(got_bytes), f"+/- {allowed_bytes // MIB} MiB", fine)


def show(card: Card, rows: list[Row]) -> None:
    """The table, and in how many rows something deviates."""
    print(f"{card.name} ({card.uuid})")
    lines = [("", "expected", "got", "allowed", "")]
    lines += [
        (row.what, row.expected, row.got, row.allowed, "ok" if row.fine else "DEVIATES") for row in rows
    ]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for line in lines:
        first, *others = (word.ljust(width) for word, width in zip(line, widths, strict=True))
        print("  ".join([first, *others]).rstrip())
    deviating = sum(not row.fine for row in rows)
    print(
        f"{len(rows)} checks, {deviating} deviate" if deviating else f"{len(rows)} checks, all within limits"
    )


if __name__ == "__main__":
    raise SystemExit(main())
