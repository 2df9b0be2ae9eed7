"""What is kept of a boot, whose processes are whose, and a loop that never ends silently."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rigs.holder import Holder
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import sampling
from zenit_hub.maintain.measure.processes import Tree, name_of, read_process
from zenit_hub.maintain.measure.readings import Allowance, Others, Reading, Room
from zenit_hub.maintain.measure.samplers import FOREIGN_LIMIT_BYTES, Trace
from zenit_hub.maintain.measure.sampling import BackgroundSampler
from zenit_hub.maintain.measure.trace import SAMPLES_KEPT, Curves, Moves, thin

MIB = 2**20


# --- the curve


@given(st.lists(st.integers(0, 2**45), min_size=1, max_size=200), st.integers(4, 60))
def test_a_thin_curve_keeps_its_ends_and_its_extremes(values: list[int], most: int) -> None:
    """Never more than asked for, in order, and nothing that was not there."""
    times_s = [index / 8 for index in range(len(values))]
    pairs = thin(times_s, values, most)

    assert len(pairs) <= most
    assert list(pairs) == sorted(set(pairs))
    assert {*pairs} <= {*zip(times_s, values, strict=True)}
    assert {pairs[0], pairs[-1]} == {(times_s[0], values[0]), (times_s[-1], values[-1])}
    assert max(taken for _, taken in pairs) == max(values)
    assert min(taken for _, taken in pairs) == min(values)


def test_a_peak_of_one_sample_survives_an_hour() -> None:
    """A hundred samples a second."""
    values = [7] * 360_000
    values[123_456] = 8

    pairs = thin(range(len(values)), values)

    assert len(pairs) <= SAMPLES_KEPT
    assert (123_456, 8) in pairs


def test_no_samples_make_no_curve() -> None:
    """An engine that did not start."""
    assert thin([], []) == ()
    assert Curves(1).peaks_bytes() == (0,)


def test_peaks_end_with_the_last_token_and_lifts_with_their_time() -> None:
    """Per device; the bounds of a lift are its first second, and the one that is no longer in it."""
    curves = Curves(2)
    for second, taken in enumerate([(1, 9), (5, 8), (9, 7)]):
        curves.append(second, taken)
    curves.lift(1, 2, 100)

    assert curves.peaks_bytes(until_s=1) == (105, 108)
    assert [list(curve) for curve in curves.taken_bytes] == [[1, 105, 9], [9, 108, 7]]
    assert curves.largest_gap_s() == 1


# --- moves


@pytest.mark.parametrize(
    ("before", "looks", "expected"),
    [
        ({1: 10}, [{1: 10}], (None, 0)),
        ({1: 10}, [{1: 90}, {1: 10}], ("1", 80)),
        ({1: 90}, [{1: 10}], ("1", 80)),
        ({1: 90}, [{}], ("1", 90)),
        ({}, [{2: 70}, {}], ("2", 70)),
        ({1: 10}, [{1: 60, 2: 40}], ("1", 50)),
    ],
)
def test_a_move_is_the_distance_from_where_it_was(
    before: dict[int, int], looks: list[dict[int, int]], expected: tuple[str | None, int]
) -> None:
    """Up, down, from nothing or to nothing; the largest one of any one process."""
    moves: Moves[int] = Moves(lambda key: 2**30 + key)
    moves.begin(before)
    for look in looks:
        moves.look(look)

    name, size_bytes = moves.furthest()
    assert size_bytes == expected[1]
    assert name == (None if expected[0] is None else f"pid {2**30 + int(expected[0])}")


def test_moves_of_those_that_do_not_count_are_left_out() -> None:
    """Who turns out to be the engine's was no stranger; who was gone when it was asked has its name still."""
    moves: Moves[int] = Moves(lambda pid: pid)
    moves.begin({})
    with Holder() as other:
        moves.look({other.pid: FOREIGN_LIMIT_BYTES + 1, 1: 2**40})
    name, size_bytes = moves.furthest(lambda pid: pid != 1)

    assert size_bytes == FOREIGN_LIMIT_BYTES + 1
    assert name is not None
    assert name.endswith(f"(pid {other.pid})")


@pytest.mark.parametrize(
    ("foreign_bytes", "contaminated"),
    [(None, False), (0, False), (16 * MIB, False), (16 * MIB + 1, True)],
)
def test_sixteen_mib_are_allowed(foreign_bytes: int | None, contaminated: bool) -> None:
    """More than that, and nothing is published."""
    assert Trace([], [], 0, 0, foreign_bytes=foreign_bytes).contaminated is contaminated


# --- whose processes are whose


@pytest.fixture
def holder() -> Iterator[Holder]:
    with Holder() as process:
        yield process


