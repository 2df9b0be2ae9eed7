"""``zenit-hub init``: a first section of serving profiles for a model that carries none."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zenit_hub.cli.options import add_output
from zenit_hub.cli.output import Sink
from zenit_hub.cli.typed import check_branch, check_no_cache, check_proposal, check_token
from zenit_hub.errors import ModelNotFound, UsageError
from zenit_hub.files import read_limited, replace_file
from zenit_hub.limits import CONFIG_NAME, MAX_CONFIG_BYTES
from zenit_hub.read import config_bytes, hub_repo, local_config
from zenit_hub.text import printable

if TYPE_CHECKING:
    from zenit_hub.maintain.init import Proposal
    from zenit_hub.maintain.publish.goals import Proposal as Question
    from zenit_hub.maintain.publish.outcomes import Publication

MAIN = "main"

_EPILOG = """what it proposes: the widest window that the config allows and two narrower ones, each with the values
pinned for which a figure will hold. No figures: those come from `zenit-hub measure`.

Nothing is written without --write, --create-pr or --yes.

exit status: 0 done; 1 an error; 2 usage

examples:
  zenit-hub init ./model                     # print the section
  zenit-hub init ./model --dry-run           # print what would change
  zenit-hub init ./model --write --repo org/model
  zenit-hub init org/model --create-pr       # propose it as a pull request
  zenit-hub init org/model --window 32768 --window 131072"""


@dataclass(frozen=True, slots=True)
class _Found:
    """A config as it was read. ``file`` is ``None`` for one on the Hub."""

    name: str
    data: bytes
    file: Path | None
    repo: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL", help="a model's folder, its config.json, or a Hub id")
    parser.add_argument(
        "--repo", metavar="ORG/MODEL", help="where it will be measured, of a folder (a Hub id is its own)"
    )
    parser.add_argument(
        "--revision",
        default=None,
        metavar="BRANCH",
        help=f"branch of the Hub repo, or refs/pr/N ({MAIN})",
    )
    parser.add_argument(
        "--window",
        action="append",
        type=int,
        default=[],
        metavar="TOKENS",
        help="a window, instead of those that are proposed; more than once for several",
    )
    parser.add_argument("--write", action="store_true", help="put it into the folder's config.json")
    parser.add_argument("--create-pr", action="store_true", help="propose it on the Hub as a pull request")
    parser.add_argument("-y", "--yes", action="store_true", help="commit it to the Hub repo's branch")
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and write nothing")
    parser.add_argument("--token", help="a Hub token, where HF_TOKEN and `hf auth login` are not used")
    add_output(
        parser,
        json="what was proposed and done, as one JSON object",
        quiet="only the section, the diff, or the address of what was made",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints, writes or publishes. Raises :class:`~zenit_hub.errors.ZenitHubError` and ``OSError``."""
    # What makes a section is imported here: the command's help must not wait for it.
    from zenit_hub.maintain.init import with_section

    file = local_config(options.model)
    _check(options, file)
    found = _read(options, file)
    proposal, new = with_section(found.data, found.repo, options.window, _word(options.model))
    done: dict[str, Any] = {"outcome": "proposed"}
    if options.dry_run:
        from zenit_hub.maintain.publish.diff import unified

        done = {"outcome": "dry_run", "diff": unified(CONFIG_NAME, found.data, new)}
    elif options.write and found.file is not None:
        _write(found.file, found.data, new)
        done = {"outcome": "written"}
    elif options.create_pr or options.yes:
        done = asdict(_publish(options, found.repo, sink))
    if options.json:
        sink.json({"model": found.name, "key": proposal.key, "section": proposal.section, **done})
    else:
        _say(found, proposal, done, options, sink)
    return 0


