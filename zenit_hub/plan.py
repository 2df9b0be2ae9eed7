"""What ``zenit-hub plan`` answers: the decision as the JSON contract has it, and the commands to type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from zenit_hub import env
from zenit_hub.answer import Answer
from zenit_hub.arguments import redacted
from zenit_hub.candidate import Candidate
from zenit_hub.decision import Reason
from zenit_hub.limits import CONFIG_NAME
from zenit_hub.machine import Machine

REASONS: dict[Reason, str] = {
    "forced": "named by ZENIT_SERVING_PROFILE",
    "requested_length": "the smallest window that holds the length you asked for",
    "requested_beyond_widest": "no window is as wide as the length you asked for: the widest serves",
    "widest_fitting": "the widest window that fits the free memory",
    "unrated_fallback": "no measured window fits: the narrowest unmeasured one is tried",
    "nothing_fits": "nothing fits: the window that needs the least is tried",
    "default": "the repo's default",
    "off": "switched off by ZENIT_SERVING_PROFILE=off",
    "no_section": "the model carries no serving profiles",
    "other_architecture": "the profiles speak for another architecture",
    "unreadable": "the model's config.json cannot be used",
    "invalid": "the serving profiles cannot be used",
    "not_hub": "a model in cloud storage is not looked at",
    "no_default": "no measured profile takes part, and neither does a default",
}
"""Why a profile was chosen, or none was, for people."""


def contract(found: Answer, model: str, words: Sequence[str], commit: str | None) -> dict[str, Any]:
    """The answer of ``plan --json``."""
    chosen = found.chosen
    return {
        "model": model,
        "commit": commit,
        "profile": chosen.profile.name if chosen else None,
        "reason": found.reason,
        "fits": found.decision.fits,
        "memory": memory(found.machine, chosen or found.decision.base),
        "set": dict(found.filling.set),
        "kept": {name: plain(value) for name, value in found.filling.kept.items()},
        "env": dict(found.filling.env),
        "considered": {name: asdict(considered) for name, considered in found.decision.considered.items()},
        "warnings": [asdict(caution) for caution in found.cautions],
        "command": command(model, words, found.filling.set),
    }


def memory(machine: Machine | None, weighed: Candidate | None) -> dict[str, Any] | None:
    """What was seen; ``None`` where nothing was looked at."""
    if machine is None or weighed is None:
        return None
    worst = weighed.worst
    return {
        "source": machine.source,
        "unknown": weighed.ranks.unknown,
        "devices": [
            {
                "index": card.index,
                "uuid": card.uuid,
                "name": card.name,
                "free_bytes": card.free_bytes,
                "total_bytes": card.total_bytes,
            }
            for card in weighed.ranks.cards
        ],
        "free_bytes": worst.free_bytes if worst else None,
        "total_bytes": worst.total_bytes if worst else None,
        "budget_bytes": weighed.budget_bytes if weighed.profile.name else None,
    }


def command(model: str, words: Sequence[str], to_set: Mapping[str, Any]) -> str:
    """The equivalent ``vllm serve`` command with every value explicit; secrets are left out."""
    explicit = [word for name, value in to_set.items() for word in option(name, value)]
    return shlex.join(["vllm", "serve", served(model), *redacted(words), *explicit])


def assignments(variables: Mapping[str, str]) -> list[str]:
    """Environment variables as they are typed in front of a command."""
    return [f"{name}={shlex.quote(value)}" for name, value in variables.items()]


def served(model: str) -> str:
    """What vLLM takes for ``model``: of a path to a ``config.json``, its folder."""
    path = Path(model)
    return str(path.parent) if path.name == CONFIG_NAME and path.is_file() else model


def production_command(found: Answer, model: str, words: Sequence[str]) -> str | None:
    """The line for production: a restart on a busier card must fail loudly rather than come back narrower."""
    if found.chosen is None:
        return None
    serve = shlex.join(["vllm", "serve", served(model), *redacted(words)])
    return f"{env.PROFILE}={shlex.quote(found.chosen.profile.name)} {env.STRICT}=1 {serve}"


def option(name: str, value: Any) -> list[str]:
    """One engine argument as it is typed."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


def plain(value: Any) -> Any:
    """A caller's value as JSON: what JSON has no word for is shown as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value)