def test_the_engines_the_tools_and_others_are_told_apart(holder: Holder) -> None:
    """Before the engine is known, its processes are the tool's like all that descend from it."""
    with Holder(stranger=True) as stranger:
        tree = Tree()
        tree.scan()
        assert {holder.pid, os.getpid()} <= tree.tool
        assert stranger.pid in tree.others

        holder.tell("start", 1)
        tree.root_is(holder.pid)
        tree.scan()

        assert tree.engine.keys() == {holder.pid, int(holder.tell("newest"))}
        assert os.getpid() in tree.tool
        assert not tree.engine.keys() & tree.tool
        assert {stranger.pid, os.getppid()} <= tree.others
        assert not {stranger.pid, os.getppid()} & tree.ever_ours


def test_a_fork_is_the_engines_once_it_is_no_longer_on_its_way_to_another_program(holder: Holder) -> None:
    """Between fork and exec it shows all of its parent's memory as its own."""
    tree = Tree()
    tree.root_is(holder.pid)
    tree.scan()
    holder.tell("hold", 1)
    holder.tell("fork", 0)
    child = int(holder.tell("newest"))

    tree.scan()
    assert child not in tree.engine
    assert child not in tree.others
    tree.scan()
    assert {*tree.sharing()} == {holder.pid, child}
    holder.tell("end")
    tree.somebody_ended()
    tree.scan()
    assert tree.engine.keys() == {holder.pid}
    assert child in tree.ever_ours


