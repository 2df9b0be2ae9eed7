"""``zenit-hub validate``: the serving profiles of files, folders and Hub repos, checked."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from zenit_hub.cli.options import add_output, settle
from zenit_hub.cli.output import Sink
from zenit_hub.errors import UsageError, ZenitHubError
from zenit_hub.files import read_limited
from zenit_hub.limits import CONFIG_NAME, MAX_CONFIG_BYTES
from zenit_hub.maintain.finding import Finding
from zenit_hub.maintain.meaning import Asked
from zenit_hub.maintain.validate import Report, validate
from zenit_hub.text import printable

_HUB_ID = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)

_ALLOWED_TARGETS = "name a config.json, a folder that holds one, or a Hub repo like org/model"

_EPILOG = """what comes out: FILE:LINE: error: PLACE: what is wrong, and below it what to type. With --format github
an annotation at each line, as a workflow's log understands it. With --json one object, for several targets a list
of them:
  {"file", "valid",
   "findings": [{"level", "path", "line", "message", "fix"}]}

exit status: 0 valid (warnings may be), 1 an error was found, 2 usage

examples:
  zenit-hub validate config.json
  zenit-hub validate ./model --repo org/model
  zenit-hub validate org/model --revision refs/pr/2 --json
  zenit-hub validate config.json --format github     # in a workflow"""


@dataclass(frozen=True, slots=True)
class _Checked:
    """``file`` is what was read: a path, or a Hub id."""

    file: str
    report: Report


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="FILE|DIR|ORG/MODEL",
        help="a config.json, a model folder, a Hub repo or a measurement",
    )
    parser.add_argument("--revision", metavar="REV", help="branch, tag, commit or refs/pr/N of the Hub repos")
    parser.add_argument(
        "--repo",
        metavar="ORG/MODEL",
        help="where the figures must have been measured; another repo is an error",
    )
    add_output(
        parser,
        json="the findings as JSON",
        quiet="only the names of what is not valid, one a line",
        github="annotations for a GitHub workflow",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Checks every target. 0: all are valid, 1: an error was found."""
    if options.repo is not None and not _HUB_ID.fullmatch(options.repo):
        raise UsageError("--repo names no Hub repo", got=printable(options.repo), allowed="ORG/MODEL")
    if options.revision is not None and all(Path(target).exists() for target in options.targets):
        raise UsageError("--revision is for Hub repos; all targets are files or folders here")
    checked = [_check(target, options) for target in options.targets]
    form = settle(options)
    if form == "json":
        objects = [_as_json(one) for one in checked]
        sink.json(objects[0] if len(objects) == 1 else objects)
    else:
        say = {"quiet": _name, "github": _annotate}.get(form, _say)
        for one in checked:
            say(one, sink)
    return 0 if all(one.report.valid for one in checked) else 1


def _check(target: str, options: argparse.Namespace) -> _Checked:
    """One target: a path that exists wins over a Hub repo of that name."""
    path = Path(target)
    try:
        if path.is_dir():
            target = str(path / CONFIG_NAME)
            if not Path(target).exists():
                return _unread(target, f"the folder holds no {CONFIG_NAME}", "name the model's own folder")
        if Path(target).exists():
            return _Checked(target, validate(_file_bytes(Path(target)), Asked(repo=options.repo)))
        if not _HUB_ID.fullmatch(target) or target.endswith(".json"):
            return _unread(target, "there is no such file or folder", _ALLOWED_TARGETS)
        return _Checked(target, _check_repo(target, options))
    except ZenitHubError as error:
        return _unread(target, error.what, error.next_step or "look at the repo on the Hub")
    except OSError as error:
        return _unread(target, f"it cannot be read: {error.strerror}", "check its permissions")


def _check_repo(repo: str, options: argparse.Namespace) -> Report:
    """A Hub repo; what reads it is imported only here, files have no use for it."""
    from zenit_hub.read import config_bytes

    return validate(config_bytes(repo, options.revision), Asked(repo=options.repo, hub_id=repo))


def _file_bytes(path: Path) -> bytes:
    """The file, of one that is too large just enough to see that it is."""
    return read_limited(path, MAX_CONFIG_BYTES)


def _unread(file: str, message: str, fix: str) -> _Checked:
    return _Checked(file, Report((Finding("error", "", None, message, fix),)))


def _as_json(checked: _Checked) -> dict[str, object]:
    return {
        "file": printable(checked.file, limit=4096),
        "valid": checked.report.valid,
        "findings": [asdict(finding) for finding in checked.report.findings],
    }


def _name(checked: _Checked, sink: Sink) -> None:
    if not checked.report.valid:
        sink.data(printable(checked.file, limit=4096))


def _annotate(checked: _Checked, sink: Sink) -> None:
    """Every finding at its line. What is on the Hub has no file in the checkout: it is named in the message."""
    on_disk = Path(checked.file).exists()
    file = printable(checked.file, limit=4096)
    for finding in checked.report.findings:
        what = f"{finding.path}: {finding.message}" if finding.path else finding.message
        message = f"{what}\nfix: {finding.fix}" if finding.fix else what
        if on_disk:
            # GitHub shows what has no line at the first one.
            sink.annotate(finding.level, message, file=checked.file, line=finding.line or 1)
        else:
            sink.annotate(finding.level, f"{file}: {message}")
    sink.data(f"{file}: {_verdict(checked)}")


def _say(checked: _Checked, sink: Sink) -> None:
    file, findings = printable(checked.file, limit=4096), checked.report.findings
    for finding in findings:
        line = f":{finding.line}" if finding.line is not None else ""
        place = f"{finding.path}: " if finding.path else ""
        level = sink.paint(finding.level, "red" if finding.level == "error" else "yellow")
        sink.data(f"{file}{line}: {level}: {place}{finding.message}")
        if finding.fix:
            sink.data(f"    fix: {finding.fix}")
    sink.data(f"{file}: {_verdict(checked)}")


def _verdict(checked: _Checked) -> str:
    findings = checked.report.findings
    errors = sum(finding.level == "error" for finding in findings)
    counts = ((errors, "error"), (len(findings) - errors, "warning"))
    said = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for count, word in counts if count)
    return ("not valid" if errors else "valid") + (f" ({said})" if said else "")
