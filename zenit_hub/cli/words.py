"""What can be typed after ``zenit-hub``, read from the parsers: for completion and for the reference."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zenit_hub.cli.parser import COMMANDS, build_parser, commands_of

_FILES = ("FILE", "DIR", "MODEL", "MEASUREMENT")
"""Metavars of what may stand on this machine; a model may be a folder."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An option (``names`` begin with dashes) or what stands by itself (``names`` is empty).

    ``value``: what its value is called in the help, empty where it takes none. ``choices``: all that it may be.
    """

    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...] = ()
    files: bool = False
    required: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """``epilog`` is what stands below its help. ``takes_rest``: words of vLLM's may follow after ``--``."""

    name: str
    summary: str
    arguments: tuple[Argument, ...]
    epilog: str
    takes_rest: bool

    @property
    def options(self) -> tuple[Argument, ...]:
        return tuple(each for each in self.arguments if each.names)

    @property
    def operands(self) -> tuple[Argument, ...]:
        return tuple(each for each in self.arguments if not each.names)


def all_commands() -> tuple[Command, ...]:
    """Every command with its arguments, in the order of the help."""
    parsers = commands_of(build_parser())
    return tuple(
        Command(
            name,
            COMMANDS[name],
            tuple(_arguments(parser)),
            parser.epilog or "",
            bool(parser.get_default("takes_rest")),
        )
        for name, parser in parsers.items()
    )


def _arguments(parser: argparse.ArgumentParser) -> Iterator[Argument]:
    for action in parser._actions:
        takes_value = action.nargs != 0
        metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        yield Argument(
            tuple(action.option_strings),
            metavar if takes_value else "",
            (action.help or "") % {**vars(action), "prog": parser.prog},
            tuple(str(choice) for choice in action.choices or ()),
            takes_value and (action.type is Path or metavar.startswith(_FILES)),
            action.required,
            action.nargs in ("+", "*"),
        )