def test_a_grandchild_whose_parent_ended_is_still_the_engines() -> None:
    """It is in the engine's session."""
    orphan = "import subprocess as s; s.Popen(['sleep', '60'], stdout=s.DEVNULL)"
    code = f"import subprocess as s, sys; s.run([sys.executable, '-S', '-c', {orphan!r}]); print(flush=True)"
    command = [sys.executable, "-S", "-c", f"{code}; sys.stdin.read()"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as engine:
        assert engine.stdout is not None
        engine.stdout.readline()
        tree = Tree()
        tree.scan()
        tree.root_is(engine.pid)
        tree.scan()
        orphans = tree.engine.keys() - {engine.pid}
        for pid in orphans:
            os.kill(pid, 9)
        engine.communicate()

    assert len(orphans) == 1


def test_nobody_begun_is_nobody_read(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's newest number says so; from time to time all are listed nevertheless."""
    listed: list[float] = []
    real = os.listdir
    numbers = iter([b"5", b"5", b"6", b"", b""])
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(0) or real(path))
    monkeypatch.setattr("zenit_hub.maintain.measure.processes._newest_number", lambda: next(numbers))
    tree = Tree()
    counts = []
    for _ in range(5):
        tree.scan()
        counts.append(len(listed))

    assert counts == [1, 1, 2, 3, 4]


def test_names_of_processes_are_fit_for_a_terminal(holder: Holder) -> None:
    """They are strangers' strings; a process that is gone has its number."""
    assert name_of(2**30) == f"pid {2**30}"
    assert name_of(holder.pid).endswith(f"(pid {holder.pid})")
    assert read_process(2**30) is None


# --- the loop


class Scripted(BackgroundSampler):
    """A sampler whose device is a number, and whose parts fail when they are told to."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 1
        self.fault: Exception | None = None
        self.look_fault: Exception | None = None
        self.end_fault: Exception | None = None
        self.let_go = 0
        self.pause = threading.Event()
        self.width = 1
        self.over = False

    def _begin(self) -> Sequence[Room]:
        return (Room(100, 200),)

    def _reading(self) -> Reading:
        return self

    def collect(self, answers: list[Any], samples: int, pause_s: float) -> None:
        for _ in range(samples):
            if self.over:
                return
            time.sleep(pause_s)
            if self.fault is not None:
                raise self.fault
            answers += [self.taken, time.monotonic()]

    def taken_bytes(self, answers: Sequence[Any]) -> Sequence[int]:
        return (answers[0],)

    def _now_bytes(self) -> Sequence[int]:
        return (self.taken,)

    def _look(self, mark: str | None) -> None:
        if self.look_fault is not None:
            raise self.look_fault

    def _engine_is(self, root_pid: int) -> None:
        self.pause.wait()

    def _finish(self, worst: int, drop_bytes: int) -> Others:
        if self.end_fault is not None:
            raise self.end_fault
        return Others(drop_bytes, 0, None)

    def _let_go(self) -> None:
        self.let_go += 1


@pytest.fixture
def sampler() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.pause.set()
    scripted._stopping.set()


def test_a_trace_has_what_was_seen_and_what_it_cost(sampler: Scripted) -> None:
    """The first mark of a name counts; stopped twice, it is the same trace."""
    sampler.start()
    sampler.mark("loading")
    sampler.taken = 7
    sampler.mark("loading")
    sampler.mark("workload")
    time.sleep(0.45)
    trace = sampler.stop()

    assert (sampler.at_mark_bytes("loading"), sampler.at_mark_bytes("workload")) == (1, 7)
    assert sampler.at_mark_bytes("graphs") is None
    assert sampler.taken_now_bytes() == trace.drop_bytes == trace.own_peak_bytes == 7
    assert (trace.free_bytes, trace.total_bytes) == (100, 200)
    assert len(trace.times_s) == len(trace.taken_bytes) > 30
    assert trace.times_s[1] < 0.1
    assert 90 < trace.sampled_hz < 115
    assert 0 < trace.cost_share < 0.2
    assert trace.notes == ()
    assert sampler.stop() is trace
    assert sampler.let_go == 1


def test_a_boot_that_ends_at_once_has_a_trace(sampler: Scripted) -> None:
    """Nothing was taken before the start; an engine that cannot be started is a failure of its own."""
    sampler.start()
    trace = sampler.stop()

    assert (trace.times_s[0], trace.taken_bytes[0]) == (0, 0)
    assert len(trace.times_s) < 5


def test_what_is_known_exactly_at_a_mark_is_in_the_drop(sampler: Scripted) -> None:
    """Also where the samples before it were corrected by what was known earlier."""
    sampler.start()
    time.sleep(0.25)
    sampler.taken = 9
    sampler.mark("ending")
    sampler.taken = 50
    time.sleep(0.25)

    assert sampler.stop().drop_bytes == 9


@pytest.mark.parametrize("fault", [MeasurementError("the card fell off"), ZeroDivisionError("a blunder")])
def test_a_loop_without_samples_ends_with_its_reason(
    fault: Exception, sampler: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was; nothing samples any more, and everything is let go."""
    monkeypatch.setattr(sampling, "LOST_AFTER_S", 0.1)
    sampler.start()
    sampler.fault = fault
    time.sleep(0.4)
    sampler.mark("workload")

    with pytest.raises(MeasurementError, match=f"could not be followed to the end: {fault}"):
        sampler.stop()
    assert sampler.let_go == 1
    assert not any(thread.is_alive() for thread in sampler._threads)


def test_faults_that_pass_are_noted_and_counted(sampler: Scripted) -> None:
    """Of samples and of looks; the same one once."""
    sampler.start()
    time.sleep(0.25)
    sampler.fault = sampler.look_fault = OSError("no luck")
    sampler.mark("a")
    sampler.mark("b")
    time.sleep(0.1)
    sampler.fault = sampler.look_fault = None
    time.sleep(0.25)
    looks, samples = sorted(sampler.stop().notes)

    assert looks == "a look at the processes failed: no luck (2 times)"
    assert samples.startswith("a sample was missed: no luck (")


def test_an_end_that_fails_is_not_passed_over(sampler: Scripted) -> None:
    """Without the last look nobody knows whether the boot was disturbed."""
    sampler.start()
    sampler.end_fault = OSError("gone")
    time.sleep(0.25)

    with pytest.raises(MeasurementError, match="gone"):
        sampler.stop()


def test_a_driver_that_hangs_holds_nobody_up(sampler: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks and the end wait for a while, then say so; nothing is closed under a call that is stuck."""
    monkeypatch.setattr(sampling, "PATIENCE_S", 0.1)
    sampler.start()
    sampler.engine_is(1)
    sampler.mark("workload")

    assert sampler.at_mark_bytes("workload") == 0
    with pytest.raises(MeasurementError, match="no answer in"):
        sampler.stop()
    assert sampler.let_go == 0


def test_a_gap_is_noted(sampler: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak may have been in it."""
    monkeypatch.setattr(sampling, "GAP_S", 0.05)
    sampler.start()
    time.sleep(0.25)
    sampler.fault = OSError("no luck")
    time.sleep(0.2)
    sampler.fault = None
    time.sleep(0.25)

    assert any(note.endswith("no sample could be taken") for note in sampler.stop().notes)


# --- what is dear


def burn(seconds: float) -> Callable[[], None]:
    def work() -> None:
        until_s = time.thread_time() + seconds
        while time.thread_time() < until_s:
            pass

    return work


def test_what_is_dear_is_done_as_often_as_it_may_cost() -> None:
    """20 ms at a fifth of a core: every tenth of a second; at another share at another time."""
    allowance = Allowance(period_s=0.01, share=0.2)
    assert allowance.is_due()
    allowance.spend(burn(0.02))

    assert not allowance.is_due()
    time.sleep(0.03)
    assert not allowance.is_due()
    assert allowance.is_due(share=0.8)
    time.sleep(0.1)
    assert allowance.is_due()
