"""An export read back as its readers read it: the same values as typed and set, and no secret."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.argument_lines import KNOWN_LINES, write_files
from zenit_hub import env
from zenit_hub.apply import Filling
from zenit_hub.arguments import ServeArguments, read_arguments
from zenit_hub.errors import ExportError, UsageError
from zenit_hub.export import (
    FORMS,
    SECRET_VARIABLES,
    Form,
    Launch,
    about_secrets,
    as_command,
    as_environment,
    as_yaml,
    launch_of,
    options_of,
    written,
)

SET = {
    "max_model_len": 262144,
    "kv_cache_dtype": "fp8",
    "kv_cache_memory_bytes": 13_000_000_000,
    "enable_prefix_caching": False,
    "enforce_eager": True,
    "gpu_memory_utilization": 0.7538,
    "swap_space": 0.00001,
}
STAGES = '[{"group":4,"first_pair":0},{"group":2,"clamp":true}]'
VARIABLES = {
    env.EFFECTIVE_WINDOW: "262144",
    env.ALLOCATOR: "expandable_segments:True,roundup_power2_divisions:[256:1,>:8]",
    env.STAGES: STAGES,
}
BOTH = Filling(set=SET, env=VARIABLES)
NOTHING = Filling()
VERSION = "0.33.0"


def launch(words: list[str], filling: Filling = NOTHING, model: str = "org/model") -> Launch:
    typed = read_arguments(words, VERSION)
    return launch_of(model, options_of(typed.ready, VERSION), filling, "a note")


def from_yaml(text: str, folder: Path) -> tuple[str, ServeArguments]:
    """The model and the arguments of ``vllm serve --config FILE``."""
    file = folder / "export.yaml"
    file.write_text(text, encoding="utf-8")
    typed = read_arguments(["--config", str(file)], VERSION)
    return str(yaml.safe_load(text)["model"]), typed


def from_command(text: str) -> tuple[dict[str, str], str, ServeArguments]:
    """The variables, the model and the arguments of a command."""
    words = shlex.split(text)
    start = words.index("vllm")
    assert words[start : start + 2] == ["vllm", "serve"]
    pairs = [word.partition("=") for word in words[:start]]
    return (
        {name: value for name, _, value in pairs},
        words[start + 2],
        read_arguments(words[start + 3 :], VERSION),
    )


def as_docker_reads(text: str) -> dict[str, str]:
    """``docker run --env-file``: the line as it is, without comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def as_systemd_reads(text: str) -> dict[str, str]:
    """``EnvironmentFile=`` without quotes at the start: a backslash takes the next character, blanks at the end go."""
    found = {}
    for name, value in as_docker_reads(text).items():
        assert value[:1] not in ("'", '"')
        found[name] = value.replace("\\", "").strip()
    return found


def as_compose_reads(text: str) -> dict[str, str]:
    """Compose's ``env_file``: a dollar begins a variable, `` #`` a comment."""
    found = {}
    for name, value in as_docker_reads(text).items():
        assert "$" not in value
        found[name] = value.partition(" #")[0].strip()
    return found


