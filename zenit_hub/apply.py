"""From a decision to what is written: engine arguments and environment, only where the caller was silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from zenit_hub import budget, env
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate
from zenit_hub.decision import Caution, Decision
from zenit_hub.doubts import doubts
from zenit_hub.machine import Surroundings
from zenit_hub.section import (
    ENGINE_FIELDS,
    LAYOUT_FIELDS,
    PIN,
    UTILIZATION,
    WINDOW,
    Profile,
    Section,
    compact,
)
from zenit_hub.text import gib


@dataclass(frozen=True, slots=True)
class Filling:
    """Engine arguments to set, those that stay the caller's, variables to publish, and what is to be said."""

    set: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    cautions: tuple[Caution, ...] = ()


def fill(decision: Decision, section: Section, caller: Caller, around: Surroundings) -> Filling:
    """What ``decision`` writes. Nothing outside the section's list, nothing that is the caller's."""
    chosen = decision.chosen
    if chosen is None:
        return Filling()
    cautions: list[Caution] = []
    values = {
        name: value
        for name, value in wanted(chosen, caller).items()
        if name not in around.engine.fields_absent
    }
    kept = {name: caller.value(name) for name in values if caller.has(name)}
    to_set = {name: value for name, value in values.items() if name not in kept}
    utilization = _utilization(decision, chosen, caller, around, cautions)
    to_set.pop(UTILIZATION, None)
    if utilization is not None:
        to_set[UTILIZATION] = utilization
    if chosen.pin_bytes is None:
        to_set.pop(PIN, None)
    if to_set.get("async_scheduling") is False and _several_sequences(chosen, caller):
        del to_set["async_scheduling"]
    published = _environment(chosen, caller, around, cautions)
    cautions += doubts(chosen, section, caller, around)
    ordered = {name: to_set[name] for name in (*LAYOUT_FIELDS, *ENGINE_FIELDS) if name in to_set}
    return Filling(ordered, kept, published, tuple(cautions))


def wanted(chosen: Candidate, caller: Caller) -> dict[str, Any]:
    """All engine arguments that the profile names, its layout where it is not one device."""
    profile = chosen.profile
    layout = dict(zip(LAYOUT_FIELDS, (profile.layout.tensor, profile.layout.pipeline), strict=True))
    named = {name: size for name, size in layout.items() if size > 1}
    if caller.layout is not None:
        named = {name: size for name, size in named.items() if caller.has(name)}
    return {**named, **profile.arguments}


def _several_sequences(chosen: Candidate, caller: Caller) -> bool:
    """Synchronous scheduling is right for one sequence walking a long window and wrong for several."""
    sequences = caller.value("max_num_seqs", chosen.profile.arguments.get("max_num_seqs"))
    return isinstance(sequences, int) and sequences > 1


def _utilization(
    decision: Decision, chosen: Candidate, caller: Caller, around: Surroundings, cautions: list[Caution]
) -> float | None:
    """The utilization to write, or ``None``: only ever downward from the profile's, four places."""
    if caller.has(UTILIZATION):
        cautions += _not_admitted(chosen, caller)
        return None
    if UTILIZATION in around.engine.fields_absent:
        return None
    own: float | None = chosen.profile.arguments.get(UTILIZATION)
    share = start = budget.exact(chosen.utilization)
    if chosen.memory_is_known and not _hopeless(decision, chosen) and chosen.gate > 0:
        if chosen.pinned and chosen.requirement_bytes is not None:
            share = min(
                share, budget.round_up(Fraction(chosen.requirement_bytes, chosen.smallest_total_bytes))
            )
        if chosen.gate < share:
            share = chosen.gate
            cautions.append(_lowered(chosen, float(start), float(share)))
    if share == start:
        return own
    return float(share)


def _hopeless(decision: Decision, chosen: Candidate) -> bool:
    """Nothing fits and the need is above the free memory: the engine's own message is the clearer end."""
    pairs = zip(chosen.needs, chosen.ranks.cards, strict=False)
    return decision.reason == "nothing_fits" and any(
        need.bytes > (card.free_bytes or 0) for need, card in pairs
    )


