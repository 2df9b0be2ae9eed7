"""``zenit-hub export``: a profile's values for a launch where the plug-in cannot be installed."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from zenit_hub import env, plan
from zenit_hub.answer import Answer
from zenit_hub.arguments import read_arguments
from zenit_hub.cli.output import Sink
from zenit_hub.cli.plan import EXIT_REFUSED
from zenit_hub.errors import ExportError, UsageError
from zenit_hub.export import FORMS, START_WITH_ENV, Launch, about_secrets, launch_of, options_of, written
from zenit_hub.stage import Stage, ask, passed_by, revision_words, stage_of
from zenit_hub.text import printable

TAKES_REST = True
"""What stands behind ``--`` is vLLM's and comes as ``options.rest``."""

NEEDS_A_LOOK = "unknown_device_count"
"""What is said about a launch whose cards were not counted; nobody wanted them counted where a profile was named."""

_EPILOG = f"""--fit chooses as `vllm serve` would here, or on the machine in FILE, and lowers gpu_memory_utilization
where it must. --profile NAME looks at no memory: the profile's own values, unless --machine says where they go. What
would follow `vllm serve MODEL` stands after -- and goes into the export, with what a --config file holds. Secrets do
not.

vllm-yaml: for `vllm serve --config FILE`. It cannot set variables: the profile's stand in it as comments.

command: one line for a shell, the variables in front.

env: KEY=VALUE lines for `docker run --env-file`, Compose's env_file, systemd's EnvironmentFile and `kubectl create
configmap --from-env-file`. They have no quoting in common, so nothing is quoted, and what one of them would read
differently is refused. The arguments, the model first, are in {env.SERVE_ARGUMENTS}. Start with
  {START_WITH_ENV}
and write $$ for $ in a Compose file or a unit. A shell cannot read the file with `.` (it would take the quotes out
of JSON): take the form command there, or
  while IFS= read -r line; do
    case $line in [A-Z]*) export "$line";; esac
  done < FILE

exit status: 0 written; 1 an error; 2 usage; 3 a strict launch would refuse ({env.STRICT}=1), it is written all
the same

examples:
  zenit-hub export org/model --fit > serve.sh
  zenit-hub export org/model --profile long --format vllm-yaml > serve.yaml
  zenit-hub export ./model --fit --format env -- --port 8001 > serve.env"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG.replace("%", "%%")
    parser.add_argument(
        "model", metavar="MODEL", help="Hub id, folder, config.json, or .gguf file beside one"
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--profile", metavar="NAME", help="this profile")
    which.add_argument("--fit", action="store_true", help="the profile that the free memory chooses")
    parser.add_argument("--format", dest="form", choices=FORMS, default="command", help="(%(default)s)")
    parser.add_argument("--revision", metavar="REV", help="branch, tag or commit of a Hub repo")
    parser.add_argument(
        "--machine", metavar="FILE", type=Path, help="a described machine instead of this one (see plan)"
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints the export. Raises :class:`ExportError` where there is nothing to write, or the form cannot hold it."""
    stage = _stage(options)
    typed = read_arguments(options.rest, stage.around.engine.version)
    found, commit = ask(options.model, options.revision, typed, stage)
    for caution in found.cautions:
        if options.fit or options.machine or caution.code != NEEDS_A_LOOK:
            sink.warning(f"{caution.message} [{caution.code}]")
    unknown = passed_by(typed, stage)
    if unknown is not None:
        sink.warning(unknown)
    note = f"{_named(found, options.model, commit)}, written by zenit-hub export"
    words = [*revision_words(typed, options.revision), *typed.ready]
    launch = launch_of(options.model, options_of(words, stage.around.engine.version), found.filling, note)
    sink.data(written(launch, options.form))
    _say_what_is_missing(launch, options, stage, sink)
    if commit is not None and not options.revision and "revision" not in typed.values:
        sink.hint(f"these values are of commit {commit}; --revision {commit} serves the repo as it is there.")
    if env.strict(stage.around.environment) and found.refusal is not None:
        sink.error(f"a strict launch would refuse: {found.refusal}")
        return EXIT_REFUSED
    return 0


def _stage(options: argparse.Namespace) -> Stage:
    """Where the choice is made. What the shell says of profiles does not count: the command line names the profile."""
    if options.profile == env.OFF:
        raise UsageError("--profile off is no profile", next_step="Leave the plug-in out to have vLLM's own.")
    stage = stage_of(options.machine)
    environment = {name: value for name, value in stage.around.environment.items() if name != env.PROFILE}
    around = stage.around
    if options.profile is not None:
        environment[env.PROFILE] = options.profile
        if options.machine is None:
            around = replace(around, platform="unspecified")  # nothing is looked at there
    return replace(stage, around=replace(around, environment=environment))


def _named(found: Answer, model: str, commit: str | None) -> str:
    if found.chosen is None:
        raise ExportError(f"there is nothing to export: {plan.REASONS[found.reason]}", got=printable(model))
    at = f" at commit {commit}" if commit else ""
    return f"{printable(model)}{at}: profile {found.chosen.profile.name} ({found.reason})"


def _say_what_is_missing(launch: Launch, options: argparse.Namespace, stage: Stage, sink: Sink) -> None:
    """What the reader of the export alone would not know."""
    if options.profile is not None and options.machine is None:
        sink.hint(
            "no memory was looked at: gpu_memory_utilization is as the profile has it, or vLLM's own. For a card that "
            "others use too, describe it with --machine."
        )
    for sentence in about_secrets(launch):
        sink.warning(sentence)
    if options.form == "vllm-yaml" and launch.filling.env:
        pairs = " ".join(plan.assignments(launch.filling.env))
        sink.warning(
            f"this file cannot set the profile's variables; set them where you start: {printable(pairs, limit=10_000)}"
        )
    there = [name for name in (*env.PUBLISHED, *env.ALLOCATOR_SPELLINGS) if name in stage.around.environment]
    if there:
        names = ", ".join(dict.fromkeys(there))
        sink.warning(
            f"{names} is set here and would stand; the export does not hold it. Set it where you start as well, or "
            f"unset it here to have the profile's."
        )
