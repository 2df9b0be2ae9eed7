"""Serving profiles that a model repo carries itself.

The names below are what other code imports; they are loaded when they are first used, so that importing
``zenit_hub`` costs nothing in somebody's inference server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zenit_hub.api import (
        apply_profile,
        device_memory,
        install_model_owned_serving_defaults,
        memory_budget,
        select_profile,
    )
    from zenit_hub.env import PROFILE as ENV_PROFILE
    from zenit_hub.say import REPAIR_ID
    from zenit_hub.section import ARCHITECTURE_ID, BUDGET_KEY, CONFIG_KEY

_WHERE = {
    "ARCHITECTURE_ID": ("section", "ARCHITECTURE_ID"),
    "BUDGET_KEY": ("section", "BUDGET_KEY"),
    "CONFIG_KEY": ("section", "CONFIG_KEY"),
    "ENV_PROFILE": ("env", "PROFILE"),
    "REPAIR_ID": ("say", "REPAIR_ID"),
    "apply_profile": ("api", "apply_profile"),
    "device_memory": ("api", "device_memory"),
    "install_model_owned_serving_defaults": ("api", "install_model_owned_serving_defaults"),
    "memory_budget": ("api", "memory_budget"),
    "select_profile": ("api", "select_profile"),
}

__all__ = [
    "ARCHITECTURE_ID",
    "BUDGET_KEY",
    "CONFIG_KEY",
    "ENV_PROFILE",
    "REPAIR_ID",
    "apply_profile",
    "device_memory",
    "install_model_owned_serving_defaults",
    "memory_budget",
    "select_profile",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])
