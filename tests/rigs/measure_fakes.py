"""Named fakes for the rules of measuring: an engine without processes, a sampler without memory, a small device.

What they stand in for runs for real in ``tests/engine`` and with the stub engine; here the order of boots,
the retries and the arithmetic are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.bench import Bench
from zenit_hub.maintain.measure.launch import EngineStopped, Order
from zenit_hub.maintain.measure.samplers import Trace
from zenit_hub.maintain.measurement import Failure, Phase, PhaseName

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True)
class FakeBoot:
    """What one start of the engine does. ``needs_bytes``: refused where less is left; ``drop_bytes``: what is seen."""

    drop_bytes: int = 2 * GIB
    foreign_bytes: int | None = 0
    failure: Failure | None = None
    needs_bytes: int = 0
    needed_kv_bytes: int | None = 256 * MIB


@dataclass
class FakeLab:
    """Gives out engines and samplers boot by boot, and remembers what was started."""

    boots: Sequence[FakeBoot]
    confinable: bool = True
    orders: list[Order] = field(default_factory=list)
    held_bytes: list[int] = field(default_factory=list)
    ended: int = 0
    left_bytes: int | None = None
    smallest_bytes: int = 0

    @property
    def bench(self) -> Bench:
        confiner: Any = FakeConfiner(self) if self.confinable else "nothing here can make the device small"
        return Bench(lambda order: FakeEngine(self, order), lambda: FakeSampler(self), confiner)

    @property
    def now(self) -> FakeBoot:
        """The boot that is under way, or comes next."""
        return self.boots[min(len(self.orders), len(self.boots)) - 1 if self.orders else 0]


@dataclass
class FakeConfiner:
    lab: FakeLab
    method: Literal["cgroup", "ballast"] = "ballast"

    @contextmanager
    def hold(self, free_bytes: int) -> Iterator[Path | None]:
        if free_bytes < self.lab.smallest_bytes:
            raise MeasurementError("the ballast cannot take all but so little")
        self.lab.held_bytes.append(free_bytes)
        self.lab.left_bytes = free_bytes
        try:
            yield None
        finally:
            self.lab.left_bytes = None


@dataclass
class FakeEngine:
    lab: FakeLab
    order: Order
    root_pid: int = 1
    ready_after_s: float | None = None
    ended_after_s: float = 0.0
    phases: tuple[Phase, ...] = (Phase("start", 0.0),)

    def start(self) -> None:
        self.lab.orders.append(self.order)

    def wait_until_ready(self, timeout_s: float, on_phase: Callable[[PhaseName], None]) -> None:
        boot = self.lab.now
        on_phase("loading")
        if self.lab.left_bytes is not None and self.lab.left_bytes < boot.needs_bytes:
            raise EngineStopped(Failure("out_of_memory", "CUDA out of memory"))
        if boot.failure is not None:
            raise EngineStopped(boot.failure)
        self.ready_after_s = 1.0

    def enter(self, phase: PhaseName) -> None:
        self.phases = (*self.phases, Phase(phase, 1.0))

    def request(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 120) -> Any:
        if path == "/v1/models":
            return {"data": [{"id": "fake"}]}
        if path == "/version":
            return {"version": "0.32.0"}
        if body is None or "prompt" not in body:
            raise EngineStopped(Failure("no_answer", f"nothing at {path}"))
        prompt = body["prompt"]
        prompts = prompt if isinstance(prompt[0], list) else [prompt]
        generated = int(body["max_tokens"]) * len(prompts)
        return {
            "choices": [{"index": i, "finish_reason": "length", "text": ""} for i in range(len(prompts))],
            "usage": {
                "prompt_tokens": sum(len(one) for one in prompts),
                "completion_tokens": generated,
                "total_tokens": 0,
            },
        }

    def log_text(self) -> str:
        return ""

    def end(self) -> None:
        self.ended_after_s = 2.0
        self.lab.ended += 1


@dataclass
class FakeSampler:
    lab: FakeLab

    def start(self) -> None: ...

    def engine_is(self, root_pid: int) -> None: ...

    def mark(self, name: str) -> None: ...

    def taken_now_bytes(self) -> int:
        return 0

    def at_mark_bytes(self, name: str) -> int | None:
        return 100 * MIB if name == "loading" else None

    def stop(self) -> Trace:
        boot = self.lab.now
        return Trace(
            times_s=[0.0, 1.0],
            taken_bytes=[0, boot.drop_bytes],
            free_bytes=20 * GIB,
            total_bytes=24 * GIB,
            drop_bytes=boot.drop_bytes,
            foreign_bytes=boot.foreign_bytes,
            foreign_process="another process (pid 777)" if boot.foreign_bytes else None,
            sampled_hz=125.0,
        )
