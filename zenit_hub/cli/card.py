"""``zenit-hub card``: the block of a model card that says which window which GPU gets."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from zenit_hub.cli.options import add_output, settle
from zenit_hub.cli.output import Sink
from zenit_hub.cli.typed import check_no_cache
from zenit_hub.errors import UsageError
from zenit_hub.files import replace_file
from zenit_hub.maintain.card.facts import usable_section
from zenit_hub.maintain.card.source import Source, find_source
from zenit_hub.maintain.publish.hub import README_NAME
from zenit_hub.maintain.publish.readme import block_of, with_block
from zenit_hub.read import hub_repo
from zenit_hub.text import printable

OUT_OF_DATE = 1

_LINE_END = re.compile(r"\r\n|\n|\r")
_SHOWN_LETTERS = 100

_EPILOG = """The block is made from config.json (and the receipts beside it) with the decision that vllm serve makes.
It stands in README.md between two lines that nothing else may share:
  <!-- zenit-hub card: begin -->
  <!-- zenit-hub card: end -->

exit status: 0 done, or up to date; 1 out of date, or an error; 2 usage

examples:
  zenit-hub card ./model                        # print it
  zenit-hub card ./model --write                # put it into ./model/README.md
  zenit-hub card ./model --write --init-card    # ... which has no markers yet
  zenit-hub card ./model --check                # in CI
  zenit-hub card ./model --check --format github     # in a workflow
  zenit-hub card org/model --check --revision refs/pr/2"""


@dataclass(frozen=True, slots=True)
class _Found:
    """``up_to_date`` is ``None`` where nobody looked; ``line``: the first one that is out of date."""

    up_to_date: bool | None = None
    line: int | None = None
    written: bool = False


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL", help="a model's folder, its config.json, or a Hub id")
    parser.add_argument("--revision", metavar="REV", help="branch, tag, commit or refs/pr/N of a Hub repo")
    parser.add_argument(
        "--repo",
        metavar="ORG/MODEL",
        help="the Hub id in the card's commands (the section's own otherwise, or the one that the card has)",
    )
    parser.add_argument(
        "--readme", metavar="FILE", type=Path, help="the card, where it is not beside the config"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only say whether the card is up to date")
    what.add_argument(
        "--write", action="store_true", help="put the block into README.md, nothing else changes"
    )
    parser.add_argument("--init-card", action="store_true", help="with --write: add the markers at the end")
    add_output(
        parser,
        json="what was made, found or written, as one JSON object",
        quiet="the block alone; with --check or --write the card's name, where it is out of date or changed",
        github="what is out of date as an annotation for a GitHub workflow",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints, checks or writes. Raises what :func:`find_source` raises, and ``PublicationError`` for the README."""
    if options.init_card and not options.write:
        raise UsageError("--init-card adds markers to a file", next_step="Type it with --write.")
    if options.repo is not None and hub_repo(options.repo) != options.repo:
        raise UsageError("--repo names no Hub repo", got=printable(options.repo), allowed="ORG/MODEL")
    source = find_source(options.model, options.revision, options.readme)
    if options.write and source.file is None:
        raise UsageError(
            "--write is for a README.md on this machine",
            got=printable(options.model),
            next_step="Name a downloaded folder, or the file with --readme.",
        )
    _warn(source, sink)
    block = source.block(options.repo)
    if options.check:
        return _check(source, block, options, sink)
    if options.write and source.file is not None:
        new = with_block(source.readme, block, init_card=options.init_card)
        check_no_cache(source.file)
        if new != source.readme:
            replace_file(source.file, new)
        _say(source, block, options, sink, _Found(up_to_date=True, written=new != source.readme))
    elif options.json:
        _say(source, block, options, sink, _Found())
    else:
        sink.data(block)
    return 0


def _say(source: Source, block: str, options: argparse.Namespace, sink: Sink, found: _Found) -> None:
    """What there is to say but for what is wrong."""
    name = _name(source)
    if options.json:
        sink.json({"file": name, **asdict(found), "block": block})
    elif options.quiet:
        if found.written or found.line is not None:
            sink.data(name)
    elif found.up_to_date:
        sink.data(f"{name}: the card is {'written' if found.written else 'up to date'}")


def _name(source: Source) -> str:
    return printable(source.file or README_NAME, limit=400)


def _warn(source: Source, sink: Sink) -> None:
    for name, why in usable_section(source.config).invalid.items():
        sink.warning(f"profile {printable(name, limit=80)} is not in the card, it is invalid: {why}")
    for path in source.missing:
        sink.warning(
            f"the section names {printable(path)}, which is not there: the card's link leads nowhere"
        )


def _check(source: Source, block: str, options: argparse.Namespace, sink: Sink) -> int:
    right = with_block(source.readme, block)
    if block_of(right) == block_of(source.readme or b""):
        _say(source, block, options, sink, _Found(up_to_date=True))
        return 0
    old, new = (_LINE_END.split(text.decode("utf-8")) for text in (source.readme or b"", right))
    number = next(at for at, (is_, should) in enumerate(zip(old, new, strict=False)) if is_ != should)
    _say(source, block, options, sink, _Found(up_to_date=False, line=number + 1))
    what = (
        f"the card is out of date: the line is {_shown(old[number])}, "
        f"and the config makes it {_shown(new[number])}. {_next_step(source, options)}"
    )
    if settle(options) == "github" and source.file is not None:
        sink.annotate("error", what, file=str(source.file), line=number + 1)
    else:
        sink.error(f"{_name(source)}:{number + 1}: {what}")
    return OUT_OF_DATE


def _shown(line: str) -> str:
    return f"“{printable(line, limit=_SHOWN_LETTERS)}”"


def _next_step(source: Source, options: argparse.Namespace) -> str:
    words = ["zenit-hub", "card", options.model]
    if source.file is None:
        words[2] = "FOLDER"
    for option, value in (("--repo", options.repo), ("--readme", options.readme)):
        words += [option, str(value)] if value is not None else []
    typed = f"`{printable(shlex.join([*words, '--write']), limit=1000)}`"
    if source.file is None:
        return f"Download the repo, type {typed} and upload README.md; `zenit-hub publish` does it with a measurement."
    return f"Type {typed}."
