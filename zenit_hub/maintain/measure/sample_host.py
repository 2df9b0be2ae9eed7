"""The host's memory that a launch on vLLM's CPU platform takes: what has to be free so that it can run.

Taken are the anonymous pages of the engine's processes (counted at every sample), the memory that they share
(PSS), the files that they have mapped (PSS outside the loading of weights, where a mapped weight file is only
cache) and what the kernel keeps for them (page tables, stacks). Page cache that nobody maps is not taken: it
goes when memory is wanted. The same is charged to a memory cgroup, so that is also the smallest that will do.
"""

from __future__ import annotations

from collections.abc import Sequence

from zenit_hub.device import look_at_host
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.engine_memory import EngineMemory, Samples
from zenit_hub.maintain.measure.process_memory import Counter
from zenit_hub.maintain.measure.processes import Tree
from zenit_hub.maintain.measure.readings import Allowance, Others, Reading, Room
from zenit_hub.maintain.measure.sampling import ENDING, BackgroundSampler
from zenit_hub.maintain.measure.trace import Moves

LOADING = "loading"

ALWAYS_EXACT = frozenset({LOADING, "workload", ENDING})
"""What is taken at these marks is used by itself, or decides the figure."""

SWAPPED_BYTES = 2**20
"""What is not worth a word."""

EXACT_PERIOD_S, EXACT_SHARE = 1.0, 0.0005
"""PSS between the marks: each second, less often where that takes more than a two-thousandth of a core."""

MARK_SHARE = 0.005
"""PSS at the other marks: where it does not take more than that of the time since the last one."""

OUTSIDE_PERIOD_S, OUTSIDE_SHARE = 0.8, 0.002

MAX_KEPT_OPEN = 256
"""Processes of others whose counters stay open: a process may often have no more than 1024 open files."""


class HostSampler(BackgroundSampler):
    """A :class:`~zenit_hub.maintain.measure.samplers.Sampler` of one device, the host."""

    def __init__(self) -> None:
        super().__init__()
        self._tree = Tree()
        self._engine = EngineMemory()
        self._moves: Moves[int] = Moves(lambda pid: pid)
        self._outside: dict[int, Counter] = {}
        self._phase = ""
        self._exact_since_s = 0.0
        self._exact_allowance = Allowance(EXACT_PERIOD_S, EXACT_SHARE)
        self._outside_allowance = Allowance(OUTSIDE_PERIOD_S, OUTSIDE_SHARE)

    def _begin(self) -> Sequence[Room]:
        machine = look_at_host()
        if machine.host is None:
            raise MeasurementError(f"the host's memory cannot be seen: {machine.host_error}")
        self._tree.scan()
        self._moves.begin(self._look_outside())
        return (Room(machine.host.available_bytes, machine.host.total_bytes),)

    def _reading(self) -> Reading:
        return self._engine.samples()

    def _now_bytes(self) -> Sequence[int]:
        return (self._engine.now_bytes(),)

    def _goes_on_without(self, reading: Reading, answers: int) -> bool:
        """Processes of the engine end: compilers do."""
        self._tree.somebody_ended()
        return isinstance(reading, Samples) and self._engine.without(reading, answers)

    def _engine_is(self, root_pid: int) -> None:
        self._tree.root_is(root_pid)
        self._look(None)

    def _look(self, mark: str | None) -> None:
        self._tree.scan(whole=mark is not None)
        self._engine.follow(self._tree.engine, self._tree.sharing(), at_mark=mark is not None)
        # At the mark that ends the loading the weight files may still be mapped.
        loading = LOADING in (self._phase, mark)
        self._phase = mark or self._phase
        if mark in ALWAYS_EXACT or self._exact_allowance.is_due(MARK_SHARE if mark else None):
            self._exact_allowance.spend(lambda: self._look_exactly(loading))
        if mark is not None or self._outside_allowance.is_due():
            self._outside_allowance.spend(lambda: self._moves.look(self._look_outside()))

    def _look_exactly(self, loading: bool) -> None:
        found = self._engine.look_exactly(with_files=not loading)
        now_s = self._now_s()
        if found.grown_bytes > 0:
            # Nobody knows when, so no sample since the last time may lack it.
            self._lifts.append((self._exact_since_s, now_s, found.grown_bytes))
        self._exact_since_s = now_s
        if found.untold:
            self._note("the kernel does not tell exactly what processes of the engine share")
        if found.swapped_bytes > SWAPPED_BYTES:
            self._note("a part of the engine was swapped out: this machine has too little memory for it")

    def _look_outside(self) -> dict[int, int]:
        """The anonymous memory of the processes that are neither the engine's nor the tool's."""
        for pid in self._outside.keys() - self._tree.others:
            del self._outside[pid]
        figures = {}
        for pid in self._tree.others:
            counter = self._outside.get(pid) or Counter.of(pid)
            if counter is None:
                continue
            figures[pid] = counter.bytes()
            if len(self._outside) < MAX_KEPT_OPEN:
                self._outside[pid] = counter
        return figures

    def _finish(self, worst: int, drop_bytes: int) -> Others:
        self._tree.scan(whole=True)
        self._moves.look(self._look_outside())
        process, moved_bytes = self._moves.furthest(lambda pid: pid not in self._tree.ever_ours)
        # Only the engine's own memory is counted.
        return Others(own_peak_bytes=drop_bytes, foreign_bytes=moved_bytes, foreign_process=process)

    def _let_go(self) -> None:
        self._engine.close()
        self._outside.clear()
