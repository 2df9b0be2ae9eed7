"""The sentences of a decision: what was found, with its figures, and what to type."""

from __future__ import annotations

from zenit_hub import env
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate
from zenit_hub.decision import Caution
from zenit_hub.section import Profile
from zenit_hub.text import GIB_SHOWN_BYTES, gib, printable


def forced_too_narrow(profile: Profile, wanted_tokens: int) -> Caution:
    return Caution(
        "forced_too_narrow",
        f"profile {profile.name} was forced and holds {profile.max_model_len} tokens, {wanted_tokens} were asked "
        f"for: its kv_cache_memory_bytes is left out. Ask for {profile.max_model_len} or less, "
        f"or force a wider one.",
    )


def lacks_capability(chosen: Candidate) -> Caution:
    needed = chosen.profile.requires_compute_capability or (0, 0)
    return Caution(
        "chosen_does_not_fit",
        f"profile {chosen.profile.name} was forced and needs compute capability {needed[0]}.{needed[1]}, "
        f"which this card has not: it may not start. Unset {env.PROFILE} to let another be chosen.",
    )


def beyond_widest(widest: Profile, wanted_tokens: int) -> Caution:
    window = widest.max_model_len
    return Caution(
        "requested_beyond_widest",
        f"{wanted_tokens} tokens were asked for, the widest declared window that can serve here has {window} "
        f"({widest.name}): served by it without its kv_cache_memory_bytes, which was sized for less. "
        f"Ask for {window} or less to have what was measured.",
    )


def unrated_fallback(chosen: Candidate, least: Candidate) -> Caution:
    """``least``: of the measured ones, the one that needs the least."""
    return Caution(
        "unrated_fallback",
        f"{_free(least)}, the leanest measured profile {least.profile.name} needs {gib(least.need_bytes)}: "
        f"the unmeasured {chosen.profile.name} ({chosen.profile.max_model_len} tokens) is tried instead. "
        f"{_remedy(least)} Or name a profile with {env.PROFILE}.",
    )


def nothing_fits(least: Candidate) -> Caution:
    return Caution(
        "nothing_fits",
        f"no measured profile fits: {_free(least)}, {least.profile.name} needs the least with "
        f"{gib(least.need_bytes)}. {_remedy(least)} Or start without profiles: {env.PROFILE}={env.OFF}.",
    )


def default_does_not_fit(default: Candidate, chosen: Candidate) -> Caution:
    return Caution(
        "default_does_not_fit",
        f"the repo's default {default.profile.name} needs {gib(default.need_bytes)} and {_free(default)}: "
        f"{chosen.profile.name} ({chosen.profile.max_model_len} tokens) serves instead. "
        f"To have the default all the same: {env.PROFILE}={default.profile.name}.",
    )


def chosen_does_not_fit(chosen: Candidate) -> Caution:
    return Caution(
        "chosen_does_not_fit",
        f"profile {chosen.profile.name} needs {gib(chosen.need_bytes)} and {_free(chosen)} "
        f"(its budget is {gib(chosen.budget_bytes or 0)}): it is served as asked and may not start. "
        f"{_remedy(chosen)} Or ask for a narrower window.",
    )


def auto_length(chosen: Candidate) -> Caution:
    return Caution(
        "auto_length",
        f"--max-model-len auto leaves the length to vLLM's own fit: profile {chosen.profile.name} "
        f"gives its other values, without kv_cache_memory_bytes. "
        f"To have its window, leave --max-model-len out.",
    )


def unknown_device_count() -> Caution:
    return Caution(
        "unknown_device_count",
        "how many devices are visible is not known, so the profiles for several devices take no part. "
        "To take one, type its --tensor-parallel-size and --pipeline-parallel-size.",
    )


def about_sight(looked_at: Candidate, caller: Caller) -> list[Caution]:
    """What is to be said about the look at the machine itself."""
    found = []
    if caller.why_apart is not None:
        found.append(
            Caution(
                "multi_node_uncoordinated",
                f"{caller.why_apart}: the nodes cannot see each other's cards, so memory decides nothing and no "
                f"utilization is lowered; every node takes the same. "
                f"To choose, set {env.PROFILE} on all nodes alike.",
            )
        )
    if looked_at.sight is not None and not looked_at.memory_is_known:
        found.append(
            Caution(
                "device_unresolved" if looked_at.ranks.unresolved else "memory_unknown",
                f"the free memory is not known ({looked_at.ranks.unknown}), so it chooses nothing here. "
                f"To choose, set {env.PROFILE} or --max-model-len.",
            )
        )
    if looked_at.ranks.ambiguous and looked_at.worst is not None:
        found.append(
            Caution(
                "cuda_order_ambiguous",
                f"the cards are unlike and CUDA may number them otherwise than NVML: planned for the one with the "
                f"least free memory, {printable(looked_at.worst.name)} ({_free(looked_at)}). "
                f"To be certain, set {env.DEVICE_ORDER}={env.BUS_ORDER}.",
            )
        )
    return found


def _remedy(weighed: Candidate) -> str:
    """How much more must be free, where freeing memory can help at all."""
    more_bytes = weighed.more_free_bytes
    if more_bytes is None:
        return f"This card cannot hold it with gpu_memory_utilization {weighed.utilization:g}."
    return f"Free {gib(max(more_bytes, GIB_SHOWN_BYTES))} more."


def _free(weighed: Candidate) -> str:
    card = weighed.worst
    if card is None:
        return "nothing is known"
    return f"{gib(card.free_bytes or 0)} of {gib(card.total_bytes or 0)} are free{card.where}"
