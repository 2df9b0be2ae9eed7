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


CAUTIONS = {
    "alloc_conf_conflict": "An allocator key of the profile collides with this launch and was left out.",
    "auto_length": "The length is left to vLLM's own fit; the profile gives its other values, without its KV pin.",
    "batch_below_page": "The typed batch is smaller than the profile's, and this vLLM may stop at its KV page.",
    "chosen_does_not_fit": "A profile that was named, asked for by length, or the default, is known not to fit.",
    "config_unreadable": "The model's config.json cannot be used; vLLM starts without profiles.",
    "cuda_order_ambiguous": "Unlike cards without a fixed order: planned for the one with the least free memory.",
    "default_does_not_fit": "The repo's default profile does not fit; another one serves.",
    "device_unresolved": "CUDA_VISIBLE_DEVICES or --device-ids names a device that was not found.",
    "engine_lacks_field": "This vLLM has no such argument; it was not set.",
    "forced_too_narrow": "The named profile is narrower than the asked length and loses its KV pin.",
    "measurement_void": "A value of the caller's, another repo or another allocator setting voids the measured figure.",
    "memory_unknown": "The free memory could not be read; it chose nothing.",
    "multi_node_uncoordinated": "Nodes that cannot see each other's cards: memory decided nothing, no clamp.",
    "nothing_fits": "No measured profile fits; the one that needs the least is tried.",
    "other_vllm_version": "The profile was measured with another minor version of vLLM.",
    "profile_invalid": "A profile is not valid and takes no part; the others serve.",
    "requested_beyond_widest": "No window is as wide as the asked length; the widest serves without its KV pin.",
    "section_invalid": "Nothing of the section can be used; vLLM starts without profiles.",
    "unknown_device_count": "How many devices are visible is not known; profiles for several take no part.",
    "unknown_key": "The section holds keys that this version does not know; they are ignored.",
    "unrated_fallback": "No measured profile fits; the narrowest one that nobody measured is tried.",
    "utilization_lowered": "gpu_memory_utilization was lowered to what is free.",
    "utilization_not_admitted": "The caller's gpu_memory_utilization asks for more than is free; vLLM will refuse.",
    "yaml_false": "vLLM drops a plain `false` in a --config file, so the field stays as vLLM has it.",
}
"""Every code, and what it means. The sentence of one warning has its figures and what to type."""


@dataclass(frozen=True, slots=True)
class Caution:
    """A warning: its code, one of :data:`CAUTIONS`, and the sentence with the figures and what to do."""

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
