"""``zenit-hub measure``: what a profile needs free, found by running the engine on this machine."""

from __future__ import annotations

import argparse
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from zenit_hub.cli.options import add_output
from zenit_hub.cli.output import Sink
from zenit_hub.errors import UsageError
from zenit_hub.text import gib, printable

if TYPE_CHECKING:
    from zenit_hub.maintain.measure.launches import Place, Settings
    from zenit_hub.maintain.measure.subject import Subject

DEFAULT_OUTPUT = Path("measurements")
INTERRUPTED, TERMINATED = 130, 143

_EPILOG = """what it does: starts `vllm serve` with the profile forced, fills its window, and watches the device from
outside: a cold boot, a warm one, one with no more free than the figure, one with 1 % less. Nothing else should
use the device meanwhile.

what comes out: OUTPUT/PROFILE.json (for `zenit-hub publish`) with its picture beside it.

exit status: 0 every profile has a figure, 1 one has none, 2 usage, 130 and 143 interrupted (what was
written stays; --resume goes on)

examples:
  zenit-hub measure ./model --profile million
  zenit-hub measure org/model --all --output measurements
  zenit-hub measure org/model --all --resume
  zenit-hub measure ./model --all --dry-run"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL", help="a model folder or a Hub repo like org/model")
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit of a Hub repo")
    parser.add_argument("--token", help="a Hub token, where HF_TOKEN and `hf auth login` are not used")
    parser.add_argument(
        "--profile",
        dest="profiles",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this profile (may be repeated)",
    )
    parser.add_argument("--all", action="store_true", help="measure every profile")
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_OUTPUT,
        metavar="DIR",
        help="where results go (%(default)s)",
    )
    parser.add_argument(
        "--boots",
        type=int,
        default=2,
        metavar="N",
        help="boots for the figure: 1 cold, the others warm (%(default)s)",
    )
    parser.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        help="try the figure with no more than that free (default: yes)",
    )
    parser.set_defaults(
        verify=True
    )  # as the argument's own default, Python 3.10 alone would say it in the help
    parser.add_argument(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="for a boot, and for its requests (%(default)g)",
    )
    parser.add_argument("--resume", action="store_true", help="keep results that are there and go on")
    parser.add_argument("--overwrite", action="store_true", help="replace results that are there")
    parser.add_argument("--dry-run", action="store_true", help="say what would run, and start nothing")
    add_output(
        parser,
        json="one JSON object a line for every event",
        quiet="only the files that hold a figure, one a line",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    _check(options)
    # What a run needs is imported here: the command's help must not wait for it.
    from zenit_hub.maintain.measure.launches import Settings, chosen_profiles
    from zenit_hub.maintain.measure.subject import load_subject

    place = _place()
    subject = load_subject(options.model, options.revision, options.token)
    settings = Settings(
        options.boots, options.verify, options.timeout, options.resume, options.overwrite, options.token
    )
    wanted = _Wanted(
        subject, chosen_profiles(subject, options.profiles, options.all), place, settings, options.output
    )
    if options.dry_run:
        return _say_plan(wanted, sink, json=options.json)
    return _measure(wanted, sink, options)


def _place() -> Place:
    from zenit_hub.maintain.measure.launch import find_command
    from zenit_hub.maintain.measure.launches import Place

    return Place(find_command())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is to be measured, where, and where results go."""

    subject: Subject
    profiles: tuple[str, ...]
    place: Place
    settings: Settings
    output: Path


def _check(options: argparse.Namespace) -> None:
    if not 1 <= options.boots <= 10:
        raise UsageError("--boots", got=options.boots, allowed="1 to 10")
    if not 1 <= options.timeout <= 7 * 86400:
        raise UsageError("--timeout", got=f"{options.timeout:g}", allowed="1 s to 7 days")
    if options.profiles and options.all:
        raise UsageError("--profile and --all at once", allowed="one of them")
    if options.resume and options.overwrite:
        raise UsageError("--resume and --overwrite at once", allowed="one of them")


def _say_plan(wanted: _Wanted, sink: Sink, *, json: bool) -> int:
    from zenit_hub.maintain.measure.launches import outlook

    subject, settings = wanted.subject, wanted.settings
    plans = [outlook(subject, profile, wanted.place, settings) for profile in wanted.profiles]
    if json:
        objects = [asdict(plan) for plan in plans]
        sink.json({"model": subject.model, "commit": subject.revision, "profiles": objects})
        return 0
    at = f" at {subject.revision}" if subject.revision else ""
    sink.data(f"{printable(subject.model)}{at}: nothing was started.")
    for plan in plans:
        name = printable(plan.profile)
        if plan.cannot:
            sink.data(f"  {name}: cannot be measured: {printable(plan.cannot, limit=400)}")
            continue
        free = "?" if plan.free_bytes is None else gib(plan.free_bytes)
        file = printable(wanted.output / f"{plan.profile}.json", limit=1000)
        sink.data(
            f"  {name}: {plan.boots} boots on {', '.join(plan.devices)} ({free} free); "
            f"weights and KV pin alone take {gib(plan.at_least_bytes)} → {file}"
        )
    sink.data(f"A boot ends after {settings.boot_timeout_s:g} s at the latest, and so do its requests.")
    return 0


def _measure(wanted: _Wanted, sink: Sink, options: argparse.Namespace) -> int:
    from zenit_hub.cli.progress import follow
    from zenit_hub.maintain.measure.measure import Run, summary
    from zenit_hub.maintain.measure.results import Results
    from zenit_hub.maintain.measure.scratch import scratch_folder

    try:
        with _term_is_an_interrupt(), scratch_folder() as scratch, follow(sink, json=options.json) as watch:
            run = Run(wanted.subject, wanted.place, wanted.settings, Results(wanted.output), scratch, watch)
            measurements = run.measure(wanted.profiles)
    except KeyboardInterrupt as interrupt:
        sink.error("interrupted; what was written stays, and the same command with --resume goes on")
        return TERMINATED if isinstance(interrupt, _Terminated) else INTERRUPTED
    done = [m.profile.name for m in measurements if m.verdict == "measured" and not m.disproved]
    files = [printable(wanted.output / f"{name}.json", limit=1000) for name in done]
    if options.quiet:
        for file in files:
            sink.data(file)
    elif not options.json:
        for measurement in measurements:
            sink.data(summary(measurement))
        if files:
            sink.hint(f"zenit-hub publish {shlex.join(files)} --repo ORG/MODEL --dry-run")
    return 0 if len(done) == len(measurements) else 1


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a run as Ctrl-C does: the engine is ended first."""


@contextmanager
def _term_is_an_interrupt() -> Iterator[None]:
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise _Terminated

    # What `nohup` has ignored stays so.
    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
