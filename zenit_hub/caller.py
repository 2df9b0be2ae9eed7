"""What the caller said: the engine arguments that are his, and the shape of the launch that follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from zenit_hub import env
from zenit_hub.section import LAYOUT_FIELDS, PIN, WINDOW, Layout

AUTO = -1
"""``--max-model-len auto``: vLLM fits the length itself, after the weights are loaded."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Engine arguments that are the caller's, by EngineArgs' names.

    ``values`` holds those that he typed, also where they equal the default; ``kept`` those that he only
    named in ``ZENIT_SERVING_KEEP``, with what the engine has there; ``yaml_false`` those that his
    ``--config`` file sets to a plain ``false``, which vLLM drops.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    yaml_false: frozenset[str] = frozenset()
    repo: str | None = None

    def has(self, name: str) -> bool:
        return name in self.values or name in self.kept or name in self.yaml_false

    def value(self, name: str, default: Any = None) -> Any:
        if name in self.values:
            return self.values[name]
        if name in self.kept:
            return self.kept[name]
        return False if name in self.yaml_false else default

    @property
    def wants_auto_length(self) -> bool:
        return self.value(WINDOW) in (AUTO, "auto")

    @property
    def requested_tokens(self) -> int | None:
        """The length that the caller asked for, in tokens."""
        value = self.value(WINDOW)
        return value if _is_count(value) else None

    @property
    def pins(self) -> bool:
        """Whether he gives the size of the KV cache himself."""
        return _is_count(self.value(PIN))

    @property
    def layout(self) -> Layout | None:
        """The layout that he set. One size counts for both: ``-tp 2`` alone is 2 × 1."""
        if not any(self.has(name) for name in LAYOUT_FIELDS):
            return None
        tensor, pipeline = (self.value(name) for name in LAYOUT_FIELDS)
        return Layout(tensor if _is_count(tensor) else 1, pipeline if _is_count(pipeline) else 1)

    @property
    def engines(self) -> int:
        """Data-parallel engines of the whole launch."""
        size = self.value("data_parallel_size")
        return size if _is_count(size) else 1

    @property
    def local_engines(self) -> int:
        """Data-parallel engines that this node runs; 0 on a head that only routes."""
        if self.value("data_parallel_rank") is not None:
            return 1
        local = self.value("data_parallel_size_local")
        return local if _is_count(local) or local == 0 else self.engines

    @property
    def uses_ray(self) -> bool:
        return "ray" in (self.value("distributed_executor_backend"), self.value("data_parallel_backend"))

    @property
    def why_apart(self) -> str | None:
        """Why other nodes decide by themselves and cannot see this one's cards; ``None`` where none do."""
        nodes = self.value("nnodes")
        if _is_count(nodes) and nodes > 1:
            return f"--nnodes {nodes}"
        if self.value("headless") is True:
            return "--headless"
        if self.local_engines < self.engines:
            return f"{self.local_engines} of {self.engines} data-parallel engines run here"
        if self.value("distributed_executor_backend") == "external_launcher":
            return "an external launcher starts the ranks"
        return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def kept_values(environment: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that ``ZENIT_SERVING_KEEP`` names, with what the engine has there."""
    return {name: defaults.get(name) for name in env.kept_fields(environment)}
