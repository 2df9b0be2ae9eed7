"""One boot: sample, start the engine, run the workload, ask the engine, end it, look at what was seen."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.bench import Bench
from zenit_hub.maintain.measure.engine_report import (
    EngineReport,
    read_report,
    report_environment,
    report_words,
)
from zenit_hub.maintain.measure.launch import Engine, EngineStopped, Order
from zenit_hub.maintain.measure.samplers import Sampler, Trace
from zenit_hub.maintain.measure.trace import thin
from zenit_hub.maintain.measure.watch import Watch
from zenit_hub.maintain.measure.workload import Shape, run_workload
from zenit_hub.maintain.measurement import Answers, Boot, BootKind, Failure, Outcome, Phase, PhaseName


@dataclass(frozen=True, slots=True)
class Task:
    """What a boot does. ``timeout_s``: until the engine answers, and again until its last token."""

    order: Order
    shape: Shape
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A boot with what only the tool needs of it.

    ``resting_bytes``: taken before the weights were loaded, by the engine's processes themselves.
    """

    boot: Boot
    trace: Trace
    report: EngineReport | None = None
    vllm_version: str | None = None
    resting_bytes: int | None = None

    @property
    def counts(self) -> bool:
        return self.boot.outcome == "answered"

    @property
    def why_not(self) -> str:
        """Why it does not count, in the engine's words where it had some."""
        return self.boot.failure.message if self.boot.failure else "it did not answer"


def run_boot(kind: BootKind, attempt: int, task: Task, bench: Bench, watch: Watch) -> Seen:
    """Whatever the engine does is in the outcome; only what stops the tool itself is raised.

    When this returns or raises, no process of the engine is left and nothing samples.
    """
    sampler = bench.sampler()
    watch.boot_begins(kind, attempt, sampler)
    sampler.start()
    try:
        engine = bench.engine(_reporting(task.order))
        under_way = _UnderWay(engine, sampler, watch)
        try:
            under_way.run(task)
        finally:
            engine.end()
    except BaseException:
        # What ends the tool is said, not what the sampler missed because of it.
        with suppress(MeasurementError):
            sampler.stop()
        raise
    trace = sampler.stop()
    seen = under_way.seen(kind, trace)
    watch.boot_ends(seen.boot)
    return seen


def _reporting(order: Order) -> Order:
    """``order`` for an engine that accounts for its memory."""
    return replace(
        order,
        arguments=(*order.arguments, *report_words()),
        environment={**order.environment, **report_environment(order.folder)},
    )


class _UnderWay:
    """A boot while it goes on."""

    def __init__(self, engine: Engine, sampler: Sampler, watch: Watch) -> None:
        self._engine = engine
        self._sampler = sampler
        self._watch = watch
        self._answers: Answers | None = None
        self._report: EngineReport | None = None
        self._vllm_version: str | None = None
        self._failure: Failure | None = None

    def run(self, task: Task) -> None:
        engine = self._engine
        try:
            engine.start()
            self._sampler.engine_is(engine.root_pid)
            engine.wait_until_ready(task.timeout_s, self._enters)
            engine.enter("workload")
            self._enters("workload")
            self._answers = run_workload(engine, task.shape, task.timeout_s)
            self._sampler.mark("ending")
            engine.enter("ending")
            self._report = read_report(engine, task.order.folder)
            self._vllm_version = _version(engine)
        except EngineStopped as stopped:
            self._failure = stopped.failure

    def _enters(self, name: PhaseName) -> None:
        self._sampler.mark(name)
        self._watch.phase(name)

    def seen(self, kind: BootKind, trace: Trace) -> Seen:
        engine = self._engine
        boot = Boot(
            kind=kind,
            outcome=self._outcome(trace),
            free_bytes=trace.free_bytes,
            drop_bytes=trace.drop_bytes,
            own_peak_bytes=trace.own_peak_bytes,
            foreign_bytes=trace.foreign_bytes,
            ready_after_s=_seconds(engine.ready_after_s),
            ended_after_s=_seconds(engine.ended_after_s) or 0.0,
            answers=self._answers,
            phases=tuple(Phase(phase.name, round(phase.start_s, 2)) for phase in engine.phases),
            samples=tuple(thin(trace.times_s, trace.taken_bytes)),
            sampled_hz=round(trace.sampled_hz, 1),
            failure=self._failure,
        )
        resting_bytes = self._sampler.at_mark_bytes("loading")
        return Seen(boot, trace, self._report, self._vllm_version, resting_bytes)

    def _outcome(self, trace: Trace) -> Outcome:
        if self._failure is not None and self._failure.kind == "disturbed":
            return "disturbed"
        if trace.contaminated:
            return "contaminated"
        return "failed" if self._failure is not None else "answered"


def _version(engine: Engine) -> str | None:
    """What the engine says of itself; the package beside it may be another."""
    try:
        answer = engine.request("/version")
    except EngineStopped:
        return None
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, str) else None


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
