"""`vllm serve` with one profile forced: started, watched, asked over HTTP, and ended without a trace."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from zenit_hub import env
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import loopback
from zenit_hub.maintain.measure.engine_log import EngineLog
from zenit_hub.maintain.measure.guarded import Guarded
from zenit_hub.maintain.measure.reasons import parse_failure
from zenit_hub.maintain.measurement import Failure, Phase, PhaseName
from zenit_hub.text import printable

GRACE_S = 20.0
"""What an engine gets to end in order after TERM, before KILL."""

LOG_NAME = "engine.log"
PLUGIN = "zenit_hub"
"""The name of our entry point, as ``VLLM_PLUGINS`` filters by it."""

POLL_INTERVAL_S = 0.1
HEALTH_TIMEOUT_S = 5.0
SETTLE_S = 2.0
DYING_S = 10.0
"""How long an engine that lost a process may take to end by itself; vLLM takes one second, or for ever."""

_NOT_INHERITED = (
    *(env.PROFILE, env.KEEP, env.STRICT, env.HANDED_DOWN, env.MEASURE_REPORT),
    *(name for name in env.PUBLISHED if name != env.ALLOCATOR),
    env.CPU_KV_SPACE,  # vLLM's CPU platform takes it before any pin
    "VLLM_API_KEY",  # of the shell's server; this one is asked without
    *("VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_PREFIX", "VLLM_LOGGING_STREAM"),
)
"""What the shell says about serving is not what the profile says; and the log is read here."""

_SET = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # /collective_rpc, for the engine's own account
    "VLLM_LOGGING_LEVEL": "INFO",  # the phases stand in these lines
    "VLLM_LOGGING_COLOR": "0",  # and are read, also under FORCE_COLOR
    "VLLM_MAX_COMPLETION_PROMPTS": "65536",  # the most sequences that a profile can name
}


class EngineStopped(MeasurementError):
    """The engine ended, hung, or gave no answer.

    ``status``: of its first process, as ``Popen.returncode``; ``None`` where it did not end by itself.
    """

    def __init__(self, failure: Failure, status: int | None = None) -> None:
        self.failure = failure
        self.status = status
        super().__init__(failure.message.rstrip("."), next_step=failure.advice)


@dataclass(frozen=True, slots=True)
class Order:
    """What to start. ``folder`` exists and is ours: the log comes into it.

    ``command``: what starts vLLM (``("<venv>/bin/vllm", "serve")``); ``model`` follows it, then ``arguments``.
    ``environment`` comes on top of this process's. ``cgroup``: the folder of the cgroup that the engine joins.
    """

    command: tuple[str, ...]
    model: str
    profile: str
    folder: Path
    revision: str | None = None
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cgroup: Path | None = None


class Engine(Protocol):
    """One start of the engine. Times count from :meth:`start`.

    ``root_pid``: its first process; all others descend from it. ``ready_after_s``: ``None`` until it answers.
    ``ended_after_s``: when its first process ended, or was told to; 0 until then.
    """

    root_pid: int
    ready_after_s: float | None
    ended_after_s: float

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases so far, in order."""

    def start(self) -> None:
        """Start it and return at once. Raises :class:`EngineStopped` (``cannot_start``)."""

    def wait_until_ready(self, timeout_s: float, on_phase: Callable[[PhaseName], None]) -> None:
        """Until it answers. ``on_phase`` is told each phase as it begins. Raises :class:`EngineStopped`."""

    def enter(self, phase: PhaseName) -> None:
        """The caller's own phases (``workload``, ``ending``) begin."""

    def request(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 120) -> Any:
        """GET, or POST with a body; the JSON of the answer. Raises :class:`EngineStopped`.

        An engine that ended or hung has been ended by then; one that only refused (``no_answer``) still runs.
        """

    def log_text(self) -> str:
        """What it has written; of a very long log the beginning and the end."""

    def end(self) -> None:
        """TERM to its first process, a grace, KILL to all of it; afterwards nothing is left. Harmless twice."""


