"""The longest window that a config allows, worked out as vLLM works it out before it refuses a longer one.

Read in ``_get_and_verify_max_len`` (``vllm/config/model.py``) and ``derive_max_model_len_and_key``
(``vllm/transformers_utils/model_arch_config_convertor.py``) of 0.32.0. What only the model's code can say,
such as the default of a key that the config leaves out, is unknown, and unknown forbids nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_LENGTH_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
_OVERRIDE = "model_max_length"
"""Counts alone where it stands (Command-R)."""

_LONGEST = 10**30
"""Beyond it a length is no length (vLLM's tokenizers write 10³⁰ for "no limit")."""

_ALREADY_SCALED = frozenset({"su", "longrope", "llama3", "yarn", "deepseek_yarn", "deepseek_llama_scaling"})
"""Kinds of rotary scaling whose factor the length key contains already."""


@dataclass(frozen=True, slots=True)
class WindowLimit:
    """``tokens`` that the config allows; ``where`` the key stands that says so, ``factor`` what scales it."""

    tokens: float
    where: tuple[str, ...]
    factor: float


def window_limit(config: Mapping[str, Any]) -> WindowLimit | None:
    """The longest window; ``None`` where the config does not say it."""
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    lengths = {key: _length(text[key]) for key in _LENGTH_KEYS if text.get(key) is not None}
    ropes = [] if "gemma3" in str(text.get("model_type")) else list(_rotary_scalings(text))
    if not lengths or None in lengths.values() or any(_length(_factor_of(rope)) is None for rope in ropes):
        return None
    known = {key: length for key, length in lengths.items() if length is not None}
    key = _OVERRIDE if known.get(_OVERRIDE) else min(known, key=lambda name: known[name])
    factor = 1.0
    for rope in ropes:
        if _kind(rope) not in _ALREADY_SCALED:
            factor = _factor_of(rope)
    where = ("text_config", key) if text is nested else (key,)
    return WindowLimit(max([known[key] * factor, *_yarn_lengths(ropes)]), where, factor)


def _length(value: object) -> float | None:
    """A length or factor that can be worked with."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if 0 <= value <= _LONGEST else None


def _rotary_scalings(text: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The rotary settings under their new or old name, one for each kind of layer where they differ."""
    for name in ("rope_parameters", "rope_scaling"):
        settings = text.get(name)
        if isinstance(settings, dict):
            nested = [value for value in settings.values() if isinstance(value, dict)]
            yield from nested or [settings]
            return


def _kind(rope: Mapping[str, Any]) -> str:
    kind = rope.get("rope_type", rope.get("type"))
    return kind if isinstance(kind, str) else "default"


def _factor_of(rope: Mapping[str, Any]) -> Any:
    """``null`` counts as 1, as in vLLM."""
    factor = rope.get("factor")
    return 1.0 if factor is None else factor


def _yarn_lengths(ropes: list[Mapping[str, Any]]) -> Iterator[float]:
    """What older supported versions make of YaRN: they scale the length before it was stretched."""
    for rope in ropes:
        original = _length(rope.get("original_max_position_embeddings"))
        if _kind(rope) in ("yarn", "deepseek_yarn") and original is not None:
            yield original * _factor_of(rope)
