"""The host's memory, seen from the outside while real processes take it: what counts, what does not, whose it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.rigs.holder import Holder
from zenit_hub.maintain.measure.sample_host import HostSampler
from zenit_hub.maintain.measure.samplers import Trace

MIB = 2**20
SLACK_BYTES = MIB
"""Page tables, and what an interpreter takes to obey an order."""


class Sampled:
    """A sampler at work, and the trace once it has ended."""

    def __init__(self) -> None:
        self.sampler = HostSampler()
        self.trace: Trace | None = None

    def taken_bytes(self, name: str) -> int:
        """What is taken now, exactly; ``name`` is used once."""
        self.sampler.mark(name)
        taken_bytes = self.sampler.at_mark_bytes(name)
        assert taken_bytes is not None
        return taken_bytes

    def stop(self) -> Trace:
        self.trace = self.trace or self.sampler.stop()
        return self.trace


@contextmanager
def sampled(engine: Holder | None = None) -> Iterator[Sampled]:
    result = Sampled()
    result.sampler.start()
    try:
        if engine is not None:
            result.sampler.engine_is(engine.pid)
        yield result
    finally:
        result.stop()


@pytest.fixture
def engine() -> Iterator[Holder]:
    with Holder() as holder:
        yield holder


@pytest.fixture
def stranger() -> Iterator[Holder]:
    with Holder(stranger=True) as holder:
        yield holder


def near(size_bytes: int, mib: int, slack_bytes: int = SLACK_BYTES) -> bool:
    return abs(size_bytes - mib * MIB) <= slack_bytes


def moved_bytes(trace: Trace) -> int:
    assert trace.foreign_bytes is not None
    return trace.foreign_bytes


def wait_until(holds: Callable[[], bool], seconds: float) -> float:
    """Seconds until ``holds()``; fails after ``seconds``."""
    began_s = time.monotonic()
    while not holds():
        assert time.monotonic() - began_s < seconds
        time.sleep(0.02)
    return time.monotonic() - began_s


# --- what counts


def test_what_a_process_allocates_is_taken_and_what_it_gives_back_is_not(engine: Holder) -> None:
    """The peak between two marks stays in the drop, to within a MiB."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("workload")
        engine.tell("hold", 48)
        time.sleep(0.1)
        held_bytes = seen.taken_bytes("held")
        engine.tell("release")
        after_bytes = seen.taken_bytes("after")
        trace = seen.stop()

    assert near(held_bytes - before_bytes, 48)
    assert near(after_bytes - before_bytes, 0)
    assert near(trace.drop_bytes - before_bytes, 48)
    assert trace.own_peak_bytes == trace.drop_bytes == max(trace.drop_bytes, *trace.taken_bytes)


