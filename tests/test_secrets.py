"""A secret that was typed reaches no output, however it was typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zenit_hub.cli.main import main
from zenit_hub.export import FORMS

SECRET = "SECRETVALUE"
SECTION = {"profiles": {"p": {"max_model_len": 4096, "requires_free_bytes": 1}}, "default_profile": "p"}
CARD = {"devices": [{"total_bytes": 2**35, "free_bytes": 2**34}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = {"architectures": ["Qwen2ForCausalLM"], "serving_profiles": SECTION}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "card.json").write_text(json.dumps(CARD))
    (tmp_path / "alias.yaml").write_text(f"api-key: *{SECRET}\n")
    (tmp_path / "tag.yaml").write_text(f"api-key: !{SECRET}\n")
    (tmp_path / "number.yaml").write_text(f"api-key: !!int {SECRET}\n")
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["--hf-overrides", json.dumps({"api_key": SECRET})],
        ["--hf-overrides", json.dumps({"password": [SECRET]})],
        ["--hf-overrides", json.dumps({"a": {"secret": {"b": SECRET}}})],
        ["--hf-overrides", f'{{"pass\\u0077ord": "{SECRET}"}}'],
        ["--hf-overrides.api_key", SECRET],
        ["--hf-overrides", f"{{'api_key': '{SECRET}'}}"],
        ["--hf-overrides", f'{{"api_key": "{SECRET}'],
        ["--hf-overrides", f"{{api_key: {SECRET}}}"],
        ["--kv-transfer-config", f"{{s3_secret_access_key:{SECRET}}}"],
        ["--quantization", f"https://u:{SECRET}@h"],
        ["--otlp-traces-endpoint", f"https://u:p@{SECRET}@host"],
        ["--otlp-traces-endpoint", f"https://host/x?token={SECRET}"],
        ["--config", "{folder}/alias.yaml"],
        ["--config", "{folder}/tag.yaml"],
        ["--config", "{folder}/number.yaml"],
    ],
    ids=lambda words: " ".join(words)[:50],
)
def test_behind_the_dashes(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """In the command, in an export, in a warning, in a refusal: nowhere."""
    typed = [word.replace("{folder}", str(folder)) for word in words]
    exports = [["export", "--fit", "--format", form] for form in FORMS]
    for command, *options in (["plan"], ["plan", "--json"], *exports):
        machine = ["--machine", str(folder / "card.json")]
        status = main([command, str(folder), *machine, *options, "--", *typed])
        out, err = capsys.readouterr()
        assert status in (0, 2)
        assert SECRET not in out + err


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "{folder}", "--api-key", SECRET],
        ["plan", "{folder}", f"--api-key={SECRET}"],
        ["validate", "{folder}", "--hf-token", SECRET],
        ["export", "{folder}", "--fit", "--api-key", SECRET],
        ["doctor", "{folder}", "--hf-token", SECRET],
        ["--api-key", SECRET, "plan", "{folder}"],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_before_the_dashes(folder: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The most likely mistake of all."""
    assert main([word.replace("{folder}", str(folder)) for word in words]) == 2
    out, err = capsys.readouterr()
    assert SECRET not in out + err
