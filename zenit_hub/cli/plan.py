"""``zenit-hub plan``: what a launch would do, without an engine and without a GPU."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from zenit_hub import env, plan
from zenit_hub.arguments import read_arguments
from zenit_hub.cli import table
from zenit_hub.cli.options import add_output
from zenit_hub.cli.output import Sink
from zenit_hub.stage import ask, passed_by, revision_words, stage_of

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
  ZENIT_SERVING_PROFILE=$(zenit-hub plan org/model -q) vllm serve org/model

a machine file describes another machine; all keys are optional:
  {"platform": "cuda", "vllm_version": "0.33.0",
   "env": {"CUDA_VISIBLE_DEVICES": "0"},
   "devices": [{"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0",
                "total_bytes": 34190917632, "reserved_bytes": 486539264,
                "free_bytes": 33285996544}]}"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "zenit-hub plan MODEL [--revision REV] [--machine FILE] [--strict]\n"
        "                      [--format FORMAT | --json | -q] [-- ARGUMENTS]"
    )
    parser.epilog = _EPILOG
    parser.add_argument(
        "model", metavar="MODEL", help="Hub id, folder, config.json, or .gguf file beside one"
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hub repo")
    parser.add_argument(
        "--machine", metavar="FILE", type=Path, help="a described machine instead of this one"
    )
    parser.add_argument("--strict", action="store_true", help="exit 3 where a strict launch would refuse")
    add_output(
        parser,
        json="the answer as JSON, nothing else on stdout",
        quiet="only the chosen profile's name, nothing where none is chosen",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    stage = stage_of(options.machine)
    typed = read_arguments(options.rest, stage.around.engine.version)
    found, commit = ask(options.model, options.revision, typed, stage)
    words = [*revision_words(typed, options.revision), *typed.words]
    unknown = passed_by(typed, stage)
    if unknown is not None:
        sink.warning(unknown)
    unheard = _of_this_shell() if options.machine else ()
    if unheard:
        sink.warning(
            f"{', '.join(unheard)} of this shell say nothing about the described machine: "
            f'put them under "env" in its file.'
        )
    if options.json:
        sink.json(plan.contract(found, options.model, words, commit))
    elif options.quiet:
        table.show_name(found, sink)
    else:
        table.show(found, options.model, words, sink)
    refuses = options.strict or env.strict(stage.around.environment)
    if refuses and found.refusal is not None:
        sink.error(f"a strict launch would refuse: {found.refusal}")
        return EXIT_REFUSED
    return 0


def _of_this_shell() -> list[str]:
    """What is set here for a launch, and cannot be meant for another machine without a word."""
    return [name for name in (env.PROFILE, env.KEEP, env.STRICT) if os.environ.get(name)]
