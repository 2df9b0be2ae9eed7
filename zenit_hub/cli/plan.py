"""``zenit-hub plan``: what a launch would do, without an engine and without a GPU."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from zenit_hub import env, plan
from zenit_hub.answer import Answer, Look, answer
from zenit_hub.arguments import ServeArguments, read_arguments, redacted
from zenit_hub.caller import Caller, kept_values
from zenit_hub.cli import table
from zenit_hub.cli.output import Sink
from zenit_hub.compat import engine_facts
from zenit_hub.device import look_at_cards, look_at_host
from zenit_hub.installed import assumed_platform, assumed_version
from zenit_hub.machine import Surroundings
from zenit_hub.machine_file import read_machine_file
from zenit_hub.read import find_config, hub_repo
from zenit_hub.text import printable

EXIT_REFUSED = 3
TAKES_REST = True
"""What stands behind ``--`` is vLLM's and comes as ``options.rest``."""

_EPILOG = """after --: exactly what would follow `vllm serve MODEL`.

exit status: 0 decided, 1 an error, 2 usage, 3 a strict launch would refuse (the answer is still printed).

examples:
  zenit-hub plan org/model
  zenit-hub plan ./model --json
  zenit-hub plan org/model -- --max-model-len 256k -tp 2
  zenit-hub plan ./model --machine card.json --strict

a machine file describes another machine; all keys are optional:
  {"platform": "cuda", "vllm_version": "0.33.0", "env": {"CUDA_VISIBLE_DEVICES": "0"},
   "devices": [{"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0",
                "total_bytes": 34190917632, "reserved_bytes": 486539264, "free_bytes": 33285996544}]}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = "zenit-hub plan MODEL [--revision REV] [--machine FILE] [--json] [--strict] [-- ARGUMENTS]"
    parser.epilog = _EPILOG
    parser.add_argument(
        "model", metavar="MODEL", help="Hub id, folder, config.json, or .gguf file beside one"
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hub repo")
    parser.add_argument(
        "--machine", metavar="FILE", type=Path, help="a described machine instead of this one"
    )
    parser.add_argument("--json", action="store_true", help="the answer as JSON, nothing else on stdout")
    parser.add_argument("--strict", action="store_true", help="exit 3 where a strict launch would refuse")


def run(options: argparse.Namespace, sink: Sink) -> int:
    stage = _described(options.machine) if options.machine else _this_machine()
    typed = read_arguments(options.rest, stage.around.engine.version)
    found, commit = _answer(options, typed, stage)
    words = list(typed.words)
    if options.revision and "revision" not in typed.values:
        words = ["--revision", options.revision, *words]
    if typed.unknown:
        passed_by = printable(" ".join(redacted(typed.unknown)))
        sink.warning(
            f"vllm serve {stage.around.engine.version} does not know {passed_by}: passed on as it stands."
        )
    if options.json:
        sink.json(plan.contract(found, options.model, words, commit))
    else:
        table.show(found, options.model, words, sink)
    refuses = options.strict or env.strict(stage.around.environment)
    if refuses and found.refusal is not None:
        sink.error(f"a strict launch would refuse: {found.refusal}")
        return EXIT_REFUSED
    return 0


@dataclass(frozen=True, slots=True)
class _Stage:
    """The machine that the plan is for."""

    around: Surroundings
    look: Look
    device_ids: Sequence[int | str] | None


def _described(file: Path) -> _Stage:
    described = read_machine_file(file, assumed_version())
    return _Stage(described.around, lambda: described.machine, described.device_ids)


def _this_machine() -> _Stage:
    platform = assumed_platform()
    around = Surroundings(platform, engine_facts(assumed_version()), MappingProxyType(os.environ))
    look = look_at_host if platform == "cpu" else look_at_cards
    return _Stage(around, look, None)


def _answer(options: argparse.Namespace, typed: ServeArguments, stage: _Stage) -> tuple[Answer, str | None]:
    environment = stage.around.environment
    model, config = options.model, None
    repo = commit = None
    if env.forced_profile(environment) != env.OFF:
        source = typed.values.get("hf_config_path") or model
        found = find_config(source, options.revision or typed.values.get("revision"), _token(typed))
        config, commit = found.config, found.commit
        repo = hub_repo(model) if found.repo else None
    caller = Caller(
        values=typed.values,
        kept=kept_values(environment, stage.around.engine.defaults),
        yaml_false=typed.yaml_false,
        repo=repo,
    )
    device_ids = stage.device_ids or typed.values.get("device_ids")
    return answer(config, caller, stage.around, stage.look, device_ids), commit


def _token(typed: ServeArguments) -> str | None:
    token = typed.values.get("hf_token")
    return token if isinstance(token, str) else None
