"""What stands behind `vllm serve MODEL`. That vLLM reads it alike: engine/test_arguments_parity.py."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from tests.argument_lines import KNOWN_LINES, write_files
from zenit_hub.arguments import read_arguments
from zenit_hub.errors import UsageError

SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "quantization")


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("--max-model-len 256k", {"max_model_len": 256_000}),
        ("--max_model_len=256K", {"max_model_len": 262_144}),
        ("--max-model-len 25.6k", {"max_model_len": 25_600}),
        ("--max-model-len 1m", {"max_model_len": 1_000_000}),
        ("--max-model-len 1M", {"max_model_len": 1_048_576}),
        ("--max-model-len auto", {"max_model_len": -1}),
        ("--max-model-len -1", {"max_model_len": -1}),
        ("--max-model-len 1 --max-model-len 2", {"max_model_len": 2}),
        ("--max-model 7", {"max_model_len": 7}),
        ("--kv-cache-memory-bytes 5g", {"kv_cache_memory_bytes": 5 * 10**9}),
        ("--kv-cache-memory-bytes 5G", {"kv_cache_memory_bytes": 5 * 2**30}),
        ("--kv-cache-memory-bytes None", {"kv_cache_memory_bytes": None}),
        ("--max-num-batched-tokens 0", {"max_num_batched_tokens": 0}),
        ("-tp 2 -pp=3 -dp 4 -q fp8", dict(zip(SIZES, (2, 3, 4, "fp8"), strict=True))),
        (
            "--no-enable-prefix-caching --async-scheduling",
            {"enable_prefix_caching": False, "async_scheduling": True},
        ),
        ("--hf-token", {"hf_token": True}),
        ("--hf-token abc", {"hf_token": "abc"}),
        ("--api-key a b --port 80", {"api_key": ["a", "b"], "port": 80}),
        ("--device-ids 0,GPU-5", {"device_ids": [0, "GPU-5"]}),
        ("--swap-space 4", {"swap_space": 4.0}),
        ('--limit-mm-per-prompt {"image":4}', {"limit_mm_per_prompt": {"image": 4}}),
        (
            "--hf-overrides.a.b 1k --hf-overrides.c+ x,y",
            {"hf_overrides": {"a": {"b": 1000}, "c": ["x", "y"]}},
        ),
        ("-cc.mode=3 -O3", {"compilation_config": {"mode": 3}, "optimization_level": "3"}),
        ("", {}),
    ],
)
def test_words_become_the_values_that_vllm_makes_of_them(line: str, values: dict[str, object]) -> None:
    """Suffixes, short forms, underscores, abbreviations, switches, lists, JSON, dotted keys."""
    assert dict(read_arguments(line.split()).values) == values


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("--max-model-len banana", "got 'banana'; allowed: a whole number, auto or -1"),
        ("--max-num-batched-tokens 2.5K", "--max-num-batched-tokens"),
        ("--max-num-seqs 4k", "without a suffix"),
        ("--max-model-len", "expected one argument"),
        ("--max-num 7", "could match --max-num-batched-tokens, --max-num-seqs"),
        ("--enforce-eager true", "a switch takes no value"),
        ("--enforce-eager=true", "ignored explicit argument"),
        ("--dtype float17", "allowed: auto, bfloat16"),
        ("--kv-cache-dtype fp9", "allowed: auto, bfloat16"),
        ("--hf-overrides {", "a JSON object in braces"),
        ('--kv-transfer-config {"a":', "a JSON object"),
        ("--compilation-config 3", "a JSON object"),
        ("--gpu-memory-utilization -0.5", "expected one argument"),
        ("--gpu-memory-utilization -0.5 --port 80", "dotted key"),
        ("-tp2", "-tp2 is no option"),
        ("--model other", "--model beside the model"),
        ("-h", "vllm serve --help"),
        ("-- --port 80", "--"),
    ],
)
def test_what_vllm_refuses_is_a_usage_error_of_one_line(line: str, part: str) -> None:
    """What, got, allowed, next: never an exit, a traceback or output."""
    with pytest.raises(UsageError) as caught:
        read_arguments(line.split())
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_status == 2


@pytest.mark.parametrize("line", KNOWN_LINES, ids=lambda line: " ".join(line)[:50])
def test_every_line_is_read_or_refused_and_nothing_else(line: list[str], tmp_path: Path) -> None:
    """No other exception gets out, whatever is typed."""
    write_files(tmp_path)
    words = [word.replace("{dir}", str(tmp_path)) for word in line]
    with contextlib.suppress(UsageError):
        assert read_arguments(words).words == tuple(words)


def test_unknown_options_pass_by_with_their_values() -> None:
    """A plug-in's option, or a newer vLLM's, does not stop the reading of the others."""
    typed = read_arguments(["--of-a-plugin", "x", "y", "-z", "--max-model-len", "5", "--its.member", "1"])
    assert dict(typed.values) == {"max_model_len": 5}
    assert typed.unknown == ("--of-a-plugin", "x", "y", "-z", "--its", '{"member": 1}')


def test_an_option_counts_only_in_the_versions_that_have_it() -> None:
    """0.33 pairs --enable-x with --disable-x; in 0.32 the latter is unknown."""
    words = ["--disable-prefix-caching"]
    assert dict(read_arguments(words, "0.33.0").values) == {"enable_prefix_caching": False}
    assert read_arguments(words, "0.32.0+cpu").unknown == ("--disable-prefix-caching",)
    assert dict(read_arguments(["--enable-custom-all-reduce"]).values) == {"disable_custom_all_reduce": False}


def test_a_newer_vllm_may_allow_more_than_we_know() -> None:
    """Values that no known version allows are refused for the known ones only."""
    assert read_arguments(["--kv-cache-dtype", "fp2"], "0.35.0").values == {"kv_cache_dtype": "fp2"}
    assert read_arguments(["--dtype", "fp2"], "0.35.0").values == {"dtype": "fp2"}
    with pytest.raises(UsageError):
        read_arguments(["--kv-cache-dtype", "octave_k3v3"], "0.32.0")


def test_a_config_file_stands_in_front_of_the_typed_words(tmp_path: Path) -> None:
    """The line beats the file, wherever --config stands in it."""
    write_files(tmp_path)
    typed = read_arguments(["--max-model-len", "1M", "--config", str(tmp_path / "flat.yaml")])
    assert dict(typed.values) == {
        "max_model_len": 1_048_576,
        "gpu_memory_utilization": 0.92,
        "enable_prefix_caching": False,
    }


def test_a_plain_false_in_the_file_is_kept_apart(tmp_path: Path) -> None:
    """vLLM drops it: it is no value, and known to have been there."""
    write_files(tmp_path)
    config = ["--config", str(tmp_path / "false.yaml")]
    typed = read_arguments(config)
    assert dict(typed.values) == {"max_num_seqs": 1}
    assert typed.yaml_false == {"enable_prefix_caching", "headless"}
    assert read_arguments([*config, "--enable-prefix-caching"]).yaml_false == {"headless"}


def test_config_with_an_equals_sign_reads_no_file(tmp_path: Path) -> None:
    """vLLM looks for the bare word, and forgets this one."""
    assert dict(read_arguments([f"--config={tmp_path}/missing.yaml"]).values) == {
        "config": f"{tmp_path}/missing.yaml"
    }


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("missing.yaml", "cannot be read: No such file"),
        ("settings.json", "takes YAML only"),
        ("broken.yaml", "is no YAML"),
        ("empty.yaml", "holds no settings"),
        ("list.yaml", "holds no settings"),
        ("numbers.yaml", "is no option's name"),
        ("date.yaml", "is no JSON"),
        ("bad_value.yaml", "--max-model-len"),
    ],
)
def test_a_config_file_that_vllm_cannot_use_is_named(tmp_path: Path, name: str, part: str) -> None:
    """A traceback in vLLM is a line here."""
    write_files(tmp_path)
    with pytest.raises(UsageError, match=part):
        read_arguments(["--config", str(tmp_path / name)])


@pytest.mark.parametrize(
    "line", ["--api=SESAME", "--api_k=SESAME more", "--enforce-eager=1 --hf-token=SESAME x"]
)
def test_a_refusal_shows_no_secret(line: str) -> None:
    """What is wrong with the line is said without what must not be read."""
    with pytest.raises(UsageError) as caught:
        read_arguments(line.split())
    assert "SESAME" not in str(caught.value)
    assert "vllm serve would refuse this" in str(caught.value)
    assert "SESAME" not in repr(read_arguments(["--api-key", "SESAME"]))


def test_reading_the_command_line_imports_little() -> None:
    """Neither vLLM nor PyYAML nor the Hub's client, which alone take longer than the whole plan."""
    code = (
        "import sys, zenit_hub.arguments as a, zenit_hub.compat; a.read_arguments(['--max-model-len', '1k']);"
        "print(sorted({'vllm', 'torch', 'yaml', 'huggingface_hub', 'packaging', 'pydantic'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
