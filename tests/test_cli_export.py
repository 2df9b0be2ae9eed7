"""``zenit-hub export``: which profile, from which machine, what stands on stdout and what is said beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rigs.hub import LoopbackHub
from tests.rigs.reading import Reader, cli, config_file
from tests.stage import GIB, config, needs, unrated
from zenit_hub import stage
from zenit_hub.cli.main import main
from zenit_hub.export import FORMS

pytest_plugins = ("tests.rigs.reading_fixtures",)

CARD = {"name": "Card A", "total_bytes": 32 * GIB, "free_bytes": 30 * GIB, "compute_capability": "9.0"}
MODEL = config(
    {
        "wide": needs(40, 16384, kv_cache_memory_bytes=GIB, gpu_memory_utilization=0.9),
        "narrow": needs(10, 4096, kv_cache_memory_bytes=GIB, noosphere_mode="deep", enforce_eager=False),
        "pair": unrated(8192, tensor_parallel_size=2),
        "broken": {"max_model_len": "many"},
    },
    default_profile="narrow",
)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder, beside it a machine with one card."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(MODEL))
    (tmp_path / "machine.json").write_text(json.dumps({"devices": [CARD], "vllm_version": "0.33.0"}))
    monkeypatch.delenv("ZENIT_SERVING_PROFILE", raising=False)
    return folder


def described(model: Path, **machine: Any) -> list[str]:
    """``--machine`` with the card, or another machine."""
    file = model.parent / "machine.json"
    if machine:
        file.write_text(json.dumps(machine))
    return ["--machine", str(file)]


def yaml_of(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["export", *words, "--format", "vllm-yaml"]) == 0
    values: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return values


def test_fit_is_what_plan_says(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The values and the variables of the same decision, and its command word for word."""
    words = [str(model), *described(model)]
    assert main(["plan", *words, "--json", "--", "-tp", "1"]) == 0
    planned = json.loads(capsys.readouterr().out)

    assert main(["export", *words, "--fit", "--", "--tensor-parallel-size", "1"]) == 0
    command = capsys.readouterr().out

    variables = " ".join(f"{name}={value}" for name, value in planned["env"].items())
    assert planned["profile"] == "narrow"
    assert command == f"{variables} {planned['command'].replace('-tp', '--tensor-parallel-size')}\n"


