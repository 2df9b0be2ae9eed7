"""What a decision is: the chosen profile with its reason, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from zenit_hub.candidate import Candidate, Verdict

Reason = Literal[
    "forced",
    "requested_length",
    "requested_beyond_widest",
    "widest_fitting",
    "unrated_fallback",
    "nothing_fits",
    "default",
    "off",
    "no_section",
    "other_architecture",
    "unreadable",
    "invalid",
    "not_hub",
    "no_default",
]


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning: its code from the contract, and the sentence with the figures and what to do."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Considered:
    """What became of one profile. Bytes are per device, of the rank that is short of most."""

    verdict: Verdict | None
    max_model_len: int | None = None
    requires_free_bytes: int | None = None
    budget_bytes: int | None = None
    short_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen profile with the facts that chose it; ``chosen`` is ``None`` where none takes part."""

    reason: Reason
    chosen: Candidate | None = None
    considered: Mapping[str, Considered] = field(default_factory=dict)
    cautions: tuple[Caution, ...] = ()
    base: Candidate | None = None
    """The bare device that memory was looked up on, for the report where nothing was chosen."""

    @property
    def fits(self) -> bool | None:
        return self.chosen.fits if self.chosen else None