class ServedEngine:
    """The :class:`Engine` that runs ``order``; inside a ``with`` it is ended on the way out, whatever happened."""

    def __init__(self, order: Order, *, grace_s: float = GRACE_S) -> None:
        self.root_pid = 0
        self.ready_after_s: float | None = None
        self.ended_after_s = 0.0
        self._log = EngineLog(order.folder / LOG_NAME)
        self._port = loopback.free_port()
        self._guarded = Guarded(
            engine_command(order, self._port),
            engine_environment(order, os.environ),
            self._log.path,
            grace_s,
            order.cgroup,
        )
        self._cgroup = order.cgroup
        self._kills_before = 0
        self._began_s = 0.0
        self._phases: list[Phase] = []

    def __enter__(self) -> ServedEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def phases(self) -> tuple[Phase, ...]:
        return tuple(self._phases)

    def start(self) -> None:
        self._began_s = time.monotonic()
        self._kills_before = kernel_kills(self._cgroup)
        self.enter("start")
        try:
            runs = self._guarded.start()
        except OSError as error:
            why = f"the engine's log cannot be written: {error.strerror}"
            raise EngineStopped(Failure("cannot_start", why)) from error
        if not runs:
            self.end()
            raise EngineStopped(Failure("cannot_start", _last_line(self.log_text())))
        self.root_pid = self._guarded.pid

    def wait_until_ready(self, timeout_s: float, on_phase: Callable[[PhaseName], None]) -> None:
        deadline_s = time.monotonic() + timeout_s
        on_phase("start")
        while True:
            ready = self._is_healthy(min(HEALTH_TIMEOUT_S, timeout_s))
            for phase in self._log.new_phases():
                self.enter(phase)
                on_phase(phase)
            if ready:
                break
            if self._guarded.has_ended(POLL_INTERVAL_S):
                raise self._ended()
            lost = self._lost_a_process()
            if lost and self._guarded.has_ended(DYING_S):
                raise self._ended()
            if lost or time.monotonic() > deadline_s:
                raise self._hung(f"no answer within {timeout_s:g} s of the start")
        self.ready_after_s = self._now_s()

    def enter(self, phase: PhaseName) -> None:
        self._phases.append(Phase(phase, self._now_s()))

    def request(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 120) -> Any:
        try:
            return loopback.ask(self._port, path, body, timeout_s)
        except TimeoutError:
            raise self._hung(f"no answer to {path} within {round(timeout_s, 1):g} s") from None
        except loopback.Refused as refusal:
            if refusal.status < 500 or self._survives():
                raise EngineStopped(_no_answer(f"{path} was refused ({refusal.status}): {refusal}")) from None
            why = f"{path} failed ({refusal.status}): {refusal}"
        except (OSError, http.client.HTTPException) as error:
            why = f"{path}: the connection broke ({type(error).__name__})"
        except ValueError:
            why = f"{path} was answered with something that is not JSON"
        if self._guarded.has_ended(DYING_S):
            raise self._ended()
        if self._lost_a_process():
            raise self._hung(why)
        raise EngineStopped(_no_answer(why))

    def log_text(self) -> str:
        return self._log.text()

    def end(self) -> None:
        if self.root_pid and not self.ended_after_s:
            self.ended_after_s = self._now_s()
        self._guarded.end()

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _is_healthy(self, timeout_s: float) -> bool:
        try:
            loopback.ask(self._port, "/health", None, timeout_s)
        except (OSError, http.client.HTTPException, loopback.Refused, ValueError):
            return False
        return True

    def _survives(self) -> bool:
        """Whether it still serves a moment after an error of its own; it may not know yet that it is lost."""
        dead = self._guarded.has_ended(SETTLE_S) or self._lost_a_process()
        return not dead and self._is_healthy(HEALTH_TIMEOUT_S)

    def _lost_a_process(self) -> bool:
        """Whether the kernel killed one for lack of memory; the others may wait for it until the deadline."""
        return kernel_kills(self._cgroup) > self._kills_before

    def _ended(self) -> EngineStopped:
        """Its end, explained by the whole log: the other processes write their last words after the first one's."""
        status = self._guarded.status
        lost = self._lost_a_process()
        self.end()
        return EngineStopped(parse_failure(self.log_text(), -9 if lost else status), status)

    def _hung(self, why: str) -> EngineStopped:
        lost, log = self._lost_a_process(), self.log_text()  # before it is ended: that is what it said last
        self.end()
        failure = parse_failure(log, -9 if lost else None, killed=not lost)
        if failure.kind == "hang":  # with what this side knows of it, and the engine's last words
            words = failure.message.partition("; ")[1:]
            message = "".join((f"{why} (phase {self._phases[-1].name})", *words))
            failure = replace(failure, message=message)
        return EngineStopped(failure)


def engine_command(order: Order, port: int) -> tuple[str, ...]:
    """The words that start it. No secret is among ours: tokens are inherited with the environment."""
    revision = ("--revision", order.revision) if order.revision else ()
    return (
        *(*order.command, order.model),
        *(*revision, *order.arguments),
        *("--host", loopback.HOST, "--port", str(port)),
    )


def engine_environment(order: Order, inherited: Mapping[str, str]) -> dict[str, str]:
    """``inherited`` without what it says about serving and logging, with the profile and what ``order`` says."""
    kept = {name: value for name, value in inherited.items() if name not in _NOT_INHERITED}
    chosen = {**kept, **_SET, env.PROFILE: order.profile, **order.environment}
    if "VLLM_PLUGINS" in chosen:
        names = [name for name in chosen["VLLM_PLUGINS"].split(",") if name.strip()]
        chosen["VLLM_PLUGINS"] = ",".join(dict.fromkeys((*names, PLUGIN)))
    return chosen


def find_command() -> tuple[str, ...]:
    """``vllm serve``, from beside this Python, else from ``PATH``. Raises :class:`MeasurementError`."""
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if os.access(beside, os.X_OK) and beside.is_file() else shutil.which("vllm")
    if found is None:
        raise MeasurementError(
            "there is no `vllm` command beside this Python or on PATH",
            next_step="Measuring starts the real engine: `pip install vllm` into the environment of zenit-hub.",
        )
    return found, "serve"


def kernel_kills(cgroup: Path | None) -> int:
    """How many processes of that cgroup the kernel has killed for lack of memory; 0 where nobody counts.

    The two versions of cgroups count it in two files. Without a cgroup of its own an engine is told nothing:
    the system's counter counts strangers too.
    """
    for counter in ("memory.events", "memory.oom_control") if cgroup else ():
        try:
            found = re.search(r"^oom_kill (\d+)$", Path(cgroup or "", counter).read_text(), re.MULTILINE)
        except OSError:
            continue
        if found is not None:
            return int(found[1])
    return 0


def _no_answer(why: str) -> Failure:
    return Failure("no_answer", why)


def _last_line(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    return printable(lines[-1].removeprefix("zenit-hub: ") if lines else "the engine cannot be started")
