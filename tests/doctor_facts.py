"""Facts for the doctor's checks: a machine on which all is well but what is given."""

from __future__ import annotations

import json
from typing import Any

from tests.stage import GIB, cards
from zenit_hub.compat import engine_facts
from zenit_hub.machine import Host, Machine, Platform, Surroundings
from zenit_hub.maintain.doctor.check import Check
from zenit_hub.maintain.doctor.checks import examine
from zenit_hub.maintain.doctor.facts import Facts, Hub, Installed, Memory, Model, ModelRead, Reached, Token
from zenit_hub.maintain.validate import validate
from zenit_hub.read import Found

HERE = Installed((3, 11, 7), "/env/bin/python", "0.33.0", ("zenit_hub",))
ANSWERS = Hub(Reached("https://hub.example"), Token("none"))
ROOMY = Host(64 * GIB, 60 * GIB)


def facts(
    *,
    installed: Installed = HERE,
    platform: Platform = "cuda",
    machine: Machine | None = None,
    memory: Memory | None = None,
    hub: Hub = ANSWERS,
    model: Model | None = None,
    **environment: str,
) -> Facts:
    """A machine on which all is well but what is given."""
    around = Surroundings(platform, engine_facts(installed.vllm or "0.33.0"), environment)
    seen = memory or Memory(machine or cards(31), "580.1", host=ROOMY)
    return Facts(installed, around, seen, hub, model)


def found(of: Facts, name: str) -> Check:
    """The one check of that name."""
    (check,) = [check for check in examine(of) if check.name == name]
    return check


def read_model(content: Any, **found_: Any) -> ModelRead:
    """A model's folder that was read."""
    return ModelRead("./model", None, Found(content, **found_), validate(json.dumps(content).encode()))
