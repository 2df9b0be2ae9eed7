"""``zenit-hub doctor``: everything that serving with profiles stands on, checked, with what to type."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING

from zenit_hub.cli.options import add_output
from zenit_hub.cli.output import Colour, Sink

if TYPE_CHECKING:
    from zenit_hub.maintain.doctor.check import Check, Status

COLOURS: dict[Status, Colour] = {"ok": "green", "warn": "yellow", "fail": "red"}

_EPILOG = """what is looked at: Python, vLLM and whether it will load this plug-in, the driver, every card and who holds
its memory, the variables that decide which cards are seen, the host's memory, the Hub and its token, the variables of
this project; with MODEL its section and what would be chosen for it here. Nothing is started, and vLLM is not
imported.

what comes out: a line for each check, and what to type below it. With --json a list of {"name", "status", "message",
"next"}; status is ok, warn or fail, next may be null.

exit status: 0 nothing fails (warnings may be); 1 something does; 2 usage

examples:
  zenit-hub doctor
  zenit-hub doctor org/model
  zenit-hub doctor ./model --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="Hub id, folder, config.json, or .gguf file beside one"
    )
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit of a Hub repo")
    add_output(parser, json="the checks as one JSON list", quiet="only what is not ok")


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints every check. 0: none fails."""
    # What it needs is imported here: the command's help must not wait for it.
    from zenit_hub.maintain.doctor.checks import examine
    from zenit_hub.maintain.doctor.gather import gather

    checks = examine(gather(options.model, options.revision))
    if options.json:
        sink.json([asdict(check) for check in checks])
    else:
        shown = [check for check in checks if check.status != "ok"] if options.quiet else checks
        _show(shown, sink)
        if not options.quiet:
            sink.data(_verdict(checks))
    return int(any(check.status == "fail" for check in checks))


def _show(checks: list[Check], sink: Sink) -> None:
    widest = max((len(check.name) for check in checks), default=0)
    for check in checks:
        status = sink.paint(check.status.ljust(4), COLOURS[check.status])
        first, *more = _wrapped(check.message, 4 + widest + 4, sink.width)
        sink.data(f"{status}  {check.name.ljust(widest)}  {first}")
        for line in more:
            sink.data(f"{'':{4 + widest + 4}}{line}")
        if check.next is not None:
            sink.data(f"{'':{4 + widest + 4}}→ {check.next}")


def _wrapped(text: str, indent: int, width: int | None) -> list[str]:
    """``text`` in lines beside an indent; whole where the terminal is too narrow, or is none."""
    if width is None or width < indent + 30:
        return [text]
    return textwrap.wrap(text, width - indent, break_long_words=False, break_on_hyphens=False) or [""]


def _verdict(checks: list[Check]) -> str:
    counts = {status: sum(check.status == status for check in checks) for status in COLOURS}
    warned = f"{counts['warn']} warning{'' if counts['warn'] == 1 else 's'}"
    if counts["fail"]:
        return f"\n{counts['fail']} of {len(checks)} checks failed, {warned}."
    return f"\nNothing fails, {warned}." if counts["warn"] else "\nEverything is well."
