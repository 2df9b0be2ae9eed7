"""What a measurement stands on: how an engine is started, how memory is seen, how a device is made small.

A :class:`Bench` is put together once per profile, from the devices under its ranks; tests put one together
from the rigs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zenit_hub.errors import MeasurementError

if TYPE_CHECKING:
    from zenit_hub.maintain.measure.confine import Confiner
    from zenit_hub.maintain.measure.launch import Engine, Order
    from zenit_hub.maintain.measure.samplers import Sampler
    from zenit_hub.visible import Card


@dataclass(frozen=True, slots=True)
class Bench:
    """``confiner``: how the device is made small, or in one sentence why it cannot be."""

    engine: Callable[[Order], Engine]
    sampler: Callable[[], Sampler]
    confiner: Confiner | str


def bench_for(platform: str, cards: Sequence[Card]) -> Bench:
    """The bench for the devices under the ranks. Raises :class:`MeasurementError` where nothing can be seen."""
    from zenit_hub.maintain.measure.confine import confiner
    from zenit_hub.maintain.measure.launch import ServedEngine

    if platform == "cpu":
        from zenit_hub.maintain.measure.sample_host import HostSampler

        return Bench(ServedEngine, HostSampler, confiner("cpu", ()))
    uuids = tuple(card.uuid for card in cards if card.uuid)
    if platform != "cuda" or len(uuids) != len(cards) or not cards:
        raise MeasurementError(
            "there is no device here whose memory can be seen",
            got=platform,
            allowed="NVIDIA cards through NVML, or vLLM's CPU platform",
            next_step="`zenit-hub plan MODEL` shows what is seen.",
        )
    from zenit_hub.maintain.measure.sample_nvml import NvmlSampler

    return Bench(ServedEngine, lambda: NvmlSampler(uuids), confiner("cuda", uuids))
