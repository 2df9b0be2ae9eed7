"""Tiny checkpoints that a real engine serves: ``python -m tests.rigs.checkpoints FOLDER --kind dense``.

``dense`` is a two-layer Qwen2; ``hybrid`` is a four-layer Qwen3-Next of which three layers are recurrent and
one has full attention and experts, the nearest thing to ZENIT that runs on a CPU. The same specification
gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.rigs.checkpoint_files import (
    TURN_END_ID,
    VOCABULARY_SIZE,
    Tensor,
    write_json,
    write_safetensors,
    write_tokenizer,
)

Config = dict[str, object]
HEAD_DIM = 64  # the CPU engine has no kernel for 16
HIDDEN_STEP = 256
INTERMEDIATE_STEP = 64


@dataclass(frozen=True, slots=True)
class CheckpointSpec:
    """What to build. ``weights_mib`` is the size of the weights, met to about 1 %; ``None`` is 3 to 6 MiB."""

    kind: Literal["dense", "hybrid"] = "dense"
    max_position_embeddings: int = 4096
    section: Mapping[str, object] | None = None
    section_key: str = "lomonosov_serving_profiles"
    architectures_before: tuple[str, ...] = ()
    weights_mib: int | None = None
    seed: int = 0
    extra_config: Mapping[str, object] = field(default_factory=dict)


def build_checkpoint(folder: Path, spec: CheckpointSpec | None = None) -> Path:
    """Write config, weights and tokenizer into the folder (made if missing), which is returned."""
    spec = spec if spec is not None else CheckpointSpec()
    folder.mkdir(parents=True, exist_ok=True)
    config = checkpoint_config(spec)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", {"eos_token_id": TURN_END_ID})
    write_tokenizer(folder, spec.max_position_embeddings)
    write_safetensors(folder / "model.safetensors", checkpoint_tensors(config), spec.seed)
    return folder


def checkpoint_config(spec: CheckpointSpec) -> Config:
    """The ``config.json``; the section stands last, as it was given."""
    widths = _DEFAULT_WIDTHS if spec.weights_mib is None else _widths_for(spec.kind, spec.weights_mib)
    config = _model_config(spec.kind, *widths)
    config["max_position_embeddings"] = spec.max_position_embeddings
    config["architectures"] = [*spec.architectures_before, _ARCHITECTURES[spec.kind]]
    config |= spec.extra_config
    if spec.section is not None:
        config[spec.section_key] = spec.section
    return config


_ARCHITECTURES = {"dense": "Qwen2ForCausalLM", "hybrid": "Qwen3NextForCausalLM"}
_DEFAULT_WIDTHS = (256, 512)  # hidden, intermediate


def _model_config(kind: str, hidden_size: int, intermediate_size: int) -> Config:
    common: Config = {
        "architectures": [_ARCHITECTURES[kind]],
        "model_type": "qwen2" if kind == "dense" else "qwen3_next",
        "dtype": "bfloat16",
        "vocab_size": VOCABULARY_SIZE,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
        "eos_token_id": TURN_END_ID,
    }
    if kind == "dense":
        heads = hidden_size // HEAD_DIM
        return common | {"num_hidden_layers": 2, "num_attention_heads": heads, "num_key_value_heads": 4}
    return common | {
        "num_hidden_layers": 4,
        "full_attention_interval": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": HEAD_DIM,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": HEAD_DIM,
        "linear_value_head_dim": HEAD_DIM,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 128,
        "mlp_only_layers": [0, 1, 2],
    }


def _widths_for(kind: str, weights_mib: int) -> tuple[int, int]:
    """The widest hidden size that leaves room for an MLP at least twice as wide, and that MLP's width.

    Both grow, as in real models: an MLP or a vocabulary that took all the size alone would need more memory
    for its activations than for its weights.
    """
    wanted_bytes = weights_mib * 1024 * 1024
    widths = _DEFAULT_WIDTHS
    hidden = HIDDEN_STEP
    while True:
        narrow, wider = (
            weights_bytes(_model_config(kind, hidden, INTERMEDIATE_STEP * steps)) for steps in (1, 2)
        )
        steps = 1 + round((wanted_bytes - narrow) / (wider - narrow))
        if steps * INTERMEDIATE_STEP < 2 * hidden:
            return widths
        widths = (hidden, steps * INTERMEDIATE_STEP)
        hidden += HIDDEN_STEP


def weights_bytes(config: Config) -> int:
    return sum(tensor.size_bytes for tensor in checkpoint_tensors(config))


def checkpoint_tensors(config: Config) -> Iterator[Tensor]:
    """Every tensor of the model that the config describes, under the names that Hugging Face gives them."""
    number = {name: value for name, value in config.items() if isinstance(value, int)}
    hidden, vocabulary = number["hidden_size"], number["vocab_size"]
    dense = config["model_type"] == "qwen2"
    yield Tensor("model.embed_tokens.weight", (vocabulary, hidden))
    for index in range(number["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        yield Tensor(f"{layer}.input_layernorm.weight", (hidden,), ones=True)
        yield Tensor(f"{layer}.post_attention_layernorm.weight", (hidden,), ones=True)
        last = index == number["num_hidden_layers"] - 1
        if dense:
            yield from _dense_attention(f"{layer}.self_attn", number)
        else:
            yield from (_gated_attention if last else _recurrence)(layer, number)
        if dense or not last:
            yield from _mlp(f"{layer}.mlp", hidden, number["intermediate_size"])
        else:
            yield from _experts(f"{layer}.mlp", number)
    yield Tensor("model.norm.weight", (hidden,), ones=True)
    yield Tensor("lm_head.weight", (vocabulary, hidden))


def _mlp(prefix: str, hidden: int, intermediate: int) -> Iterator[Tensor]:
    yield Tensor(f"{prefix}.gate_proj.weight", (intermediate, hidden))
    yield Tensor(f"{prefix}.up_proj.weight", (intermediate, hidden))
    yield Tensor(f"{prefix}.down_proj.weight", (hidden, intermediate))


def _experts(prefix: str, number: Mapping[str, int]) -> Iterator[Tensor]:
    hidden, experts = number["hidden_size"], number["num_experts"]
    yield Tensor(f"{prefix}.gate.weight", (experts, hidden))
    for expert in range(experts):
        yield from _mlp(f"{prefix}.experts.{expert}", hidden, number["moe_intermediate_size"])
    yield from _mlp(f"{prefix}.shared_expert", hidden, number["shared_expert_intermediate_size"])
    yield Tensor(f"{prefix}.shared_expert_gate.weight", (1, hidden))


def _dense_attention(prefix: str, number: Mapping[str, int]) -> Iterator[Tensor]:
    hidden = number["hidden_size"]
    key_value = number["num_key_value_heads"] * HEAD_DIM
    for name, rows in (("q", hidden), ("k", key_value), ("v", key_value)):
        yield Tensor(f"{prefix}.{name}_proj.weight", (rows, hidden))
        yield Tensor(f"{prefix}.{name}_proj.bias", (rows,))
    yield Tensor(f"{prefix}.o_proj.weight", (hidden, hidden))


def _gated_attention(layer: str, number: Mapping[str, int]) -> Iterator[Tensor]:
    hidden = number["hidden_size"]
    query = number["num_attention_heads"] * HEAD_DIM
    key_value = number["num_key_value_heads"] * HEAD_DIM
    # The query projection gives a gate as wide as the queries beside them.
    for name, rows in (("q", 2 * query), ("k", key_value), ("v", key_value)):
        yield Tensor(f"{layer}.self_attn.{name}_proj.weight", (rows, hidden))
    yield Tensor(f"{layer}.self_attn.o_proj.weight", (hidden, query))
    yield Tensor(f"{layer}.self_attn.q_norm.weight", (HEAD_DIM,), ones=True)
    yield Tensor(f"{layer}.self_attn.k_norm.weight", (HEAD_DIM,), ones=True)


def _recurrence(layer: str, number: Mapping[str, int]) -> Iterator[Tensor]:
    hidden, value_heads = number["hidden_size"], number["linear_num_value_heads"]
    key, value = number["linear_num_key_heads"] * HEAD_DIM, value_heads * HEAD_DIM
    prefix = f"{layer}.linear_attn"
    yield Tensor(f"{prefix}.in_proj_qkvz.weight", (2 * key + 2 * value, hidden))
    yield Tensor(f"{prefix}.in_proj_ba.weight", (2 * value_heads, hidden))
    yield Tensor(f"{prefix}.conv1d.weight", (2 * key + value, 1, number["linear_conv_kernel_dim"]))
    yield Tensor(f"{prefix}.A_log", (value_heads,))
    yield Tensor(f"{prefix}.dt_bias", (value_heads,))
    yield Tensor(f"{prefix}.norm.weight", (HEAD_DIM,), ones=True)
    yield Tensor(f"{prefix}.out_proj.weight", (hidden, value))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build a tiny checkpoint that a real engine serves.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", choices=list(_ARCHITECTURES), default="dense")
    parser.add_argument("--max-position-embeddings", type=int, default=4096)
    parser.add_argument("--section", type=Path, help="JSON file to put into config.json")
    parser.add_argument("--section-key", default="lomonosov_serving_profiles")
    parser.add_argument("--architecture", action="append", default=[], help="to stand before the real one")
    parser.add_argument("--weights-mib", type=int)
    given = parser.parse_args()
    spec = CheckpointSpec(
        kind=given.kind,
        max_position_embeddings=given.max_position_embeddings,
        section=None if given.section is None else json.loads(given.section.read_text(encoding="utf-8")),
        section_key=given.section_key,
        architectures_before=tuple(given.architecture),
        weights_mib=given.weights_mib,
    )
    build_checkpoint(given.folder, spec)


if __name__ == "__main__":
    main()
