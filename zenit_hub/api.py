"""The functions that other code imports from ``zenit_hub``: thin doors to the one decision path."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any

from zenit_hub import budget
from zenit_hub.apply import fill
from zenit_hub.caller import Caller
from zenit_hub.compat import engine_facts
from zenit_hub.decide import decide
from zenit_hub.decision import Decision
from zenit_hub.device import look_at_cards
from zenit_hub.installed import assumed_version
from zenit_hub.machine import Device, Machine, Surroundings
from zenit_hub.section import NEUTRAL_KEY, UTILIZATION, WINDOW, Section, read_section
from zenit_hub.visible import Sight, ranks, see_cards


def device_memory() -> tuple[int, int] | None:
    """``(free, total)`` bytes of the first visible CUDA device; ``None`` where they are not known.

    ``total`` is what CUDA can address. No CUDA context is made.
    """
    first = ranks(see_cards(look_at_cards(), os.environ, None), 1)
    if first.unknown is not None:
        return None
    card = first.cards[0]
    return (card.free_bytes or 0, card.total_bytes or 0)


def memory_budget(free_bytes: int, total_bytes: int, gpu_memory_utilization: float | None) -> int:
    """What a launch with a pinned KV cache may need on such a device, in bytes.

    ``None`` as utilization is the installed engine's default.
    """
    if gpu_memory_utilization is None:
        gpu_memory_utilization = _default_utilization()
    return budget.budget_bytes(free_bytes, total_bytes, gpu_memory_utilization, pinned=True)


def select_profile(
    spec: Mapping[str, Any],
    requested_max_model_len: int | None,
    device: tuple[int, int] | None = None,
    caller_utilization: float | None = None,
) -> tuple[str, dict[str, Any]] | None:
    """The profile of section ``spec`` that would serve, as ``(name, body)``; ``None``: none takes part.

    ``device`` is ``(free, total)`` in bytes, ``None`` where the memory is not known. Environment variables
    are not looked at.
    """
    section = _section(spec)
    if section is None:
        return None
    asked = {WINDOW: requested_max_model_len, UTILIZATION: caller_utilization}
    caller = Caller(values={name: value for name, value in asked.items() if value is not None})
    sight = Sight(unknown="not given")
    if device is not None:
        card = Device(0, free_bytes=device[0], total_bytes=device[1])
        sight = see_cards(Machine("machine", devices=(card,)), {}, None)
    chosen = decide(section, caller, _around({}), sight).chosen
    return None if chosen is None else (chosen.profile.name, dict(spec["profiles"][chosen.profile.name]))


def apply_profile(engine_args: Any, name: str, body: Mapping[str, Any]) -> list[str]:
    """Fill the fields of ``engine_args`` that its maker left alone from profile ``body``.

    Returns what was applied, as ``field=value``. Raises ``ValueError`` where the profile is invalid.
    """
    from zenit_hub.engine.typed import caller_of

    section = _section({"profiles": {name: body}})
    if section is None or name not in section.profiles:
        why = section.invalid.get(name, "") if section else ""
        raise ValueError(f"profile {name!r} is invalid: {why}")
    caller, _ = caller_of(engine_args, os.environ, headless=False)
    around = _around(os.environ)
    decision: Decision = decide(section, caller, _around({"ZENIT_SERVING_PROFILE": name}), None)
    filling = fill(decision, section, caller, around)
    applied = {field: value for field, value in filling.set.items() if hasattr(engine_args, field)}
    for field, value in applied.items():
        setattr(engine_args, field, value)
    return [f"{field}={value}" for field, value in applied.items()]


def install_model_owned_serving_defaults() -> bool:
    """Put the hook into this process before vLLM would, so that the first ``LLM(...)`` is seen whole.

    ``False`` where it is in already.
    """
    # Before the hook: what is there is watched.
    importlib.import_module("vllm.entrypoints.llm")
    from zenit_hub.engine.hook import install

    return install()


def _section(spec: Mapping[str, Any]) -> Section | None:
    dtypes = engine_facts(assumed_version()).kv_cache_dtypes
    config = {NEUTRAL_KEY: dict(spec), "architectures": spec.get("architectures")}
    reading = read_section(config, dtypes)
    return reading if isinstance(reading, Section) else None


def _around(environment: Mapping[str, str]) -> Surroundings:
    return Surroundings("cuda", engine_facts(assumed_version()), environment)


def _default_utilization() -> float:
    default = engine_facts(assumed_version()).defaults[UTILIZATION]
    return float(default) if isinstance(default, (int, float)) else 0.0
