"""Why a measured figure may not hold for this launch, and what of a profile or file was passed over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zenit_hub import env
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate
from zenit_hub.decision import Caution
from zenit_hub.machine import Surroundings
from zenit_hub.section import PIN, Measurement, Section
from zenit_hub.text import printable, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,39}")
"""What a data type or a quantization is called."""

MEASURED_FIELDS = (
    "kv_cache_dtype",
    "max_num_seqs",
    "max_num_batched_tokens",
    PIN,
    "enforce_eager",
    "limit_mm_per_prompt",
    "enable_prefix_caching",
    "skip_mm_profiling",
    "quantization",
    "dtype",
    "hf_overrides",
    "speculative_config",
    "enable_lora",
    "max_loras",
    "cpu_offload_gb",
    "num_gpu_blocks_override",
    "kv_offloading_size",
    "mamba_cache_dtype",
    "mamba_ssm_cache_dtype",
    "compilation_config",
)
"""Engine arguments that change what a launch needs; the parallel sizes are compared as a layout."""


def doubts(chosen: Candidate, section: Section, caller: Caller, around: Surroundings) -> list[Caution]:
    """Everything that the caller should know about the chosen profile's values and figure."""
    found = [
        _lacking(chosen, around),
        _batch_below_page(chosen, caller, around),
        _void(chosen, section, caller, around),
        _other_version(chosen, around),
        _dropped_false(chosen, caller),
    ]
    return [caution for caution in found if caution is not None]


def _lacking(chosen: Candidate, around: Surroundings) -> Caution | None:
    missing = [name for name in chosen.profile.arguments if name in around.engine.fields_absent]
    if not missing:
        return None
    return Caution(
        "engine_lacks_field",
        f"vLLM {around.engine.version} has no {', '.join(missing)}: not set. "
        f"To have all of profile {chosen.profile.name}, install a vLLM that has it.",
    )


def _batch_below_page(chosen: Candidate, caller: Caller, around: Surroundings) -> Caution | None:
    """Hybrid models have wide KV pages. Below 0.27 vLLM asserts that a batch holds one; up to 0.31 it walks the page
    in several steps, which nobody measured (``compat.PAGE_WARNING_ENDED``)."""
    own = chosen.profile.arguments.get("max_num_batched_tokens")
    typed = _effective("max_num_batched_tokens", caller, around)
    caching = chosen.profile.arguments.get("enable_prefix_caching")
    if caller.has("enable_prefix_caching"):
        caching = _effective("enable_prefix_caching", caller, around)
    if not around.engine.asserts_batch_holds_page or caching is False:
        return None
    if own is None or not isinstance(typed, int) or typed >= own:
        return None
    return Caution(
        "batch_below_page",
        f"--max-num-batched-tokens {typed} is below the profile's {own}: on a hybrid model a KV page may be wider than "
        f'that, and vLLM before 0.27 ends with "In Mamba cache align mode, block_size must be <= '
        f'max_num_batched_tokens" (this is {around.engine.version}). '
        f"Type {own}, or --no-enable-prefix-caching.",
    )


def _void(chosen: Candidate, section: Section, caller: Caller, around: Surroundings) -> Caution | None:
    if not chosen.needs:
        return None
    reasons = _other_values(chosen, caller, around) + _other_layout(chosen)
    lacking = [
        name
        for name in MEASURED_FIELDS
        if name in chosen.profile.arguments and name in around.engine.fields_absent
    ]
    reasons += [f"vLLM {around.engine.version} has no {name}" for name in lacking]
    reasons += _other_allocator(chosen, around.environment)
    if section.repo is not None and caller.repo is not None and caller.repo != section.repo:
        reasons.append(f"it was measured on {printable(section.repo)} and this is {printable(caller.repo)}")
    if not reasons:
        return None
    return Caution(
        "measurement_void",
        f"the measured figure of profile {chosen.profile.name} does not hold for this launch "
        f"({'; '.join(reasons)}): it still chooses, and may be too small or too large. "
        f"Measure with these values, or leave them out.",
    )


def _other_values(chosen: Candidate, caller: Caller, around: Surroundings) -> list[str]:
    reasons = []
    for name in MEASURED_FIELDS:
        if not caller.has(name):
            continue
        measured = chosen.profile.arguments.get(name, around.engine.defaults.get(name))
        value = _effective(name, caller, around)
        if value != measured or isinstance(value, bool) != isinstance(measured, bool):
            reasons.append(f"{name} is {_short(value)} and was {_short(measured)}")
    return reasons


def _effective(name: str, caller: Caller, around: Surroundings) -> Any:
    """What the engine will have for a field of the caller's: a false that vLLM drops leaves its default."""
    dropped = name in caller.yaml_false and name not in caller.values
    return around.engine.defaults.get(name) if dropped else caller.value(name)


def _short(value: object) -> str:
    """A plain value as it is; of others only that they are: an object may hold a secret."""
    if value is None:
        return "not set"
    if isinstance(value, (bool, int, float)):
        return str(value) if isinstance(value, bool) else shown(value)
    return printable(value) if isinstance(value, str) and _NAME.fullmatch(value) else "of your own"


def _other_layout(chosen: Candidate) -> list[str]:
    if chosen.layout == chosen.profile.layout or all(need.exact for need in chosen.needs):
        return []
    return [f"it was measured on {chosen.profile.layout} ranks and this is {chosen.layout}"]


def _other_allocator(chosen: Candidate, there: Mapping[str, str]) -> list[str]:
    theirs = next((there[name] for name in env.ALLOCATOR_SPELLINGS if name in there), None)
    own = chosen.profile.cuda_alloc_conf
    if theirs is None or _settings(theirs) == _settings(own or ""):
        return []
    return ["the allocator setting is the caller's"]


def _settings(setting: str) -> frozenset[str]:
    return frozenset(part.strip() for part in setting.split(",") if part.strip())


def _other_version(chosen: Candidate, around: Surroundings) -> Caution | None:
    same_layout = [
        entry for entry in chosen.profile.measurements if entry.layout == chosen.layout and entry.vllm
    ]
    cards = {card.name for card in chosen.ranks.cards}
    entries: list[Measurement] = [entry for entry in same_layout if entry.device in cards] or same_layout
    running = _minor(around.engine.version)
    if not entries or any(_minor(entry.vllm or "") == running for entry in entries):
        return None
    versions = ", ".join(dict.fromkeys(printable(entry.vllm) for entry in entries))
    return Caution(
        "other_vllm_version",
        f"profile {chosen.profile.name} was measured with vLLM {versions} and this is {around.engine.version}: "
        f"its need may have moved. Measure it again, or serve with {versions}.",
    )


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _dropped_false(chosen: Candidate, caller: Caller) -> Caution | None:
    named = [name for name in chosen.profile.arguments if name in caller.yaml_false]
    if not named:
        return None
    lines = ", ".join(f"no-{name.replace('_', '-')}: true" for name in named)
    return Caution(
        "yaml_false",
        f"vLLM drops a plain false in a --config file, so {', '.join(named)} stays as vLLM has it. "
        f"To switch off: {lines}",
    )
