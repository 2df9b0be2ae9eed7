"""Options that several commands share, spelled and meant as in the Hub's own ``hf``."""

from __future__ import annotations

import argparse
from typing import Literal

from zenit_hub.errors import UsageError

Format = Literal["auto", "human", "agent", "json", "quiet", "github"]

EVERYWHERE: tuple[Format, ...] = ("auto", "human", "agent", "json", "quiet")

_DEST = "output_format"
_HELP = (
    "human: colours, and lines that suit the terminal; agent: without either, nothing shortened; "
    "auto: human on a terminal, agent elsewhere (%(default)s)"
)


def add_output(parser: argparse.ArgumentParser, *, json: str, quiet: str, github: str = "") -> None:
    """``--format``, ``--json`` and ``-q``; :func:`settle` says which it is.

    ``json``, ``quiet``, ``github``: what comes out then, for the help. Without ``github`` there is no such format.
    """
    group = parser.add_argument_group("output")
    choices = (*EVERYWHERE, "github") if github else EVERYWHERE
    group.add_argument(
        "--format",
        dest=_DEST,
        choices=choices,
        default="auto",
        metavar="FORMAT",
        help=f"{', '.join(choices)}. {_HELP}{f'; github: {github}' if github else ''}",
    )
    group.add_argument("--json", action="store_true", help=f"{json} (--format json)")
    group.add_argument("-q", "--quiet", action="store_true", help=f"{quiet} (--format quiet)")


def settle(options: argparse.Namespace) -> Format:
    """The format that was asked for; ``options.json`` and ``options.quiet`` say it, too, where they are.

    Raises :class:`UsageError` where several were.
    """
    chosen: Format = getattr(options, _DEST, "auto")
    typed: dict[Format, str] = {} if chosen == "auto" else {chosen: f"--format {chosen}"}
    if getattr(options, "json", False):
        typed.setdefault("json", "--json")
    if getattr(options, "quiet", False):
        typed.setdefault("quiet", "--quiet")
    if len(typed) > 1:
        raise UsageError(f"{' and '.join(typed.values())} at once", allowed="one of them")
    settled: Format = next(iter(typed), "auto")
    if hasattr(options, _DEST):
        options.json, options.quiet = settled == "json", settled == "quiet"
    return settled
