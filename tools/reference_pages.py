"""The pages of the reference, each as Markdown made from its one source."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import zenit_hub
from zenit_hub import decision, env
from zenit_hub.cli import parser, table, words
from zenit_hub.resources import schema

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
_KINDS = {
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "string": "string",
    "object": "object",
    "array": "list",
}


# --- the command line


def cli() -> str:
    """Every command: what it does, its arguments, its help's own text with exit statuses and examples."""
    commands = words.all_commands()
    lines = [
        "# Command line",
        "",
        *_block(parser.build_parser(()).epilog or ""),
        "",
        *_table(
            ("Command", ""),
            ((f"[`{each.name}`](#zenit-hub-{each.name})", each.summary) for each in commands),
        ),
    ]
    for command in commands:
        operands = " ".join(map(_operand, command.operands))
        rest = " [-- VLLM SERVE ARGUMENTS]" if command.takes_rest else ""
        lines += [
            "",
            f"## `zenit-hub {command.name}`",
            "",
            f"{command.summary[0].upper()}{command.summary[1:]}.",
            "",
            f"    zenit-hub {command.name} [OPTIONS] {operands}{rest}",
            "",
            *_table(("Argument", ""), ((_spelled(each), each.help) for each in _told(command))),
            "",
            *_block(command.epilog),
        ]
    return "\n".join(lines)


def _operand(argument: words.Argument) -> str:
    name = f"{argument.value}…" if argument.many else argument.value
    return name if argument.required else f"[{name}]"


def _told(command: words.Command) -> Iterator[words.Argument]:
    """Without ``--help``, whose words are argparse's."""
    yield from command.operands
    yield from (option for option in command.options if "--help" not in option.names)


def _spelled(argument: words.Argument) -> str:
    value = f" {argument.value}" if argument.value and argument.names else argument.value
    names = ", ".join(argument.names)
    return f"`{names}{value}`" + (" (required)" if argument.required and argument.names else "")


def _block(text: str) -> list[str]:
    return ["```text", *text.strip("\n").splitlines(), "```"]


# --- the section's keys


def profile_keys() -> str:
    """The section, a profile, its position plan and its measurements."""
    section = schema()
    parts = {
        "The section": (section, section["description"]),
        "A profile": (section["$defs"]["profile"], section["$defs"]["profile"]["description"]),
        "`position_plan`": (
            section["$defs"]["positionPlan"],
            section["$defs"]["positionPlan"]["description"],
        ),
        "An entry of `measurements`": (
            section["$defs"]["measurement"],
            section["$defs"]["measurement"]["description"],
        ),
    }
    lines = [
        "# Profile keys",
        "",
        "From [`schema/serving_profiles.schema.json`](../../schema/serving_profiles.schema.json), which "
        "`zenit-hub validate` applies; it checks beyond that what the keys mean together.",
    ]
    for title, (part, description) in parts.items():
        lines += ["", f"## {title}", "", description, "", *_keys(part)]
    return "\n".join(lines)


def _keys(part: Mapping[str, Any]) -> list[str]:
    rows = []
    for key, body in part["properties"].items():
        needed = " (required)" if key in part.get("required", ()) else ""
        example = f"`{json.dumps(body['examples'][0])}`" if _is_short(body) else ""
        rows.append((f"`{key}`{needed}", _form(body), body["description"], example))
    return _table(("Key", "Type", "Meaning", "Example"), rows)


def _is_short(body: Mapping[str, Any]) -> bool:
    return len(json.dumps(body["examples"][0])) <= 60


def _form(body: Mapping[str, Any]) -> str:
    kinds = body.get("type", "object")
    name = " or ".join(_KINDS[kind] for kind in ([kinds] if isinstance(kinds, str) else kinds))
    limits = []
    if "exclusiveMinimum" in body:
        limits.append(f"above {body['exclusiveMinimum']}")
    if "minimum" in body and "maximum" in body:
        limits.append(f"{body['minimum']:,} to {body['maximum']:,}")
    elif "minimum" in body:
        limits.append(f"{body['minimum']:,} or more")
    elif "maximum" in body:
        limits.append(f"up to {body['maximum']:,}")
    for word, unit in (("maxLength", "characters"), ("maxItems", "entries"), ("maxProperties", "entries")):
        if word in body:
            limits.append(f"at most {body[word]:,} {unit}")
    return ", ".join([name, *limits])


