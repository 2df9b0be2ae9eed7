"""One launch, one decision: made by the launcher, handed down through the environment.

vLLM builds its config again in every API server process, from the same command line, while the engine is
filling the card. Those processes take the launcher's values from :data:`zenit_hub.env.HANDED_DOWN`. What it
holds is checked against the section's own allow-list again: a forged one can set nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub import env
from zenit_hub.apply import Filling
from zenit_hub.caller import Caller
from zenit_hub.section import valid_arguments

SECRETS = frozenset({"hf_token", "api_key"})
_FORM = 1
_PUBLISHABLE = frozenset((*env.PUBLISHED, env.RAY_COPIES))


@dataclass(frozen=True, slots=True)
class Handed:
    """A decision of this launch's launcher."""

    profile: str | None
    filling: Filling


def launch_key(model: str, revision: str | None, caller: Caller, environment: Mapping[str, str]) -> str:
    """Equal for the processes of one launch: what was asked of which model, as a digest. No secret is in it."""
    values = {name: _stable(value) for name, value in caller.values.items() if name not in SECRETS}
    asked = [model, revision, sorted(values.items()), sorted(caller.yaml_false), sorted(caller.kept)]
    asked += [environment.get(name) for name in (env.PROFILE, env.KEEP, env.STRICT, env.VISIBLE_DEVICES)]
    return hashlib.sha256(json.dumps(asked, default=str).encode()).hexdigest()


def _stable(value: object) -> str:
    """A value's text where it is the same in every process; objects may show an address."""
    try:
        return json.dumps(value, sort_keys=True, default=lambda other: type(other).__name__)
    except (TypeError, ValueError, RecursionError):  # keys of several types, a circle
        return type(value).__name__


def hand_down(key: str, profile: str | None, filling: Filling, environment: MutableMapping[str, str]) -> None:
    """Leave the decision for the processes that this one will start."""
    environment[env.HANDED_DOWN] = json.dumps(
        {
            "form": _FORM,
            "key": key,
            "pid": os.getpid(),
            "parent_pid": os.getppid(),
            "profile": profile,
            "set": dict(filling.set),
            "env": dict(filling.env),
        }
    )


def take(key: str, environment: Mapping[str, str]) -> Handed | None:
    """The launcher's decision, if there is one and it is of this launch."""
    try:
        content = json.loads(environment[env.HANDED_DOWN])
        if content["form"] != _FORM or content["key"] != key or content["pid"] == os.getpid():
            return None
        if not _of_this_launch(content["pid"], content["parent_pid"]):
            return None
        profile, to_set, published = content["profile"], dict(content["set"]), _published(content)
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    if not (profile is None or isinstance(profile, str)) or not valid_arguments(to_set):
        return None
    return Handed(profile, Filling(set=to_set, env=published))


def _published(content: Mapping[str, Any]) -> dict[str, str]:
    """The variables of a handed-down decision. Raises ``ValueError`` where one is not of the list."""
    published = dict(content["env"])
    if not all(name in _PUBLISHABLE and isinstance(value, str) for name, value in published.items()):
        raise ValueError("a variable that no section can set")
    return published


def _set_by_another_process(environment: Mapping[str, str]) -> dict[str, str]:
    """What an ancestor set for its engine, as the decision that came with it says."""
    try:
        content = json.loads(environment[env.HANDED_DOWN])
        if content["form"] != _FORM or content["pid"] == os.getpid():
            return {}
        return _published(content) if _of_this_launch(content["pid"], content["parent_pid"]) else {}
    except (KeyError, TypeError, ValueError, RecursionError):
        return {}


def _of_this_launch(pid: int, parent_pid: int) -> bool:
    """Whether the launcher is an ancestor of this process, or they were started by the same one."""
    if os.getppid() in (pid, parent_pid):
        return True
    ancestor = os.getppid()
    for _ in range(16):
        if ancestor == pid:
            return True
        ancestor = _parent_of(ancestor)
        if ancestor <= 1:
            return False
    return False


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


class Publisher:
    """The variables that this process set for an engine, so that the next engine does not take them for the user's."""

    def __init__(self) -> None:
        self._ours: dict[str, tuple[str, str | None]] = {}

    def withdraw(self, environment: MutableMapping[str, str]) -> None:
        """Take back what was set for an earlier engine, by this process or one that it came from.

        What somebody changed since is his.
        """
        self._withdraw_inherited(environment)
        for name, (value, before) in self._ours.items():
            if environment.get(name) != value:
                continue
            if before is None:
                del environment[name]
            else:
                environment[name] = before
        self._ours.clear()
        environment.pop(env.HANDED_DOWN, None)

    def _withdraw_inherited(self, environment: MutableMapping[str, str]) -> None:
        inherited = _set_by_another_process(environment)
        for name, value in inherited.items():
            if name in self._ours or environment.get(name) != value:
                continue
            left = (
                [word for word in value.split(",") if word not in inherited] if name == env.RAY_COPIES else []
            )
            if left:
                environment[name] = ",".join(left)
            else:
                del environment[name]

    def publish(self, variables: Mapping[str, str], environment: MutableMapping[str, str]) -> None:
        """Set ``variables`` and remember what stood there."""
        for name, value in variables.items():
            self._ours[name] = (value, environment.get(name))
            environment[name] = value