def _check(options: argparse.Namespace, file: Path | None) -> None:
    """What cannot be asked for together."""
    if options.repo is not None and (hub_repo(options.repo) != options.repo or "/" not in options.repo):
        raise UsageError("--repo names no Hub repo", got=printable(options.repo), allowed="ORG/MODEL")
    if file is not None:
        for name in ("revision", "create_pr", "yes", "token"):
            if getattr(options, name) not in (None, False):
                raise UsageError(
                    f"--{name.replace('_', '-')} is for a Hub repo, and this is a folder here",
                    got=printable(options.model),
                    next_step="--write puts the section into the folder's config.json.",
                )
        return
    if options.write:
        raise UsageError(
            "--write is for a folder on this machine",
            got=printable(options.model),
            next_step="--create-pr proposes it on the Hub, --yes commits it there.",
        )
    if options.revision is not None:
        check_branch(options.revision, may_be_commit=not (options.create_pr or options.yes))
    if options.create_pr:
        check_proposal(options.revision or MAIN)
    check_token(options.token)
    if hub_repo(options.model) != options.model:
        raise ModelNotFound(
            "there is no such model",
            got=printable(options.model),
            allowed="a folder, its config.json, or a Hub id like org/model",
        )


def _read(options: argparse.Namespace, file: Path | None) -> _Found:
    if file is None:
        own = options.model if "/" in options.model else None
        data = config_bytes(options.model, options.revision, options.token)
        return _Found(options.model, data, None, options.repo or own)
    return _Found(str(file), read_limited(file, MAX_CONFIG_BYTES), file, options.repo)


def _write(file: Path, old: bytes, new: bytes) -> None:
    check_no_cache(file)
    if read_limited(file, MAX_CONFIG_BYTES) != old:
        raise UsageError("the file has changed just now", got=printable(file), next_step="Type it again.")
    replace_file(file, new)


def _publish(options: argparse.Namespace, repo: str | None, sink: Sink) -> Publication:
    from zenit_hub.maintain.init import FirstSection
    from zenit_hub.maintain.publish.advice import Asked
    from zenit_hub.maintain.publish.hub import Hub
    from zenit_hub.maintain.publish.publish import publish

    content = FirstSection(repo, tuple(options.window))
    command = f"zenit-hub init {_word(options.model)}"
    asked = Asked(branch=options.revision or MAIN, create_pr=options.create_pr, command=command)
    return publish(Hub(options.model, options.token), content, asked, _Person(sink))


def _word(model: str) -> str:
    """As it is typed into a shell."""
    return shlex.quote(printable(model, limit=400))


class _Person:
    """Who typed --create-pr or --yes: he was asked by that."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def note(self, text: str) -> None:
        self._sink.note(text)

    def warning(self, text: str) -> None:
        self._sink.warning(text)

    def agrees(self, _question: Question) -> bool:
        return True


def _say(
    found: _Found, proposal: Proposal, done: dict[str, Any], options: argparse.Namespace, sink: Sink
) -> None:
    name = printable(found.name, limit=400)
    for remark in proposal.remarks:
        sink.note(f"{remark[0].upper()}{remark[1:]}.")
    outcome = done["outcome"]
    if outcome == "proposed":
        sink.data(_json({proposal.key: proposal.section}))
        then = "--write" if found.file is not None else "--create-pr"
        sink.hint(f"Put it into config.json: zenit-hub init {_word(options.model)} {then}")
        return
    if outcome == "dry_run":
        sink.data(done["diff"].rstrip("\n"))
        sink.note("Nothing was written.")
        return
    if options.quiet:
        sink.data(done.get("url") or name)
        return
    if outcome == "written":
        sink.data(f"{name}: `{proposal.key}` is written")
    elif outcome == "pull_request":
        sink.data(
            f"pull request {done['pull_request']} {'updated' if done['updated'] else 'opened'}: {done['url']}"
        )
    elif outcome == "published":
        sink.data(f"committed to {name}: {done['url']}")
    else:
        sink.data(f"nothing to do: {name} has it already: {done['url']}")
    # Until it is merged the section stands in the pull request alone.
    at = f" --revision refs/pr/{done['pull_request']}" if outcome == "pull_request" else ""
    sink.hint(f"Find the figures on a card: zenit-hub measure {_word(options.model)}{at}")


def _json(value: object) -> str:
    import json

    return json.dumps(value, indent=2)