# --- the environment


def environment() -> str:
    """The variables of ``env.py`` by who sets them."""
    told = dict(_variables())
    people = [env.PROFILE, env.STRICT, env.KEEP]
    published = list(env.PUBLISHED)
    ours = [name for name in told if name.startswith("ZENIT_") and name not in {*people, *published}]
    others = [name for name in told if name not in {*people, *ours, *published}]
    groups = (
        ("What you set", "", people),
        (
            "What a launch publishes",
            "Set only where you have not, for the engine and the model's own code. A section can bring nothing else "
            "into the environment.",
            published,
        ),
        ("What other programs own and we read, or set for a child", "", others),
        ("Between our own processes, and in files that we write", "Not to be set by hand.", ours),
    )
    lines = ["# Environment variables"]
    for title, about, names in groups:
        lines += ["", f"## {title}", "", *([about, ""] if about else [])]
        lines += _table(("Variable", "Meaning"), ((f"`{name}`", told[name]) for name in names))
    return "\n".join(lines)


def _variables() -> Iterator[tuple[str, str]]:
    """Each variable that ``env.py`` declares, with the words below it; one without words is no variable."""
    for name, about in _documented(env):
        value = getattr(env, name)
        if isinstance(value, str) and _VARIABLE.fullmatch(value):
            yield value, about
        elif isinstance(value, dict):
            yield from ((variable, f"From `position_plan.{key}`.") for key, variable in value.items())


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Module-level names with the string that stands below them."""
    body = ast.parse(inspect.getsource(module)).body
    for node, below in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            about = _text_of(below)
            if about:
                yield node.targets[0].id, _prose(about)


def _text_of(node: ast.stmt) -> str:
    """The string that a statement is, empty where it is none."""
    value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else ""
    return value if isinstance(value, str) else ""


# --- what is said


def warnings() -> str:
    """Codes of warnings, reasons of a choice, verdicts on a profile."""
    return "\n".join(
        [
            "# Warnings, reasons, verdicts",
            "",
            "A warning stands on stderr of `zenit-hub plan` with its code at the end, in `warnings` of its JSON, and "
            "in vLLM's log. Its sentence has the figures and what to type.",
            "",
            *_table(
                ("Code", "What it means"),
                ((f"`{code}`", about) for code, about in sorted(decision.CAUTIONS.items())),
            ),
            "",
            "## Why a profile was chosen (`reason`)",
            "",
            *_table(("Reason", ""), ((f"`{reason}`", about) for reason, about in table.REASONS.items())),
            "",
            "## What became of each profile (`verdict`)",
            "",
            *_table(
                ("Verdict", ""),
                ((f"`{verdict or 'null'}`", about) for verdict, about in table.VERDICTS.items()),
            ),
        ]
    )


# --- the package


def python() -> str:
    """The names that other code imports."""
    lines = ["# `import zenit_hub`", "", *_docstring(zenit_hub.__doc__ or "")]
    constants = [name for name in zenit_hub.__all__ if isinstance(getattr(zenit_hub, name), str)]
    rows = ((f"`{name}`", f"`{getattr(zenit_hub, name)}`") for name in constants)
    lines += ["", "## Constants", "", *_table(("Name", "Value"), rows), "", "## Functions"]
    for name in zenit_hub.__all__:
        if name not in constants:
            lines += ["", f"### `{name}`", "", *_function(getattr(zenit_hub, name))]
    return "\n".join(lines)


def _function(function: Any) -> Iterable[str]:
    node = ast.parse(inspect.getsource(function)).body[0]
    assert isinstance(node, ast.FunctionDef)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    yield from ("```python", f"{node.name}({ast.unparse(node.args)}){returns}", "```", "")
    yield from _docstring(inspect.getdoc(function) or "")


def _docstring(text: str) -> list[str]:
    return _prose(inspect.cleandoc(text), keep_lines=True).splitlines()


# --- Markdown


def _prose(text: str, *, keep_lines: bool = False) -> str:
    """A docstring's marks as Markdown's."""
    plain = re.sub(r":[a-z]+:`~?(?:[\w.]+\.)?([\w.]+)`", r"`\1`", text).replace("``", "`")
    return plain if keep_lines else " ".join(plain.split())


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    lines = [head, ["---"] * len(head), *cells]
    return [f"| {' | '.join(line)} |" for line in lines]
