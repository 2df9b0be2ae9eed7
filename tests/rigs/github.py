"""GitHub's runner as far as we meet it: what it takes for a command in a log, and the steps of a composite action."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KNOWN = {
    "add-mask",
    "add-matcher",
    "add-path",
    "debug",
    "echo",
    "endgroup",
    "error",
    "group",
    "notice",
    "save-state",
    "set-env",
    "set-output",
    "stop-commands",
    "warning",
}
"""The runner's own names; of anything else it takes no notice."""

_LINE_END = re.compile(r"\r\n|\r|\n")
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")


@dataclass(frozen=True)
class LogCommand:
    """One command that the runner found in a line."""

    name: str
    properties: Mapping[str, str]
    data: str


def log_commands(log: str) -> list[LogCommand]:
    """What a runner would carry out."""
    found = (_new_form(line) or _old_form(line) for line in _LINE_END.split(log))
    return [command for command in found if command is not None]


def _new_form(line: str) -> LogCommand | None:
    """``::name key=value,key=value::data`` at the beginning of a line, white space aside."""
    head, mark, data = line.lstrip().removeprefix("::").partition("::")
    if not line.lstrip().startswith("::") or not mark:
        return None
    return _command(head, ",", data)


def _old_form(line: str) -> LogCommand | None:
    """``##[name key=value;key=value]data`` anywhere in a line."""
    _, mark, rest = line.partition("##[")
    head, end, data = rest.partition("]")
    return _command(head, ";", data) if mark and end else None


def _command(head: str, between: str, data: str) -> LogCommand | None:
    name, _, properties = head.partition(" ")
    if name.lower() not in KNOWN:
        return None
    pairs = (pair.partition("=")[::2] for pair in properties.split(between) if "=" in pair)
    return LogCommand(
        name.lower(), {key.strip(): _unescaped(value) for key, value in pairs}, _unescaped(data)
    )


def _unescaped(text: str) -> str:
    for code, letter in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        text = text.replace(code, letter)
    return text


@dataclass(frozen=True)
class Step:
    """A step that has a script; its expressions are not filled in yet."""

    name: str
    script: str
    env: Mapping[str, str]
    folder: str | None


class Action:
    """An ``action.yml`` and the steps of it that have a script."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
        self.steps = {
            step["name"]: Step(step["name"], step["run"], step.get("env", {}), step.get("working-directory"))
            for step in self.document["runs"]["steps"]
            if "run" in step
        }

    def run(
        self, name: str, workspace: Path, context: Mapping[str, str], inputs: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """One step, as ``shell: bash`` has it. ``context``: expressions and what they are, but for the inputs."""
        step = self.steps[name]
        known = {f"inputs.{key}": str(body["default"]) for key, body in self.document["inputs"].items()}
        known |= {f"inputs.{key}": value for key, value in (inputs or {}).items()} | dict(context)
        folder = _filled(step.folder, known) if step.folder else str(workspace)
        own = {key: _filled(value, known) for key, value in step.env.items()}
        runner = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace)}
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step.script],
            cwd=folder,
            env={**_outside(os.environ), **runner, **own},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


def _filled(text: str, known: Mapping[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: known[found[1]], text)


def _outside(environment: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in environment.items() if not key.startswith(("GITHUB_", "PYTHON"))}


def names(commands: Iterable[LogCommand]) -> list[str]:
    return [command.name for command in commands]
