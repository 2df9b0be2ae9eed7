"""Each form of an export starts the values that the plug-in sets, in a vLLM without the plug-in."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint, checkpoint_config
from tests.rigs.engine import ServedModel
from tests.rigs.hook import HookServer, Launch, choice, config_folder
from tests.rigs.hook_child import cards, serve, vllm_goes_on
from zenit_hub import env
from zenit_hub.cli.main import main
from zenit_hub.export import FORMS
from zenit_hub.installed import vllm_version
from zenit_hub.say import REPAIR_ID
from zenit_hub.section import ARCHITECTURE_ID

pytest_plugins = ("tests.rigs.hook_fixtures",)

GIB = 2**30
FREE_BYTES, TOTAL_BYTES = 30 * GIB, 32 * GIB
WITHOUT_THE_PLUGIN = {"VLLM_PLUGINS": "none"}
WORDS = ["--skip-tokenizer-init", "-O0", "--hf-overrides", '{"max_window_layers": 1, "note": ["*", "x"]}']
STAGES = [{"group": 4, "first_pair": 0}, {"group": 2, "clamp": True}]
SECTION: dict[str, Any] = {
    "default_profile": "narrow",
    "profiles": {
        "wide": {"max_model_len": 8192, "requires_free_bytes": 40 * GIB},
        "narrow": {
            "max_model_len": 4096,
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 1,
            "kv_cache_memory_bytes": 128 * 2**20,
            "enable_prefix_caching": False,
            "async_scheduling": False,
            "enforce_eager": True,
            "requires_free_bytes": 10 * GIB,
            "noosphere_mode": "deep",
            "cuda_alloc_conf": "expandable_segments:True",
            "position_plan": {"stages": STAGES},
        },
    },
}
SPEC = CheckpointSpec(section=SECTION, max_position_embeddings=8192, architectures_before=(ARCHITECTURE_ID,))


def launch(words: list[str], variables: dict[str, str]) -> Launch:
    """``vllm serve WORDS`` up to the engine's whole configuration."""
    os.environ.update(variables)
    vllm_goes_on()
    cards(FREE_BYTES, total_bytes=TOTAL_BYTES)
    return serve(words[0], *words[1:])


def exported(model: str, form: str, machine: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = ["export", model, "--fit", "--machine", str(machine), "--format", form, "--", *WORDS]
    assert main(words) == 0
    return capsys.readouterr().out


def words_and_variables(text: str, form: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """What a person makes of an export: the words behind ``vllm serve``, and the environment."""
    if form == "command":
        words = shlex.split(text)
        start = words.index("vllm")
        return words[start + 2 :], dict(word.split("=", 1) for word in words[:start])
    if form == "vllm-yaml":
        (folder / "serve.yaml").write_text(text)
        pairs = re.findall(r"^#   (.*)$", text, re.MULTILINE)
        variables = dict(shlex.split(pair)[0].split("=", 1) for pair in pairs)
        return ["--config", str(folder / "serve.yaml")], variables
    variables = dict(line.split("=", 1) for line in text.splitlines() if not line.startswith("#"))
    script = f"set -f; printf '%s\\0' ${env.SERVE_ARGUMENTS}"
    words = subprocess.run(
        ["sh", "-c", script], env=variables, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    return words[:-1], variables


def test_every_form_configures_the_same_engine(
    hook: HookServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """vLLM's own parser and configuration: every engine argument, the variables, and the hash of the whole."""
    model = config_folder(tmp_path / "model", checkpoint_config(SPEC))
    machine = tmp_path / "machine.json"
    card = {"name": "Card A", "compute_capability": "9.0"}
    memory = {"total_bytes": TOTAL_BYTES, "free_bytes": FREE_BYTES}
    # vLLM names its version without the label that a build may carry in its metadata.
    version = (vllm_version() or "").partition("+")[0]
    machine.write_text(json.dumps({"vllm_version": version, "devices": [{**card, **memory}]}))
    starts = [{"words": [model, *WORDS], "variables": {}}]
    for form in FORMS:
        words, variables = words_and_variables(exported(model, form, machine, capsys), form, tmp_path)
        starts.append({"words": words, "variables": {**variables, **WITHOUT_THE_PLUGIN}})

    plugin, *forms = hook.together(*((launch, start) for start in starts))

    assert choice(plugin) == ("narrow", "widest_fitting")
    expected = {n: v for n, v in plugin["env"].items() if n != env.HANDED_DOWN}
    assert json.loads(expected[env.STAGES]) == STAGES
    for started in forms:
        assert started["lines"] == []
        assert started["fields"] == plugin["fields"]
        assert {n: v for n, v in started["env"].items() if n != env.SERVE_ARGUMENTS} == expected
        assert started["config_hash"] == plugin["config_hash"]


def test_a_config_file_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``vllm serve --config FILE`` and nothing else: the model, its window, and an answer."""
    model = str(build_checkpoint(tmp_path / "model", SPEC))
    assert main(["export", model, "--profile", "narrow", "--format", "vllm-yaml"]) == 0
    file = tmp_path / "serve.yaml"
    file.write_text(capsys.readouterr().out)

    with ServedModel(["--config", str(file)], WITHOUT_THE_PLUGIN, tmp_path / "engine.log") as served:
        log = served.log_text()
        assert served.window == 4096
        assert served.complete("Once upon a time", max_tokens=8)
        assert "enable_prefix_caching=False" in log
        assert "enforce_eager=True" in log
        assert REPAIR_ID not in log
