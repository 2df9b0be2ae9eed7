"""GitHub's workflow commands: annotations at a line, and text that a workflow's log takes for no command.

The runner reads every line of a step, stdout and stderr alike: ``::name …::`` at its beginning, and failing
that ``##[name …]`` anywhere in it (read in actions/runner, ``ActionCommand.cs`` and ``ActionCommandManager.cs``).
Strings of strangers stand in our lines, so both are broken up in all that is not an annotation of ours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from zenit_hub import env

_IN_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_COMMAND, _OLD_COMMAND = "::", "##["


def annotation(
    level: Literal["error", "warning"], message: str, *, file: str = "", line: int | None = None
) -> str:
    """One line that puts ``message`` at a file's line. ``file`` is relative to the checkout, or empty."""
    properties = [f"file={file.translate(_IN_PROPERTY)}"] if file else []
    if file and line is not None:
        properties.append(f"line={line}")
    where = f" {','.join(properties)}" if properties else ""
    return f"{_COMMAND}{level}{where}{_COMMAND}{message.translate(_IN_DATA)}"


def in_checkout(file: str | Path, environment: Mapping[str, str] = os.environ) -> str:
    """``file`` as annotations name it: from the workflow's checkout, wherever the command was started."""
    workspace = environment.get(env.CHECKOUT)
    if not workspace:
        return str(file)
    whole = os.path.relpath(os.path.abspath(file), os.path.abspath(workspace))
    return str(file) if whole.startswith(os.pardir) else whole


def in_a_workflow(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a runner reads what this process writes."""
    return environment.get(env.IN_A_WORKFLOW) == "true"


def inert(text: str) -> str:
    """``text`` in which the runner finds no command. JSON stays the JSON that it was."""
    if _COMMAND not in text and _OLD_COMMAND not in text:
        return text
    return "".join(map(_inert_line, text.splitlines(keepends=True)))


def _inert_line(line: str) -> str:
    line = line.replace(_OLD_COMMAND, "#\\u0023[")
    body = line.lstrip()
    if not body.startswith(_COMMAND):
        return line
    return f"{line[: len(line) - len(body)]}:\\u003a{body[2:]}"
