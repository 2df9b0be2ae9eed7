"""Who follows a run: a person at a terminal, a machine that reads events, a test, nobody."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zenit_hub.maintain.measure.samplers import Sampler
from zenit_hub.maintain.measurement import Boot, BootKind, Measurement, PhaseName


class Watch(Protocol):
    """Told of what happens, in order. Must not raise, and must not take long: the engine is being measured."""

    def run_begins(self, profiles: Sequence[str]) -> None:
        """These profiles will be measured, in this order."""

    def profile_begins(self, profile: str, boots: int) -> None:
        """``boots``: starts of the engine that are planned, without repeats."""

    def boot_begins(self, kind: BootKind, attempt: int, sampler: Sampler) -> None:
        """``attempt``: 1 for the first try. ``sampler`` knows the latest figure."""

    def phase(self, name: PhaseName) -> None: ...

    def boot_ends(self, boot: Boot) -> None: ...

    def profile_ends(self, measurement: Measurement, file: str) -> None: ...

    def said(self, sentence: str) -> None:
        """Something that a person should know now."""


class Nobody:
    """Follows nothing."""

    def run_begins(self, profiles: Sequence[str]) -> None: ...

    def profile_begins(self, profile: str, boots: int) -> None: ...

    def boot_begins(self, kind: BootKind, attempt: int, sampler: Sampler) -> None: ...

    def phase(self, name: PhaseName) -> None: ...

    def boot_ends(self, boot: Boot) -> None: ...

    def profile_ends(self, measurement: Measurement, file: str) -> None: ...

    def said(self, sentence: str) -> None: ...
