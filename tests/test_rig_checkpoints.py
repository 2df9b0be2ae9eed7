"""The tiny checkpoints: the same bytes each time, the config as asked, and files that others can read."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
from tokenizers import Tokenizer

from tests.rigs.checkpoint_files import TRAINING_TEXT, VOCABULARY_SIZE
from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint, checkpoint_config, weights_bytes

ROOT = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
def test_another_process_writes_the_same_bytes(tmp_path: Path, kind: Literal["dense", "hybrid"]) -> None:
    command = [sys.executable, "-m", "tests.rigs.checkpoints", "--kind", kind]
    for name in ("one", "two"):
        seeded = {**os.environ, "PYTHONHASHSEED": str(len(name) + ord(name[0]))}
        subprocess.run([*command, str(tmp_path / name)], check=True, cwd=ROOT, env=seeded)
    first = digests(tmp_path / "one")
    assert first == digests(tmp_path / "two")
    assert sorted(first) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_weights_are_those_of_this_very_generator(tmp_path: Path) -> None:
    """A change of Python's random module or of ours would make figures of different days incomparable."""
    weights = build_checkpoint(tmp_path) / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == (
        "801d682efb7858824b18ef7e57ddfe5e7b859fb0b1e9bbdb4fb2a6792ceeb792"
    )


def test_the_weights_file_is_laid_out_as_safetensors_wants_it(tmp_path: Path) -> None:
    data = (build_checkpoint(tmp_path, CheckpointSpec(kind="hybrid")) / "model.safetensors").read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + header_bytes])
    assert header_bytes % 8 == 0
    assert header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for entry in header.values():
        assert entry["data_offsets"][0] == end
        end = entry["data_offsets"][1]
    assert end == len(data) - 8 - header_bytes


def test_random_weights_are_finite_and_of_the_usual_size(tmp_path: Path) -> None:
    data = (build_checkpoint(tmp_path) / "model.safetensors").read_bytes()
    header_bytes = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8 : 8 + header_bytes])["lm_head.weight"]["data_offsets"]
    high_bytes = data[8 + header_bytes + begin : 8 + header_bytes + end][1::2]
    assert set(high_bytes) == {0x3C, 0xBC}, "magnitudes from 2^-7 to 2^-5, of either sign"


def test_the_section_stands_in_the_config_as_it_was_given() -> None:
    section = {"profiles": {"a": {"max_model_len": 2048}}, "default_profile": "a"}
    spec = CheckpointSpec(
        max_position_embeddings=1_010_000,
        section=section,
        section_key="serving_profiles",
        architectures_before=("LomonosovZenitAltayForConditionalGeneration",),
    )
    config = checkpoint_config(spec)
    assert config["serving_profiles"] == section
    assert config["max_position_embeddings"] == 1_010_000
    assert config["architectures"] == ["LomonosovZenitAltayForConditionalGeneration", "Qwen2ForCausalLM"]


def test_no_section_means_no_key(tmp_path: Path) -> None:
    config = json.loads((build_checkpoint(tmp_path) / "config.json").read_text(encoding="utf-8"))
    assert not [key for key in config if "serving_profiles" in key]


@pytest.mark.parametrize("kind", ["dense", "hybrid"])
@pytest.mark.parametrize("weights_mib", [16, 64, 300, 1000])
def test_the_weights_have_the_size_that_was_asked_for(
    kind: Literal["dense", "hybrid"], weights_mib: int
) -> None:
    config = checkpoint_config(CheckpointSpec(kind=kind, weights_mib=weights_mib))
    assert weights_bytes(config) == pytest.approx(weights_mib * MIB, rel=0.02)


def test_the_tokenizer_gives_every_text_back_and_has_a_token_for_every_id(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(build_checkpoint(tmp_path) / "tokenizer.json"))
    text = f"{TRAINING_TEXT} Ёлка, 雪, 🏔"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert tokenizer.get_vocab_size() == VOCABULARY_SIZE
    assert len(tokenizer.encode(TRAINING_TEXT).ids) < len(TRAINING_TEXT) / 2
