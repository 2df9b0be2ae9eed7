"""What a command answers for: this machine or a described one, and the way from a model's name to the answer.

``plan``, ``export`` and ``doctor`` come through here; the hook looks with vLLM's own eyes (:mod:`zenit_hub.engine`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from zenit_hub import env
from zenit_hub.answer import Answer, Look, answer
from zenit_hub.arguments import ServeArguments, redacted
from zenit_hub.caller import Caller, kept_values
from zenit_hub.compat import engine_facts
from zenit_hub.device import look_at_cards, look_at_host
from zenit_hub.installed import assumed_platform, assumed_version
from zenit_hub.machine import Surroundings
from zenit_hub.machine_file import read_machine_file
from zenit_hub.read import Found, find_config, hub_repo
from zenit_hub.text import printable

NOTHING_TYPED = ServeArguments(MappingProxyType({}), frozenset(), ())


@dataclass(frozen=True, slots=True)
class Stage:
    """The machine that is answered for. ``look`` is called once at most."""

    around: Surroundings
    look: Look
    device_ids: Sequence[int | str] | None = None


def stage_of(file: Path | None) -> Stage:
    """The machine that ``file`` describes; ``None``: this one. Raises ``MachineFileError``."""
    if file is None:
        return this_machine()
    described = read_machine_file(file, assumed_version())
    return Stage(described.around, lambda: described.machine, described.device_ids)


def this_machine() -> Stage:
    platform = assumed_platform()
    around = Surroundings(platform, engine_facts(assumed_version()), MappingProxyType(os.environ))
    return Stage(around, look_at_host if platform == "cpu" else look_at_cards)


def ask(model: str, revision: str | None, typed: ServeArguments, stage: Stage) -> tuple[Answer, str | None]:
    """What a launch of ``model`` would do, and the commit of a Hub repo that this was read at.

    Raises ``ModelNotFound`` and ``ProfileNotDeclared``.
    """
    if env.forced_profile(stage.around.environment) == env.OFF:
        return decide(Found(None), model, typed, stage), None
    found = find_model(model, revision, typed.values)
    return decide(found, model, typed, stage), found.commit


def find_model(model: str, revision: str | None, values: Mapping[str, Any]) -> Found:
    """The config that the launch would read. Raises ``ModelNotFound``."""
    token = values.get("hf_token")
    source = values.get("hf_config_path") or model
    return find_config(source, revision or values.get("revision"), token if isinstance(token, str) else None)


def decide(found: Found, model: str, typed: ServeArguments, stage: Stage) -> Answer:
    """The one decision, for what :func:`find_model` found. Raises ``ProfileNotDeclared``."""
    around = stage.around
    caller = Caller(
        values=typed.values,
        kept=kept_values(around.environment, around.engine.defaults),
        yaml_false=typed.yaml_false,
        repo=hub_repo(model) if found.repo else None,
    )
    device_ids = stage.device_ids or typed.values.get("device_ids")
    return answer(found.config, caller, around, stage.look, device_ids)


def revision_words(typed: ServeArguments, revision: str | None) -> list[str]:
    """What vLLM needs to serve what was looked at: our ``--revision``, unless its own is typed."""
    return ["--revision", revision] if revision and "revision" not in typed.values else []


def passed_by(typed: ServeArguments, stage: Stage) -> str | None:
    """The sentence about words that this vLLM does not know; ``None`` where it knows all."""
    if not typed.unknown:
        return None
    words = printable(" ".join(redacted(typed.unknown)))
    return f"vllm serve {stage.around.engine.version} does not know {words}: passed on as it stands."
