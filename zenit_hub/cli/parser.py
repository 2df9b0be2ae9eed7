"""The parser of ``zenit-hub``: of one command for a call, of all of them for completion and the reference."""

from __future__ import annotations

import argparse
import importlib
import shutil
import textwrap
from collections.abc import Collection
from typing import Any

COMMANDS = {
    "card": "the part of a model card that says which window which GPU gets, made from the config",
    "completion": "print what makes a shell complete the commands and options of zenit-hub",
    "doctor": "look for what keeps serving with profiles from working here, and say what to type",
    "export": "write a profile down for a launch without this plug-in: a --config file, a command, an env file",
    "init": "propose a first section of serving profiles for a model that carries none",
    "measure": "find what each profile needs free, by running the engine on this machine",
    "plan": "what `vllm serve` would do with a model on this machine, without starting it",
    "publish": "put measurements into a model repo on the Hub: one commit, or one pull request",
    "schema": "print a JSON Schema, for editors that complete and check what you type",
    "validate": "check the serving profiles in a config.json, a model folder or a Hub repo",
}
"""Command → one line of help. The module of the same name is imported only when it is called."""

WIDEST_HELP = 100
"""Columns; prose in longer lines is hard to read."""

_EPILOG = """exit status: 0 done; 1 an error, or something is wrong with what was checked; 2 the command line itself;
3 a strict launch would refuse (`plan`); 130 interrupted.

Answers are on stdout, what is said about them (Error:, Warning:, Hint:) on stderr. Colours are for terminals, and
NO_COLOR=1 switches them off.

examples:
  zenit-hub plan org/model
  zenit-hub plan ./model -- --max-model-len 256k
  zenit-hub validate ./model/config.json
  zenit-hub measure ./model --all
  zenit-hub publish measurements/*.json --repo org/model --dry-run
  eval "$(zenit-hub completion bash)\""""


class Help(argparse.HelpFormatter):
    """Prose is wrapped to the terminal, lines that are indented (examples) stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, WIDEST_HELP) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        prose: list[str] = []
        for line in [*text.splitlines(), ""]:
            if line and not line[0].isspace():
                prose.append(line)
                continue
            if prose:
                # A path or a command is not broken, not even at a hyphen.
                lines += textwrap.wrap(" ".join(prose), width, break_long_words=False, break_on_hyphens=False)
                prose.clear()
            lines.append(line)
        return "\n".join(f"{indent}{line}".rstrip() for line in lines)


def build_parser(configured: Collection[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser; only the commands in ``configured`` know their arguments, the others only stand in the help."""
    parser = argparse.ArgumentParser(
        prog="zenit-hub",
        description="Serving profiles that a Hugging Face model repo carries itself.",
        epilog=_EPILOG,
        formatter_class=Help,
    )
    parser.add_argument("--version", action="store_true", help="show the version and end")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name, help=summary, description=_sentence(summary), formatter_class=Help
        )
        if name in configured:
            module: Any = importlib.import_module(f"zenit_hub.cli.{name}")
            module.configure(command)
            command.set_defaults(run=module.run, takes_rest=getattr(module, "TAKES_REST", False))
    return parser


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices)


def _sentence(summary: str) -> str:
    return f"{summary[0].upper()}{summary[1:]}."