def test_a_short_peak_of_a_process_at_rest_is_seen(engine: Holder) -> None:
    """A tenth of a second of activations, after a while in which nothing moved."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("workload")
        time.sleep(0.6)
        engine.tell("spike", 96, 100)
        trace = seen.stop()

    assert near(trace.drop_bytes - before_bytes, 96, 3 * MIB)


def test_what_comes_after_the_last_token_does_not_count(engine: Holder) -> None:
    """The report that the engine is asked for at the end is not the workload's."""
    with sampled(engine) as seen:
        engine.tell("hold", 32)
        ending_bytes = seen.taken_bytes("ending")
        engine.tell("hold", 64)
        time.sleep(0.4)
        trace = seen.stop()

    assert near(trace.drop_bytes, ending_bytes // MIB)
    assert max(trace.taken_bytes) > trace.drop_bytes + 60 * MIB


def test_forks_share_their_pages(engine: Holder) -> None:
    """A fork costs what it changes, not what it maps; so does the next, and all goes with them."""
    with sampled(engine) as seen:
        engine.tell("hold", 64)
        alone_bytes = seen.taken_bytes("alone")
        engine.tell("fork", 8)
        seen.taken_bytes("seen once")
        one_bytes = seen.taken_bytes("workload")
        engine.tell("fork", 16)
        seen.taken_bytes("seen twice")
        two_bytes = seen.taken_bytes("ending")
        engine.tell("end")
        engine.tell("end")
        after_bytes = seen.taken_bytes("after")
        trace = seen.stop()

    assert near(one_bytes - alone_bytes, 8, 4 * MIB)
    assert near(two_bytes - one_bytes, 16, 4 * MIB)
    assert near(after_bytes - alone_bytes, 0, 2 * MIB)
    # At no sample were the pages of a fork counted twice.
    assert trace.drop_bytes < two_bytes + 4 * MIB


def test_shared_memory_counts_once(engine: Holder) -> None:
    """Two processes have touched all of it."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("before")
        engine.tell("share", 40)
        engine.tell("fork", 0)
        seen.taken_bytes("seen once")
        shared_bytes = seen.taken_bytes("workload")

    assert near(shared_bytes - before_bytes, 40, 4 * MIB)


def test_a_mapped_file_counts_but_while_weights_are_loaded(engine: Holder, tmp_path: Path) -> None:
    """During the loading it is cache that goes when memory is wanted; what is mapped later is needed."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(24 * MIB))
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("loading")
        engine.tell("map", path)
        loaded_bytes = seen.taken_bytes("compiling")
        needed_bytes = seen.taken_bytes("workload")

    assert near(loaded_bytes - before_bytes, 0)
    # What the libraries are worth depends on who else has them.
    assert near(needed_bytes - before_bytes, 24, 3 * MIB)


def test_what_grew_between_two_marks_counts_from_the_first(engine: Holder) -> None:
    """Nobody knows when shared memory was taken, so no sample may lack it."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("workload")
        workload_s = time.monotonic()
        engine.tell("share", 40)
        time.sleep(0.4)
        seen.taken_bytes("ending")
        trace = seen.stop()

    since = [
        taken
        for at_s, taken in zip(trace.times_s, trace.taken_bytes, strict=True)
        if 0.05 < at_s + trace.started_s - workload_s < 0.3
    ]
    assert len(since) > 15
    assert near(min(since) - before_bytes, 40, 2 * MIB)


def test_the_kernel_keeps_page_tables_and_stacks(engine: Holder) -> None:
    """A cgroup is charged for them: 64 stacks of 16 KiB."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("before")
        engine.tell("threads", 64)
        after_bytes = seen.taken_bytes("workload")

    assert MIB <= after_bytes - before_bytes < 4 * MIB


def test_a_new_process_is_found_in_half_a_second(engine: Holder) -> None:
    """And counts from then on."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("before")
        engine.tell("start", 48)
        found_s = wait_until(lambda: seen.sampler.taken_now_bytes() > before_bytes + 48 * MIB, 3)
        engine.tell("end")
        wait_until(lambda: seen.sampler.taken_now_bytes() < before_bytes + 4 * MIB, 3)

    assert found_s < 1.0


def test_the_engines_end_ends_nothing_else() -> None:
    """Processes that go away are no fault; afterwards nothing is taken and nothing is left open."""
    open_before = len(os.listdir("/proc/self/fd"))
    with Holder() as engine, sampled(engine) as seen:
        engine.tell("start", 32)
        assert seen.taken_bytes("workload") > 32 * MIB
        engine.tell("end")
        engine.leave()
        wait_until(lambda: seen.sampler.taken_now_bytes() == 0, 3)
        trace = seen.stop()

    assert trace.notes == ()
    assert trace.drop_bytes > 32 * MIB
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_without_an_engine_nothing_is_taken() -> None:
    """An engine that could not be started has a trace too."""
    with sampled() as seen:
        time.sleep(0.3)
        trace = seen.stop()

    assert trace.drop_bytes == 0
    assert 0 < trace.free_bytes <= trace.total_bytes


# --- whose it is


def test_another_process_that_takes_64_mib_contaminates(engine: Holder, stranger: Holder) -> None:
    """It is named, and nothing of it is in the engine's figure."""
    with sampled(engine) as seen:
        before_bytes = seen.taken_bytes("before")
        stranger.tell("hold", 64)
        after_bytes = seen.taken_bytes("workload")
        trace = seen.stop()

    assert trace.contaminated
    assert moved_bytes(trace) > 63 * MIB
    assert near(after_bytes - before_bytes, 0)


def test_between_marks_others_are_looked_at_as_well(engine: Holder, stranger: Holder) -> None:
    """A second is enough to be seen; what was given back in the end still counts."""
    with sampled(engine) as seen:
        seen.sampler.mark("workload")
        stranger.tell("hold", 64)
        time.sleep(1.4)
        stranger.tell("release")
        trace = seen.stop()

    assert moved_bytes(trace) > 63 * MIB


@pytest.mark.parametrize("way", ["comes", "goes", "frees"])
def test_who_comes_goes_or_frees_contaminates_too(way: str, engine: Holder, stranger: Holder) -> None:
    """A new process came from nothing; one that ended went to nothing."""
    if way == "goes":
        stranger.tell("start", 64)
    elif way == "frees":
        stranger.tell("hold", 64)
    with sampled(engine) as seen:
        if way == "comes":
            stranger.tell("start", 64)
        stranger.tell({"comes": "newest", "goes": "end", "frees": "release"}[way])
        trace = seen.stop()

    assert moved_bytes(trace) > 63 * MIB


def test_the_tools_own_processes_are_nobody_elses(engine: Holder) -> None:
    """Its children that are not the engine's: the one that holds the ballast, this test."""
    with Holder() as ballast, sampled(engine) as seen:
        before_bytes = seen.taken_bytes("before")
        ballast.tell("hold", 48)
        own = bytearray(48 * MIB)
        own[::4096] = bytes(len(own[::4096]))
        after_bytes = seen.taken_bytes("workload")
        engine.tell("hold", 48)
        trace = seen.stop()

    assert near(after_bytes - before_bytes, 0)
    named = (trace.foreign_process or "").partition("(pid ")[2].rstrip(")")
    assert named not in {str(ballast.pid), str(engine.pid), str(os.getpid())}


# --- what it costs


def test_a_hundred_samples_a_second_cost_about_a_hundredth_of_a_core(
    engine: Holder, stranger: Holder
) -> None:
    """Six processes of 40 threads, 200 others. The limit is meant for 60 s of a quiet machine; this is for blunders."""
    stranger.tell("sleep", 200)
    engine.tell("hold", 32)
    for _ in range(5):
        engine.tell("threads", 40)
        engine.tell("fork", 4)
    with sampled(engine) as seen:
        time.sleep(1)
        before_s, cost_s = time.monotonic(), time.process_time()
        time.sleep(4)
        share = (time.process_time() - cost_s) / (time.monotonic() - before_s)
        trace = seen.stop()

    assert trace.sampled_hz > 95
    assert share < 0.025
