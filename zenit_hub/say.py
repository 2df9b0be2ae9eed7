"""The lines that a launch says, once: which profile, why, with what figures, and how to start without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zenit_hub import env
from zenit_hub.answer import Answer
from zenit_hub.candidate import Candidate
from zenit_hub.text import gib, printable

REPAIR_ID = "ZENIT_MODEL_OWNED_SERVING_PROFILES_V1"
"""Every line begins with it, so that people can grep for it."""

LOGGER = "vllm.zenit_hub"
"""Below ``vllm.``: vLLM's handler drops the lines of any other logger."""

_WITHOUT = f"To start without profiles: {env.PROFILE}={env.OFF}."


def lines(found: Answer) -> list[str]:
    """The info lines of an answer; its cautions are said as warnings, by :func:`warnings`."""
    chosen = found.chosen
    if chosen is None:
        return []
    profile = chosen.profile
    said = [
        f"profile {profile.name} ({found.reason}): window {profile.max_model_len} tokens, {_figures(chosen)}.",
        f"set: {_pairs(found.filling.set) or 'nothing'}.",
    ]
    if found.filling.kept:
        said.append(f"kept as you gave them: {_pairs(found.filling.kept)}.")
    if found.filling.env:
        said.append(f"environment: {_pairs(found.filling.env)}.")
    said.append(_WITHOUT)
    return [prefixed(line) for line in said]


def warnings(found: Answer) -> list[str]:
    """The warning lines of an answer."""
    return [prefixed(f"{caution.message} [{caution.code}]") for caution in found.cautions]


def prefixed(line: str) -> str:
    return f"{REPAIR_ID} {line}"


def unseen(names: Iterable[str]) -> str:
    """For values that may be the caller's word or the default: how to say that they are his."""
    listed = ",".join(names)
    return prefixed(
        f"vLLM does not show whether {listed} was given or is its default here: taken as not given. "
        f"If it is yours: {env.KEEP}={listed}."
    )


def broken(what: str, why: object) -> str:
    """Something of ours went wrong, and vLLM starts all the same."""
    return prefixed(
        f"{what}: {printable(why)}. vLLM starts without profiles. `zenit-hub plan` shows more; "
        f"{env.PROFILE}={env.OFF} silences this."
    )


def _figures(chosen: Candidate) -> str:
    needed = "its need was not measured"
    if chosen.requirement_bytes is not None:
        needed = f"needs {gib(chosen.requirement_bytes)}"
    card = chosen.worst
    if card is None:
        return f"{needed}, free memory not known"
    room = f"{gib(card.free_bytes or 0)} of {gib(card.total_bytes or 0)} free{card.where}"
    return f"{needed}, {room}, budget {gib(chosen.budget_bytes or 0)}"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={printable(value, limit=300)}" for name, value in values.items())
