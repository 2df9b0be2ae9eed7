"""Facts about a machine, gathered once and before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from zenit_hub.compat import EngineFacts

Platform = Literal["cuda", "cpu", "rocm", "xpu", "unspecified"]
PLATFORMS: tuple[Platform, ...] = ("cuda", "cpu", "rocm", "xpu", "unspecified")
PROBED_PLATFORMS: tuple[Platform, ...] = ("cuda", "cpu")
"""Where anything is known about memory; elsewhere nothing is looked at."""

Source = Literal["nvml", "host", "machine"]


@dataclass(frozen=True, slots=True)
class Slice:
    """One MIG slice of a card. Bytes are ``None`` where they could not be read; ``error`` says why."""

    uuid: str
    total_bytes: int | None = None
    free_bytes: int | None = None
    name: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """One card as NVML numbers it. ``total_bytes`` is what CUDA can address (NVML's without the reserved part)."""

    index: int
    uuid: str = ""
    name: str = ""
    compute_capability: tuple[int, int] | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    error: str | None = None
    integrated: bool = False
    slices: tuple[Slice, ...] = ()
    node: str | None = None
    """Where it is, of the cards of a cluster."""


@dataclass(frozen=True, slots=True)
class Host:
    """The memory of the host that a launch can have: ``MemAvailable``, never ``MemFree``."""

    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What was found. ``driver_error`` is NVML's, in words; then ``devices`` means nothing.

    ``cluster``: the devices are those of several nodes that Ray may give to the launch, each as its node sees it.
    """

    source: Source
    devices: tuple[Device, ...] = ()
    driver_error: str | None = None
    host: Host | None = None
    host_error: str | None = None
    cluster: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What holds before any memory is looked at: the engine, its platform and the environment."""

    platform: Platform
    engine: EngineFacts
    environment: Mapping[str, str] = field(default_factory=dict)