def split_by_a_shell(arguments: str, folder: Path) -> list[str]:
    """The words that ``START_WITH_ENV`` gives to ``vllm serve``, by a real shell."""
    (folder / "[1,2]").touch()  # a name that a pattern in JSON would match
    (folder / "1").touch()
    script = f"set -f; printf '%s\\0' ${env.SERVE_ARGUMENTS}"
    child = subprocess.run(
        ["sh", "-c", script],
        env={**os.environ, env.SERVE_ARGUMENTS: arguments},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return child.stdout.split("\0")[:-1]


def read_back(form: Form, text: str, folder: Path) -> dict[str, Any]:
    if form == "vllm-yaml":
        return {name: value for name, value in from_yaml(text, folder)[1].values.items() if name != "model"}
    if form == "command":
        return dict(from_command(text)[2].values)
    words = as_docker_reads(text)[env.SERVE_ARGUMENTS].split()
    return dict(read_arguments(words[1:], VERSION).values)


# --- all that can be typed

REFUSED: dict[tuple[Form, str], str] = {
    ("vllm-yaml", "--middleware a.b --middleware c.d"): "--middleware is there more than once",
    ("vllm-yaml", "-t 2"): "-t has no long name",
    ("vllm-yaml", "-qawq"): "-qawq has no long name",
    ("env", "--max-model-len= 5"): "--max-model-len has a blank in its value",
    ("env", "--max-model-len  256k "): "--max-model-len has a blank in its value",
    (
        "env",
        '--kv-transfer-config {"engine_id": "1k", "kv_connector_extra_config": {"cpu_bytes_to_use": 80m}}',
    ): "--kv-transfer-config has a blank in its value",
}


@pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: " ".join(line)[:60])
def test_what_was_typed_is_read_back_from_every_form(line: list[str], tmp_path: Path) -> None:
    """Suffixes, short forms, switches, lists, JSON, dotted keys, a ``--config`` file; or the form says no by name."""
    write_files(tmp_path)
    words = [word.replace("{dir}", str(tmp_path)) for word in line]
    try:
        typed = read_arguments(words, VERSION)
    except UsageError:
        return
    made = launch(words)
    left_out = {flag.removeprefix("--").replace("-", "_") for flag in made.secrets} | {"model", "config"}
    expected = {name: value for name, value in typed.values.items() if name not in left_out}

    for form in FORMS:
        refused = REFUSED.get((form, " ".join(line)))
        if refused is None:
            assert read_back(form, written(made, form), tmp_path) == expected
        else:
            with pytest.raises(ExportError, match=f"^{re.escape(refused)}"):
                written(made, form)


# --- what a profile sets


@pytest.mark.parametrize("form", FORMS)
def test_what_the_profile_sets_is_read_back_from_every_form(form: Form, tmp_path: Path) -> None:
    """Numbers to the last digit, a false as vLLM keeps it, and no word of the caller's is lost beside them."""
    values = read_back(form, written(launch(["--port", "8001"], BOTH), form), tmp_path)

    assert values == {**SET, "port": 8001}


def test_the_yaml_names_the_model_first_and_the_variables_as_comments(tmp_path: Path) -> None:
    """A false is ``no-…: true``: vLLM drops a plain one."""
    text = as_yaml(launch([], BOTH))

    assert text.splitlines() == [
        "# a note",
        "# Start: vllm serve --config FILE",
        "# Variables of the profile, which this file cannot set; set them where you start:",
        "#   ZENIT_EFFECTIVE_MAX_MODEL_LEN=262144",
        "#   PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True,roundup_power2_divisions:[256:1,>:8]'",
        f"#   ZENIT_POSITION_STAGES='{STAGES}'",
        "model: org/model",
        "max-model-len: 262144",
        "kv-cache-dtype: fp8",
        "kv-cache-memory-bytes: 13000000000",
        "no-enable-prefix-caching: true",
        "enforce-eager: true",
        "gpu-memory-utilization: 0.7538",
        "swap-space: 1.0e-05",
    ]
    assert from_yaml(text, tmp_path)[1].yaml_false == frozenset()


def test_the_command_has_the_variables_in_front() -> None:
    """Quoted for a shell."""
    variables, model, _ = from_command(as_command(launch([], BOTH)))

    assert (variables, model) == (VARIABLES, "org/model")


@pytest.mark.parametrize("reads", [as_docker_reads, as_systemd_reads, as_compose_reads])
def test_an_environment_file_is_read_alike(reads: Any) -> None:
    """JSON keeps its quotes, a list its brackets, whoever reads."""
    overrides = '{"rope": [1, 2], "name": "x"}'
    found = reads(as_environment(launch(["--hf-overrides", overrides], BOTH)))

    assert {name: found[name] for name in VARIABLES} == VARIABLES
    model, *words = found[env.SERVE_ARGUMENTS].split()
    values = read_arguments(words, VERSION).values
    assert (model, values["hf_overrides"]) == ("org/model", json.loads(overrides))


