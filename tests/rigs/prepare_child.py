"""``python -m tests.prepare_child FOLDER``: the hook's ``prepare`` under any section, machine and arguments.

Its own process, because it imports the engine. What is not drawn is real: reading, deciding, writing, the
environment of this process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import worlds
from zenit_hub import env, say
from zenit_hub.engine import hook
from zenit_hub.engine.facts import field_defaults
from zenit_hub.errors import ProfileNotDeclared, StrictRefusal
from zenit_hub.machine import Machine, Platform
from zenit_hub.section import ENGINE_FIELDS, LAYOUT_FIELDS

MAY_BE_SET = {*ENGINE_FIELDS, *LAYOUT_FIELDS}
MAY_CHANGE = {*env.PUBLISHED, env.RAY_COPIES, env.HANDED_DOWN}
FOLDER = Path(sys.argv[1])

encodable = st.text().filter(lambda word: "\x00" not in word)
environments = worlds.environments.map(
    lambda drawn: {name: value for name, value in drawn.items() if value.isascii() and "\x00" not in value}
)


class Arguments:
    """Stands in for ``EngineArgs``, which itself refuses much of what is drawn here."""

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update({**field_defaults(), **values, "model": str(FOLDER)})


class Lines(logging.Handler):
    """The lines that were said."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


lines = Lines()


def prepared(arguments: Arguments, *, headless: bool) -> None:
    try:
        hook.prepare(arguments, headless=headless)
    except (ProfileNotDeclared, StrictRefusal) as error:
        assert env.PROFILE in os.environ or os.environ.get(env.STRICT) == "1", error
        assert str(error).isprintable()


@given(
    config=worlds.configs,
    machine=worlds.machines,
    typed=worlds.callers,
    environment=environments,
    platform=worlds.platforms,
    headless=st.booleans(),
)
@settings(deadline=None, max_examples=150, database=None, suppress_health_check=[HealthCheck.too_slow])
def launches(
    config: Any,
    machine: Machine,
    typed: dict[str, Any],
    environment: dict[str, str],
    platform: Platform,
    headless: bool,
) -> None:
    (FOLDER / "config.json").write_text(json.dumps(config))
    hook.look_at_cards = hook.look_at_host = lambda: machine
    hook.platform = lambda: platform
    lines.said.clear()
    before = dict(os.environ)
    os.environ.update(environment)
    try:
        arguments = Arguments(typed)
        own, there = dict(vars(arguments)), dict(os.environ)
        prepared(arguments, headless=headless)
        changed = {name for name, value in vars(arguments).items() if value is not own.get(name)}
        assert changed <= MAY_BE_SET, changed
        assert not [n for n in changed if n in typed and repr(typed[n]) != repr(field_defaults()[n])], changed
        touched = {n for n in {*there, *os.environ} if there.get(n) != os.environ.get(n)}
        assert touched <= MAY_CHANGE, touched
        assert not [line for line in lines.said if "went wrong" in line], lines.said
        assert all(line.startswith(say.REPAIR_ID) and line.isprintable() for line in lines.said), lines.said
    finally:
        os.environ.clear()
        os.environ.update(before)


if __name__ == "__main__":
    logging.getLogger(say.LOGGER).addHandler(lines)
    launches()
    print("held")
