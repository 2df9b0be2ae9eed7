"""``python -m tests.rigs.prepare_child FOLDER``: the hook's ``prepare`` under any section, machine and arguments.

Its own process, because it imports the engine. What is not drawn is real: reading, deciding, writing, the
environment of this process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import worlds
from zenit_hub import env, say
from zenit_hub.engine import hook
from zenit_hub.engine.facts import field_defaults
from zenit_hub.errors import ProfileNotDeclared, StrictRefusal
from zenit_hub.machine import Machine
from zenit_hub.section import ENGINE_FIELDS, LAYOUT_FIELDS
from zenit_hub.text import printable

MAY_BE_SET = {*ENGINE_FIELDS, *LAYOUT_FIELDS}
MAY_CHANGE = {*env.PUBLISHED, env.RAY_COPIES, env.HANDED_DOWN}
FOLDER = Path(sys.argv[1])


class Arguments:
    """Stands in for ``EngineArgs``, which itself refuses much of what is drawn here."""

    def __init__(self, typed: dict[str, Any]) -> None:
        vars(self).update({**field_defaults(), **typed, "model": str(FOLDER)})


class Lines(logging.Handler):
    """The lines that were said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@dataclass(frozen=True)
class Launch:
    """What is drawn of one launch."""

    config: Any
    machine: Machine
    typed: dict[str, Any]
    environment: dict[str, str]
    platform: str
    headless: bool


launches = st.builds(
    Launch,
    worlds.configs,
    worlds.machines,
    worlds.callers,
    worlds.environments,
    worlds.platforms,
    st.booleans(),
)
lines = Lines()


@contextmanager
def surroundings(launch: Launch) -> Iterator[None]:
    """Machine, platform and environment of the launch; the environment is this process's own again afterwards."""
    before = dict(os.environ)
    os.environ.update(launch.environment)
    for look in [name for name in vars(hook) if name.startswith("look_")]:
        setattr(hook, look, lambda: launch.machine)
    hook.platform = lambda: launch.platform
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def refusal_of(arguments: Arguments, launch: Launch) -> str | None:
    """What leaves the hook: a name that is not declared, or what a strict launch does not let start."""
    try:
        hook.prepare(arguments, headless=launch.headless)
    except ProfileNotDeclared as error:
        return str(error) if launch.environment.get(env.PROFILE) else "raised, and no name was forced"
    except StrictRefusal as error:
        return str(error) if launch.environment.get(env.STRICT) == "1" else "raised, and nobody was strict"
    return None


@given(launch=launches)
@settings(deadline=None, derandomize=True, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def holds(launch: Launch) -> None:
    """One launch: prepared, and held against the specification's list."""
    (FOLDER / "config.json").write_text(json.dumps(launch.config))
    lines.said.clear()
    with surroundings(launch):
        arguments = Arguments(launch.typed)
        own, there = dict(vars(arguments)), dict(os.environ)
        refusal = refusal_of(arguments, launch)
        now, here = dict(vars(arguments)), dict(os.environ)
    changed = {name for name, value in now.items() if value is not own.get(name)}
    theirs = {name for name, value in launch.typed.items() if repr(value) != repr(field_defaults().get(name))}
    assert changed <= MAY_BE_SET - theirs, changed
    assert {name for name in {*there, *here} if there.get(name) != here.get(name)} <= MAY_CHANGE
    assert refusal is None or "raised" not in refusal, refusal
    assert refusal is None or not changed, changed
    for line in lines.said:
        assert line.startswith(say.REPAIR_ID), line
        assert printable(line, limit=len(line)) == line, line
        assert "went wrong" not in line, line


if __name__ == "__main__":
    logging.getLogger(say.LOGGER).addHandler(lines)
    holds()
    print("held")
