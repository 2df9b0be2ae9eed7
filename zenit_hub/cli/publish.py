"""``zenit-hub publish``: measurements into a model repo on the Hub, as one commit or one pull request."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zenit_hub.cli.options import add_output
from zenit_hub.cli.output import Sink, sentence
from zenit_hub.cli.typed import check_branch, check_proposal, check_token
from zenit_hub.errors import UsageError, ZenitHubError
from zenit_hub.read import hub_repo
from zenit_hub.text import printable

if TYPE_CHECKING:
    from zenit_hub.maintain.publish.advice import Asked
    from zenit_hub.maintain.publish.goals import Proposal
    from zenit_hub.maintain.publish.outcomes import Publication

MAIN = "main"
_MAX_SHOWN_LETTERS = 4000

_EPILOG = """what it writes: requires_free_bytes and measurements of each measured profile in config.json, and a KV pin
where there is none; the block between the two markers in README.md; the measurement and its picture below
serving_profiles/. Nothing else changes, not by a byte. All goes into one commit: serving machines recompile once.

what it refuses: a figure that was disturbed or never tried, and one of another profile or other weights than the
repo holds now.

exit status: 0 done, or nothing to do; 1 not published (the files are kept, and the same command goes on); 2 usage;
130 interrupted

examples:
  zenit-hub publish measurements/*.json --repo org/model --dry-run
  zenit-hub publish measurements/*.json --repo org/model
  zenit-hub publish measurements/million.json --repo org/model --create-pr --yes
  zenit-hub publish measurements/million.json --repo org/model --yes --json"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "measurements",
        nargs="+",
        metavar="MEASUREMENT",
        type=Path,
        help="a file that `zenit-hub measure` wrote; a picture beside it goes along",
    )
    parser.add_argument("--repo", required=True, metavar="ORG/MODEL", help="the model repo on the Hub")
    parser.add_argument(
        "--revision",
        default=MAIN,
        metavar="BRANCH",
        help="branch, or refs/pr/N; with --dry-run a commit too (%(default)s)",
    )
    parser.add_argument(
        "--create-pr", action="store_true", help="propose it: opens a pull request, or updates our open one"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would change, and send nothing")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before sending")
    parser.add_argument(
        "--force", action="store_true", help="also where somebody else publishes the same figure meanwhile"
    )
    parser.add_argument("--init-card", action="store_true", help="add the markers to a README.md without any")
    parser.add_argument(
        "--allow-unverified",
        action="store_true",
        help="publish a figure that no launch was held to, marked as such",
    )
    parser.add_argument("--token", help="a Hub token, where HF_TOKEN and `hf auth login` are not used")
    add_output(
        parser, json="the outcome as one JSON object on stdout", quiet="only the address of what was made"
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """0: published, proposed, shown, or nothing to do; 1: the person said no."""
    _check(options)
    # What a publication needs is imported here: the command's help must not wait for it.
    from zenit_hub.maintain.publish.advice import Asked

    asked = Asked(
        branch=options.revision,
        create_pr=options.create_pr,
        dry_run=options.dry_run,
        force=options.force,
        command=_command(options),
    )
    try:
        outcome = _publish(options, asked, sink)
    except KeyboardInterrupt:
        sink.warning("interrupted: the same command finds out whether a commit landed, and finishes it")
        if options.json:
            sink.json(_as_json(options, {"outcome": "interrupted"}))
        raise
    except (ZenitHubError, OSError) as error:
        if options.json:
            sink.json(_as_json(options, _failed(error)))
        raise
    if options.json:
        sink.json(_as_json(options, asdict(outcome)))
    else:
        _say(outcome, options, sink)
    return 1 if outcome.outcome == "declined" else 0


def _publish(options: argparse.Namespace, asked: Asked, sink: Sink) -> Publication:
    from importlib.metadata import version

    from zenit_hub.maintain.publish.content import load
    from zenit_hub.maintain.publish.hub import Hub
    from zenit_hub.maintain.publish.publish import publish

    content = load(
        options.measurements,
        options.repo,
        version=version("zenit-hub"),
        init_card=options.init_card,
        allow_unverified=options.allow_unverified,
    )
    hub = Hub(options.repo, options.token)
    return publish(hub, content, asked, _Person(sink, yes=options.yes, quiet=options.quiet))


def _check(options: argparse.Namespace) -> None:
    if hub_repo(options.repo) != options.repo or "/" not in options.repo:
        raise UsageError("--repo names no Hub repo", got=printable(options.repo), allowed="ORG/MODEL")
    check_branch(options.revision, may_be_commit=options.dry_run)
    if options.create_pr:
        check_proposal(options.revision)
    check_token(options.token)
    if not options.yes and not options.dry_run and not _can_ask():
        raise UsageError(
            "nobody can be asked here whether to publish",
            next_step=f"Look first: {_command(options)} --dry-run. Then: {_command(options)} --yes",
        )


def _can_ask() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _command(options: argparse.Namespace) -> str:
    """What was typed, without what is said about it and without the token."""
    words = ["zenit-hub", "publish", *map(str, options.measurements), "--repo", options.repo]
    if options.revision != MAIN:
        words += ["--revision", options.revision]
    for name in ("create_pr", "init_card", "allow_unverified"):
        if getattr(options, name):
            words.append(f"--{name.replace('_', '-')}")
    return printable(shlex.join(words), limit=_MAX_SHOWN_LETTERS)


class _Person:
    """Who sits at the terminal."""

    def __init__(self, sink: Sink, *, yes: bool, quiet: bool) -> None:
        self._sink = sink
        self._yes = yes
        self._quiet = quiet

    def note(self, text: str) -> None:
        if not self._quiet:
            self._sink.note(text)

    def warning(self, text: str) -> None:
        self._sink.warning(text)

    def agrees(self, proposal: Proposal) -> bool:
        for remark in proposal.remarks:
            self.warning(remark)
        # Who is asked sees what about, also when he wants it quiet.
        say = self.note if self._yes else self._sink.ask
        for line in (*proposal.lines, *(f"  {printable(path, limit=400)}" for path in proposal.files)):
            say(line)
        if self._yes:
            return True
        say(f"{_question(proposal)} [y/N]")
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def _question(proposal: Proposal) -> str:
    repo, goal = printable(proposal.repo), proposal.goal
    at = f"at {goal.here.commit[:12]}"
    if goal.pull is not None:
        return f"Add this to pull request {goal.pull.number} of {repo}, {at}?"
    if goal.opens:
        return f"Propose this to {repo} as a pull request to {printable(goal.revision)}, {at}?"
    return f"Publish this to {repo}, branch {printable(goal.revision)}, {at}?"


def _as_json(options: argparse.Namespace, told: Mapping[str, Any]) -> dict[str, Any]:
    """The same keys whatever came of it, and what else there is to tell."""
    always = {
        "repo": options.repo,
        "revision": options.revision,
        "commit": None,
        "pull_request": None,
        "url": None,
    }
    return {"outcome": told["outcome"], **always, "files": [], "tries": 0, **told}


def _failed(error: ZenitHubError | OSError) -> dict[str, Any]:
    trouble = getattr(error, "trouble", None)
    return {
        "outcome": "failed",
        "error": printable(sentence(error), limit=_MAX_SHOWN_LETTERS),
        "trouble": trouble.name.lower() if trouble is not None else None,
        "tries": getattr(error, "tries", 0),
    }


def _say(outcome: Publication, options: argparse.Namespace, sink: Sink) -> None:
    repo, branch = printable(options.repo), printable(options.revision)
    if outcome.outcome == "dry_run":
        _say_preview(outcome.commit, outcome.diff, outcome.lines, sink, quiet=options.quiet)
    elif outcome.outcome == "declined":
        sink.note("Nothing was sent.")
    elif outcome.outcome == "nothing":
        where = f"pull request {outcome.pull_request}" if outcome.pull_request else branch
        if not options.quiet:
            sink.data(f"nothing to publish: {repo} has all of it in {where}, at {outcome.commit[:12]}")
    elif options.quiet:
        sink.data(outcome.url)
    elif outcome.outcome == "published":
        sink.data(f"published to {repo}, {branch}: {outcome.url}")
        if outcome.config_changed:
            sink.hint(_recompile(merged=not options.revision.startswith("refs/pr/")))
    else:
        done = "updated" if outcome.updated else "opened"
        sink.data(f"pull request {outcome.pull_request} {done}: {outcome.url}")
        if outcome.config_changed:
            sink.hint(_recompile(merged=False))


def _recompile(*, merged: bool) -> str:
    who = "Serving machines" if merged else "Once it is merged: serving machines"
    return f"{who} recompile once, at their next start: the key of vLLM's compile cache holds config.json."


def _say_preview(commit: str, diff: str, lines: tuple[str, ...], sink: Sink, *, quiet: bool) -> None:
    sink.data(f"head {commit}")
    if not quiet:
        for line in lines:
            sink.note(line)
    if diff:
        sink.data(diff.rstrip("\n"))
    if not quiet:
        sink.note("Nothing was sent.")