def test_a_profile_by_name_looks_at_no_memory(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own values, also where nothing of it would fit here; a hint says what that means."""

    def fail() -> Any:
        raise AssertionError("the machine was looked at")

    monkeypatch.setattr(stage, "look_at_cards", fail)
    monkeypatch.setattr(stage, "look_at_host", fail)

    assert main(["export", str(model), "--profile", "wide", "--format", "vllm-yaml"]) == 0

    out, err = capsys.readouterr()
    assert yaml.safe_load(out) == {
        "model": str(model),
        "max-model-len": 16384,
        "kv-cache-memory-bytes": GIB,
        "gpu-memory-utilization": 0.9,
    }
    assert "Hint: no memory was looked at" in err
    assert "[" not in err.replace("[profile_invalid]", "").replace("ZENIT_", "")


def test_a_described_machine_lowers_the_utilization_of_a_named_profile(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clamp is the machine's."""
    machine = described(model, devices=[{**CARD, "free_bytes": 20 * GIB}])
    values = yaml_of(capsys, str(model), "--profile", "wide", *machine)

    assert values["gpu-memory-utilization"] == 0.6015
    assert values["max-model-len"] == 16384


def test_a_profile_for_two_cards_brings_its_layout(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is told that its cards could not be counted: nobody wanted them counted."""
    assert main(["export", str(model), "--profile", "pair"]) == 0

    out, err = capsys.readouterr()
    assert "--tensor-parallel-size 2" in out
    assert "unknown_device_count" not in err


def test_what_the_shell_says_of_profiles_does_not_count(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command line names the profile, or says that memory does."""
    monkeypatch.setenv("ZENIT_SERVING_PROFILE", "off")
    assert yaml_of(capsys, str(model), "--profile", "wide")["max-model-len"] == 16384

    machine = described(model, devices=[CARD], env={"ZENIT_SERVING_PROFILE": "wide"})
    assert yaml_of(capsys, str(model), "--fit", *machine)["max-model-len"] == 4096


@pytest.mark.parametrize("form", FORMS)
def test_variables_are_where_they_can_be(model: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A config file cannot set them: there they are said."""
    assert main(["export", str(model), "--profile", "narrow", "--format", form]) == 0

    out, err = capsys.readouterr()
    assert "ZENIT_NOOSPHERE_MODE=deep" in out
    said = "set them where you start: ZENIT_EFFECTIVE_MAX_MODEL_LEN=4096 ZENIT_NOOSPHERE_MODE=deep" in err
    assert said is (form == "vllm-yaml")


def test_a_variable_of_this_shell_is_not_in_the_export_and_is_named(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here it would stand; where the export goes it is not."""
    machine = described(model, devices=[CARD], env={"ZENIT_NOOSPHERE_MODE": "mine"})

    assert main(["export", str(model), "--fit", *machine]) == 0

    out, err = capsys.readouterr()
    assert "ZENIT_NOOSPHERE_MODE" not in out
    assert "ZENIT_NOOSPHERE_MODE is set here and would stand" in err


def test_secrets_are_left_out_and_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On neither stream."""
    for form in FORMS:
        words = ["--profile", "wide", "--format", form, "--", "--api-key", "geheim", "--port", "80"]
        assert main(["export", str(model), *words]) == 0
        out, err = capsys.readouterr()
        assert "geheim" not in out + err
        assert "--api-key holds a secret and is left out: set VLLM_API_KEY where you start." in err
        assert "port" in out


def test_a_refusal_is_3_and_the_export_is_there_all_the_same(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with ``plan``."""
    machine = described(model, devices=[{**CARD, "free_bytes": 3 * GIB}], env={"ZENIT_SERVING_STRICT": "1"})

    assert main(["export", str(model), "--fit", *machine]) == 3

    out, err = capsys.readouterr()
    assert "--max-model-len 4096" in out
    assert "a strict launch would refuse" in err


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        ({}, ["--fit"], "there is nothing to export: the model carries no serving profiles"),
        (config({}), ["--profile", "p"], "there is nothing to export: the serving profiles cannot be used"),
        ([], ["--fit"], "there is nothing to export: the model's config.json cannot be used"),
        (MODEL, ["--profile", "nope"], "allowed: wide, narrow, pair"),
        (MODEL, ["--profile", "broken"], "it is invalid: max_model_len"),
        (
            MODEL,
            ["--profile", "wide", "--format", "env", "--", "--chat-template", "a b"],
            "words are split there, so it cannot stand in the form env. Take --format vllm-yaml",
        ),
    ],
)
def test_what_cannot_be_written_is_1(
    model: Path, capsys: pytest.CaptureFixture[str], content: object, words: list[str], said: str
) -> None:
    """Nothing is on stdout, so that no half file is served."""
    (model / "config.json").write_text(json.dumps(content))

    assert main(["export", str(model), *described(model), *words]) == 1

    out, err = capsys.readouterr()
    assert out == ""
    assert said in err.splitlines()[-1]


def test_one_of_profile_and_fit_is_needed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And not both; ``off`` is no profile."""
    for words in ([], ["--fit", "--profile", "wide"], ["--fit", "--format", "toml"]):
        with pytest.raises(SystemExit) as ended:
            main(["export", str(model), *words])
        assert ended.value.code == 2
    assert main(["export", str(model), "--profile", "off"]) == 2
    assert capsys.readouterr().out == ""


def test_a_hub_repo_is_named_with_its_commit(repos: LoopbackHub, command: Reader) -> None:
    """In the note, and as the revision to pin; a typed revision is in the export itself."""
    main_commit = repos.create("export/model", {"config.json": config_file()})
    repos.branch("export/model", "q4")
    words = ("export", "export/model", "--profile", "m256k", "--format", "vllm-yaml")
    plain, pinned, theirs = command.together(
        cli(*words), cli(*words, "--revision", "q4"), cli(*words, "--", "--revision", "q4")
    )

    assert plain["out"].startswith(f"# export/model at commit {main_commit}: profile m256k (forced), ")
    assert f"--revision {main_commit} serves the repo as it is there" in plain["err"]
    assert "revision" not in yaml.safe_load(plain["out"])
    for told in (pinned, theirs):
        assert yaml.safe_load(told["out"])["revision"] == "q4"
        assert "--revision" not in told["err"]
