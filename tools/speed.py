"""How fast it is: ``python -m tools.speed`` beside check-jsonschema, ``--hook`` within a vLLM process.

    zenit-hub validate CONFIG                       at most 1.0 × check-jsonschema of the same section
    zenit-hub plan FOLDER --machine FILE --json     at most 1.5 × the same
    the hook in EngineArgs.create_engine_config     at most 50 ms of its own

Whole processes by the clock, taken in turns so that a busy machine slows all of them; medians. For
check-jsonschema the file is the section alone, which is what the schema describes; for zenit-hub it is the
``config.json`` that holds it, as a repo has it. Ends with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
SCHEMA = ROOT / "schema" / "serving_profiles.schema.json"
EXAMPLE = ROOT / "model_card" / "config.example.json"
SECTION_KEY = "lomonosov_serving_profiles"
BASE = "check-jsonschema"
GOALS: Mapping[str, float | None] = {BASE: None, "validate": 1.0, "plan": 1.5, "--help": None}
"""Command → at most so many times the time of check-jsonschema."""

HOOK_GOAL_S = 0.050
RUNS, HOOK_RUNS = 10, 20

MACHINE = {
    "vllm_version": "0.33.0",
    "devices": [
        {
            "name": "NVIDIA GeForce RTX 5090",
            "compute_capability": "12.0",
            "total_bytes": 34190917632,
            "reserved_bytes": 486539264,
            "free_bytes": 33285996544,
        }
    ],
}
TINY = {
    "architectures": ["LomonosovZenitAltayForConditionalGeneration", "Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "dtype": "bfloat16",
    "hidden_size": 256,
    "intermediate_size": 512,
    "max_position_embeddings": 8192,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 4,
    "vocab_size": 512,
    SECTION_KEY: {
        "default_profile": "narrow",
        "profiles": {
            "narrow": {"max_model_len": 2048, "requires_free_bytes": 2**20, "kv_cache_memory_bytes": 2**28},
            "wide": {"max_model_len": 4096, "requires_free_bytes": 2**21, "kv_cache_memory_bytes": 2**28},
        },
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hook", action="store_true", help="measure the hook instead; needs vLLM")
    parser.add_argument(
        "--runs", type=int, help=f"runs of each, {RUNS} (of the hook: {HOOK_RUNS}) by default"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.hook:
            return hook(Path(folder), options.runs or HOOK_RUNS)
        return commands(Path(folder), options.runs or RUNS)


def commands(folder: Path, runs: int) -> int:
    """Prints the table of whole processes."""
    medians = {
        name: statistics.median(times) for name, times in in_turns(timed_commands(folder), runs).items()
    }
    print(f"medians of {runs} runs in turns, seconds by the clock")
    missed = 0
    for name, median_s in medians.items():
        times, goal = median_s / medians[BASE], GOALS[name]
        missed += goal is not None and times > goal
        said = f"goal ≤ {goal:.2f} ×: {'missed' if times > goal else 'met'}" if goal is not None else ""
        print(f"  {name:<18}{median_s:7.3f} s{times:7.2f} ×  {said}".rstrip())
    return 1 if missed else 0


def timed_commands(folder: Path) -> dict[str, Callable[[], float]]:
    """What to time, on the model card's example."""
    config = json.loads(EXAMPLE.read_text(encoding="utf-8"))
    section = written(folder / "section.json", config[SECTION_KEY])
    repo = written(folder / "model" / "config.json", config)
    machine = written(folder / "machine.json", MACHINE)
    hub = str(BIN / "zenit-hub")
    words = {
        BASE: [str(BIN / BASE), "--schemafile", str(SCHEMA), str(section)],
        "validate": [hub, "validate", str(repo)],
        "plan": [hub, "plan", str(repo.parent), "--machine", str(machine), "--json"],
        "--help": [hub, "--help"],
    }
    return {name: lambda command=command: seconds(command) for name, command in words.items()}


def written(file: Path, content: object) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return file


def seconds(command: Sequence[str]) -> float:
    """One process from start to end. Raises where it fails: a fast refusal is no speed."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def in_turns(timed: Mapping[str, Callable[[], float]], runs: int) -> dict[str, list[float]]:
    """Each once unmeasured, which warms the disk's cache and writes bytecode; then one after the other."""
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for turn in range(runs + 1):
        for name, once in timed.items():
            took_s = once()
            if turn:
                taken[name].append(took_s)
    return taken


def hook(folder: Path, runs: int) -> int:
    """Prints what the hook adds to vLLM's own function, each time on arguments of its own."""
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    from vllm.engine.arg_utils import EngineArgs

    from zenit_hub import install_model_owned_serving_defaults

    install_model_owned_serving_defaults()
    written(folder / "config.json", TINY)
    wrapped: Any = EngineArgs.create_engine_config

    def timed(function: Callable[..., Any]) -> float:
        arguments = EngineArgs(model=str(folder), skip_tokenizer_init=True)
        start = time.perf_counter()
        function(arguments)
        return time.perf_counter() - start

    taken = in_turns({"with": lambda: timed(wrapped), "without": lambda: timed(wrapped.__wrapped__)}, runs)
    with_s, without_s = statistics.median(taken["with"]), statistics.median(taken["without"])
    added_s = with_s - without_s
    verdict = "met" if added_s <= HOOK_GOAL_S else "missed"
    print(f"create_engine_config of a local checkpoint, medians of {runs} runs in turns, one process")
    print(f"  with the hook     {with_s * 1000:8.2f} ms")
    print(f"  vLLM's own        {without_s * 1000:8.2f} ms")
    print(f"  the hook adds     {added_s * 1000:8.2f} ms  goal ≤ {HOOK_GOAL_S * 1000:.0f} ms: {verdict}")
    return 0 if added_s <= HOOK_GOAL_S else 1


if __name__ == "__main__":
    sys.exit(main())
