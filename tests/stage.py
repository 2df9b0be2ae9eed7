"""The fakes of a decision: a section, cards and a caller, put together in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from zenit_hub.answer import Answer, answer
from zenit_hub.caller import Caller, kept_values
from zenit_hub.compat import engine_facts
from zenit_hub.decision import Caution
from zenit_hub.machine import Device, Host, Machine, Platform, Surroundings
from zenit_hub.plan import contract

GIB = 2**30
VERSION = "0.33.0"
DTYPES = engine_facts(VERSION).kv_cache_dtypes

Config = dict[str, Any]


def config(profiles: Mapping[str, object], **section: object) -> Config:
    """A config with a section under the neutral name, which speaks for the config's own architecture."""
    return {"architectures": ["TinyForCausalLM"], "serving_profiles": {"profiles": dict(profiles), **section}}


def needs(gib: float, window: int = 4096, **values: object) -> dict[str, object]:
    """A profile with a figure, and with no pin unless ``values`` has one."""
    return {"max_model_len": window, "requires_free_bytes": int(gib * GIB), **values}


def unrated(window: int, **values: object) -> dict[str, object]:
    """A profile without a figure."""
    return {"max_model_len": window, **values}


def card(free_gib: float | None, total_gib: float = 32, *, index: int = 0, **facts: Any) -> Device:
    """A card with memory to the GiB; ``None``: NVML gives no figures."""
    return Device(
        **{
            "index": index,
            "uuid": f"GPU-{index}0000000-0000-0000-0000-000000000000",
            "name": "Card A",
            "compute_capability": (9, 0),
            "total_bytes": int(total_gib * GIB),
            "free_bytes": None if free_gib is None else int(free_gib * GIB),
            **facts,
        }
    )


def cards(*free_gib: float | None, total_gib: float = 32) -> Machine:
    """A machine with like cards."""
    return Machine(
        "machine", tuple(card(free, total_gib, index=index) for index, free in enumerate(free_gib))
    )


def host(available_gib: float, total_gib: float) -> Machine:
    """A machine of the CPU platform."""
    return Machine("machine", host=Host(int(total_gib * GIB), int(available_gib * GIB)))


def measured(general_gib: float | None, **figures_gib: float) -> dict[str, object]:
    """The figures of a profile: the general one, and one for each card (``Card_A`` is "Card A")."""
    entries = [
        {"device": device.replace("_", " "), "requires_free_bytes": int(gib * GIB)}
        for device, gib in figures_gib.items()
    ]
    general = {} if general_gib is None else {"requires_free_bytes": int(general_gib * GIB)}
    return {"measurements": entries, **general}


def forced(profile: str) -> dict[str, str]:
    """An environment in which the profile is named."""
    return {"ZENIT_SERVING_PROFILE": profile}


PAIR = {"tensor_parallel_size": 2}

THREE = config(
    {"narrow": needs(10, 4096), "middle": needs(20, 8192), "wide": needs(40, 16384)}, default_profile="narrow"
)
"""Three measured windows, the narrowest the default."""

NO_DRIVER = Machine("machine", driver_error="no permission")


def never() -> Machine:
    """A look that must not happen."""
    raise AssertionError("the machine was looked at")


def asked(
    of: Any,
    machine: Machine | Callable[[], Machine] = NO_DRIVER,
    *,
    typed: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    yaml_false: Sequence[str] = (),
    platform: Platform = "cuda",
    version: str = VERSION,
    absent: Sequence[str] | None = None,
    repo: str | None = None,
    device_ids: Sequence[int | str] | None = None,
) -> Answer:
    """What a launch would do: config, machine and caller through the one decision path."""
    engine, there = engine_facts(version), environment or {}
    if absent is not None:
        engine = replace(engine, fields_absent=frozenset(absent))
    caller = Caller(
        values=typed or {},
        kept=kept_values(there, engine.defaults),
        yaml_false=frozenset(yaml_false),
        repo=repo,
    )
    look = machine if callable(machine) else lambda: machine
    return answer(of, caller, Surroundings(platform, engine, there), look, device_ids)


def name(found: Answer) -> str | None:
    """The chosen profile's."""
    return found.chosen.profile.name if found.chosen else None


def told(found: Answer) -> set[str]:
    """The codes of the warnings."""
    return {caution.code for caution in found.cautions}


def sentence(found: Answer, code: str) -> str:
    """The one warning of that code."""
    (caution,) = [caution for caution in found.cautions if caution.code == code]
    assert isinstance(caution, Caution)
    return caution.message


def verdicts(found: Answer) -> dict[str, str | None]:
    """Profile → what became of it."""
    return {profile: seen.verdict for profile, seen in found.decision.considered.items()}


def as_json(found: Answer) -> dict[str, Any]:
    """The answer as ``plan --json`` gives it."""
    return contract(found, "MODEL", [], None)