def _lowered(chosen: Candidate, before: float, after: float) -> Caution:
    card = chosen.worst
    free_bytes, total_bytes = (card.free_bytes or 0, card.total_bytes or 0) if card else (0, 0)
    return Caution(
        "utilization_lowered",
        f"gpu_memory_utilization {before:g} of {gib(total_bytes)} would not be admitted with {gib(free_bytes)} free: "
        f"lowered to {after:g}. Free memory on the card to have more, or type --gpu-memory-utilization yourself.",
    )


def _not_admitted(chosen: Candidate, caller: Caller) -> list[Caution]:
    if not chosen.memory_is_known or caller.value(UTILIZATION) is None:
        return []
    short = [
        (budget.missing_bytes(card.free_bytes or 0, card.total_bytes or 0, chosen.utilization), card)
        for card in chosen.ranks.cards
    ]
    missing_bytes, card = max(short, key=lambda pair: pair[0])
    if missing_bytes <= 0:
        return []
    return [
        Caution(
            "utilization_not_admitted",
            f"--gpu-memory-utilization {chosen.utilization:g} asks {missing_bytes} bytes ({gib(missing_bytes)}) more "
            f"than the {gib(card.free_bytes or 0)} that are free: vLLM will refuse to start. "
            f"Type {float(max(chosen.gate, Fraction(0))):g} or less, or leave it out.",
        )
    ]


def _environment(
    chosen: Candidate, caller: Caller, around: Surroundings, cautions: list[Caution]
) -> dict[str, str]:
    """The variables that are not the caller's, in the table's order."""
    there = around.environment
    profile = chosen.profile
    found: dict[str, str] = {}
    window = effective_window(profile, caller)
    if window is not None:
        found[env.EFFECTIVE_WINDOW] = str(window)
    if profile.noosphere_mode is not None:
        found[env.NOOSPHERE_MODE] = profile.noosphere_mode
    if profile.cuda_alloc_conf is not None and not any(name in there for name in env.ALLOCATOR_SPELLINGS):
        setting = _allocator(profile.cuda_alloc_conf, chosen, caller, cautions)
        if setting:
            found[env.ALLOCATOR] = setting
    found |= _plan_variables(profile, there)
    found = {name: value for name, value in found.items() if name not in there}
    if caller.uses_ray and found:
        theirs = [name.strip() for name in there.get(env.RAY_COPIES, "").split(",") if name.strip()]
        found[env.RAY_COPIES] = ",".join(dict.fromkeys([*theirs, *found]))
    return found


def effective_window(profile: Profile, caller: Caller) -> int | None:
    """The length that the engine will run with; ``None`` where it is the caller's and cannot be seen."""
    if caller.requested_tokens is not None:
        return caller.requested_tokens
    if caller.has(WINDOW) and not caller.wants_auto_length:
        return None
    return profile.max_model_len


def _plan_variables(profile: Profile, there: Mapping[str, str]) -> dict[str, str]:
    """Either the stages or the flat keys: never both, and none beside the caller's own stages."""
    plan = profile.position_plan
    if plan.get("stages"):
        return {env.STAGES: compact(plan["stages"])}
    if env.STAGES in there:
        return {}
    return {name: str(plan[key]) for key, name in env.FLAT_PLAN.items() if key in plan}


def _allocator(setting: str, chosen: Candidate, caller: Caller, cautions: list[Caution]) -> str:
    """The profile's allocator setting without the key that this launch cannot bear."""
    reduces = chosen.layout.ranks > 1 and caller.value("disable_custom_all_reduce") is not True
    transfers = caller.value("kv_transfer_config") not in (None, False)
    kept = [part for part in split_allocator(setting) if part.replace(" ", "") != "expandable_segments:True"]
    if not (reduces or transfers) or len(kept) == len(split_allocator(setting)):
        return setting
    why = "KV transfer" if transfers else "custom all-reduce between the ranks"
    remedy = "" if transfers else " To have it, type --disable-custom-all-reduce."
    cautions.append(
        Caution(
            "alloc_conf_conflict",
            f"expandable_segments:True of profile {chosen.profile.name} collides with {why} and is left out.{remedy}",
        )
    )
    return ",".join(kept)


def split_allocator(setting: str) -> list[str]:
    """``key:value`` parts; a list value like ``[256:1,>:4]`` keeps its commas."""
    parts: list[str] = []
    for piece in setting.split(","):
        if parts and parts[-1].count("[") > parts[-1].count("]"):
            parts[-1] += f",{piece}"
        else:
            parts.append(piece)
    return [part for part in parts if part.strip()]