def test_a_shell_splits_the_arguments_at_blanks_and_nowhere_else(tmp_path: Path) -> None:
    """No pattern of a JSON list meets a file's name, no quote goes."""
    text = as_environment(launch(["--hf-overrides", '{"a":[1,2]}', "--allowed-origins", '["*"]'], BOTH))
    arguments = as_docker_reads(text)[env.SERVE_ARGUMENTS]

    assert split_by_a_shell(arguments, tmp_path) == arguments.split(" ")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--chat-template", "a b"], "--chat-template has a blank"),
        (["--hf-overrides", '{"a": "b c"}'], "--hf-overrides has a blank"),
        (["--chat-template", "a\\b"], "ZENIT_SERVE_ARGS (at 'template a\\\\b')"),
        (["--chat-template", "$x"], "ZENIT_SERVE_ARGS (at '-template $x')"),
        (["--chat-template", "#x"], "ZENIT_SERVE_ARGS"),
    ],
)
def test_what_would_be_read_differently_is_refused(words: list[str], what: str) -> None:
    """With the option, and with the forms that can hold it; those do."""
    with pytest.raises(ExportError) as refused:
        as_environment(launch(words))

    assert str(refused.value).startswith(what)
    assert "Take --format vllm-yaml or --format command" in str(refused.value)
    assert from_command(as_command(launch(words)))[2].values == read_arguments(words, VERSION).values


def test_values_that_begin_with_a_dash_stay_values() -> None:
    """Also in the middle of an environment file; a YAML cannot hold them."""
    made = launch(["--served-model-name=--x", "--host=", "--seed", "-5"])

    words = as_docker_reads(as_environment(made))[env.SERVE_ARGUMENTS].split()
    assert read_arguments(words[1:], VERSION).values == {
        "served_model_name": ["--x"],
        "host": None,
        "seed": -5,
    }
    with pytest.raises(ExportError, match="--served-model-name has a value that begins with a dash"):
        as_yaml(made)


def test_of_an_option_and_its_opposite_the_later_one_counts(tmp_path: Path) -> None:
    """In a YAML too, where both are keys."""
    words = ["--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-prefix-caching"]

    assert read_back("vllm-yaml", as_yaml(launch(words)), tmp_path) == {"enable_prefix_caching": True}


def test_words_of_a_newer_vllm_are_passed_on(tmp_path: Path) -> None:
    """With as many values as were typed."""
    words = ["--brand-new", "a", "b", "--brand-newer=c", "--brand-newest"]

    assert yaml.safe_load(as_yaml(launch(words))) == {
        "model": "org/model",
        "brand-new": ["a", "b"],
        "brand-newer": "c",
        "brand-newest": True,
    }
    with pytest.raises(ExportError, match="-Z has no long name"):
        as_yaml(launch(["-Z", "1"]))


# --- secrets

SECRETS = [
    ("--api-key", "geheim"),
    ("--api-key=geheim",),
    ("--hf-token", "geheim"),
    ("--hf_token=geheim",),
    ("--model-loader-extra-config", '{"s3_secret_access_key": "geheim"}'),
    ("--model-loader-extra-config.s3_secret_access_key", "geheim"),
    ("--otlp-traces-endpoint", "http://geheim@host"),
    ("--some-plugin-token", "geheim"),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", SECRETS, ids=lambda words: words[0])
def test_no_secret_is_written(words: tuple[str, ...], form: Form) -> None:
    """The whole option is left out and named, with the variable that does the same where there is one."""
    made = launch([*words, "--port", "80"])
    text = written(made, form)

    assert "geheim" not in text
    assert "…" not in text
    assert "port" in text
    (said,) = about_secrets(made)
    flag = made.secrets[0]
    assert said.startswith(f"{flag} holds a secret")
    assert SECRET_VARIABLES.get(flag, "type it where you start") in said
    assert form == "command" or f"# {said}" in text


def test_a_secret_in_a_config_file_is_left_out_too(tmp_path: Path) -> None:
    """The file's other values are taken in."""
    (tmp_path / "own.yaml").write_text("api-key: geheim\nport: 80\n")
    made = launch(["--config", str(tmp_path / "own.yaml")])

    assert made.secrets == ("--api-key",)
    assert "geheim" not in "".join(written(made, form) for form in FORMS)
    assert yaml.safe_load(as_yaml(made)) == {"model": "org/model", "port": 80}


def test_a_command_without_its_key_starts_nothing(tmp_path: Path) -> None:
    """A server that lost its key would be open to everybody."""
    (tmp_path / "vllm").write_text('#!/bin/sh\necho "started with $VLLM_API_KEY"\n')
    (tmp_path / "vllm").chmod(0o755)
    command = as_command(launch(["--api-key", "geheim"]))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", command],
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    without, given = run(), run(VLLM_API_KEY="k")
    assert (without.returncode != 0, without.stdout) == (True, "")
    assert "VLLM_API_KEY" in without.stderr
    assert given.stdout == "started with k\n"
