"""What the pages say of vLLM, held against the installed one: command lines, variables, messages, plug-in search."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import pages
from tests.pages import PAGES, Started
from tests.rigs.desk import PROFILES
from tests.rigs.hook import HookServer, Launch, choice, config_folder
from tests.rigs.hook_child import cards, engine, serve
from tests.rigs.model_repo import copy_project
from tests.test_docs import vllm_lines
from tests.test_docs_shown import KINDS
from zenit_hub import env

pytest_plugins = ("tests.rigs.hook_fixtures",)

GIB = 2**30
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "max_position_embeddings": 262144,
    "serving_profiles": {"default_profile": "long", "profiles": PROFILES},
}


def typed(words: list[str], variables: dict[str, str]) -> Launch:
    """``vllm serve WORDS`` on two cards with 31 GiB free, up to the engine's configuration."""
    os.environ.update(variables)
    cards(31 * GIB, 31 * GIB, total_bytes=32 * GIB)
    return serve(words[0], *words[1:])


def lines() -> list[Started]:
    """Each once. Of Ray's and of several nodes' lines the words are read in ``tests/test_docs.py``, and what they do in
    ``test_hook_cluster`` and ``test_hook_nodes``."""
    alone = [line for line in vllm_lines() if not {"ray", "--nnodes"} & set(line.words)]
    return list({line.words: line for line in alone}.values())


def test_every_command_line_is_taken_by_vllm_and_filled_by_the_plug_in(
    hook: HookServer, tmp_path: Path
) -> None:
    """vLLM's own parser, then the hook: a profile is chosen, and nothing stops the start."""
    model = config_folder(tmp_path / "model", CONFIG)
    found = lines()
    assert len(found) >= 10
    for line in found:
        words = [model, *line.words[1:]]
        (launch,) = hook.together((typed, {"words": words, "variables": {}}))
        assert launch["raised"] is None, line.where
        assert launch["fields"] is not None, line.where
        chosen = choice(launch)
        assert chosen is not None, line.where
        assert chosen[0] in PROFILES, line.where


def with_ray_serve(model: str, kwargs: dict[str, Any], variables: dict[str, str]) -> Launch:
    """The engine arguments that Ray Serve makes of ``engine_kwargs``, in a fresh process."""
    os.environ.update(variables)
    cards(31 * GIB, total_bytes=32 * GIB)
    return engine(model, served_model_name=["model"], **kwargs)


def test_ray_serves_arguments_stay_and_the_profile_fills_the_rest(hook: HookServer, tmp_path: Path) -> None:
    """Also one that equals vLLM's default: the page names it in ZENIT_SERVING_KEEP, and without that it is not seen."""
    (block,) = pages.blocks(".docs/ray.md", "yaml")
    (application,) = yaml.safe_load(block.text)["applications"]
    (config,) = application["args"]["llm_configs"]
    model = config_folder(tmp_path / "model", CONFIG)
    kwargs, variables = config["engine_kwargs"], config["runtime_env"]["env_vars"]
    unnamed = {name: value for name, value in variables.items() if name != env.KEEP}
    as_shown, without = (
        hook.run(with_ray_serve, model=model, kwargs=kwargs, variables=each) for each in (variables, unnamed)
    )

    assert choice(as_shown) == ("long", "forced")
    assert {name: as_shown["fields"][name] for name in kwargs} == kwargs
    assert as_shown["fields"]["max_model_len"] == PROFILES["long"]["max_model_len"]
    # What the page says to set is what the profile would.
    assert as_shown["env"][env.EFFECTIVE_WINDOW] == str(PROFILES["long"]["max_model_len"])
    assert without["fields"]["gpu_memory_utilization"] < kwargs["gpu_memory_utilization"]


# --- words


@cache
def vllm_source() -> str:
    """All of it on one line, the pieces of a string put together."""
    import vllm

    folder = Path(vllm.__file__).parent
    text = "\n".join(file.read_text("utf-8", "replace") for file in sorted(folder.rglob("*.py")))
    return re.sub(r"\s+", " ", re.sub(r"[\"']\s*\n\s*f?[\"']", "", text))


@pytest.mark.parametrize(
    "words",
    [
        "To serve at least one request with the model's max seq len",
        "No available memory for the cache blocks.",
        "exceeds available Mamba cache blocks",
        "Error in memory profiling.",
        "on startup is less than desired",
    ],
)
def test_a_message_is_one_of_vllms(words: str) -> None:
    """And there is a heading for it."""
    assert words in vllm_source()
    assert any(words.rstrip(".") in heading or words in heading for heading in KINDS) or words.startswith(
        "on startup"
    )


def test_vllms_variables_are_there() -> None:
    """Those that the pages name and that are not ours to declare."""
    import vllm.envs

    named = {name for page in PAGES for name in re.findall(r"\bVLLM_[A-Z0-9_]+\b", pages.source(page))}

    assert named
    assert {name for name in named if name not in vllm.envs.environment_variables} == set()


# --- a package in a folder

SEARCH = """
from importlib.metadata import distribution
from vllm.plugins import load_plugins_by_group
found = load_plugins_by_group("vllm.general_plugins")["zenit_hub"]
print(found.__code__.co_filename, distribution("zenit-hub").locate_file(""), sep="\\n")
"""


def test_vllm_finds_a_package_in_a_folder(tmp_path: Path) -> None:
    """``pip install --target`` and ``PYTHONPATH``: vLLM's own search, in front of what else is installed."""
    copy_project(tmp_path / "clone")
    plugins = tmp_path / "plugins"
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(plugins), "."]
    subprocess.run([sys.executable, "-m", "pip", *words], cwd=tmp_path / "clone", check=True)
    told = subprocess.run(
        [sys.executable, "-c", SEARCH],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(plugins), "VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert told.returncode == 0, told.stderr
    assert [Path(line).is_relative_to(plugins) for line in told.stdout.split()] == [True, True]
