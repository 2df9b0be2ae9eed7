"""The loop under every sampler: one thread that samples, one that looks at what is dear, and what came of both.

A sample costs little more than waking up for it, and after 9 ms of sleep the caches are cold: what is done
between two samples costs several times what it costs elsewhere. So a fifth of a second of raw answers is
collected in the shortest loop there is, and what they mean is worked out afterwards, all at once.

Neither thread ends silently: what a sampler cannot get over is raised by ``stop``, the rest is in the notes.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zenit_hub.deadline import within
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.readings import Others, Reading, Room
from zenit_hub.maintain.measure.samplers import PERIOD_S, Trace
from zenit_hub.maintain.measure.trace import Curves
from zenit_hub.text import printable

SAMPLES_AT_ONCE = 20

LOOK_PERIOD_S = 0.5
"""How long a new process can go unseen."""

PATIENCE_S = 5.0
"""How long a driver or the kernel may take for one answer."""

LOST_AFTER_S = 2.0
"""As long without one sample and there is nothing more to measure."""

GAP_S = 0.5
"""As long without a sample and it is worth a note."""

ENDING = "ending"
"""The mark after the last token: what is taken later does not count."""

MAX_NOTES = 8


class BackgroundSampler(ABC):
    """A :class:`~zenit_hub.maintain.measure.samplers.Sampler`; the abstract methods say what is sampled."""

    def __init__(self) -> None:
        self._started_s = 0.0
        self._rooms: Sequence[Room] = ()
        self._curves = Curves(0)
        self._latest: Sequence[int] = (0,)
        self._marks: dict[str, tuple[float, Sequence[int]]] = {}
        self._notes: dict[str, int] = {}
        self._failure: Exception | None = None
        self._current: Reading | None = None
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._wishes: list[_Wish] = []
        self._lifts: list[tuple[float, float, int]] = []
        self._threads: tuple[threading.Thread, ...] = ()
        self._costs_s: dict[str, float] = {}
        self._others: Others | None = None
        self._trace: Trace | None = None

    @abstractmethod
    def _begin(self) -> Sequence[Room]:
        """Take the baseline of each device. Raises :class:`MeasurementError`."""

    @abstractmethod
    def _reading(self) -> Reading:
        """How to take the next samples; asked for by the sampling thread, several times a second."""

    @abstractmethod
    def _now_bytes(self) -> Sequence[int]:
        """One sample, by the looking thread."""

    def _goes_on_without(self, reading: Reading, answers: int) -> bool:
        """Whether it is no fault that after so many answers one did not come: the next reading lacks it."""
        return False

    @abstractmethod
    def _look(self, mark: str | None) -> None:
        """Look at the processes, and, at a mark, at all that is too dear for every time; the looking thread."""

    @abstractmethod
    def _engine_is(self, root_pid: int) -> None:
        """Take note of the engine's first process; the looking thread."""

    @abstractmethod
    def _finish(self, worst: int, drop_bytes: int) -> Others:
        """Say what the others did; the looking thread, as its last act. ``worst``: the device with that drop."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close everything; nobody samples or looks any more."""

    def start(self) -> None:
        try:
            self._rooms = within(PATIENCE_S, self._begin)
        except TimeoutError:
            raise _ended_early(None) from None
        self._curves = Curves(len(self._rooms))
        self._curves.append(0.0, [0] * len(self._rooms))
        self._started_s = time.monotonic()
        self._threads = (
            threading.Thread(target=self._run, args=("samples", self._keep_sampling), daemon=True),
            threading.Thread(target=self._run, args=("looks", self._keep_looking), daemon=True),
        )
        for thread in self._threads:
            thread.start()

    def engine_is(self, root_pid: int) -> None:
        self._ask(_Wish(lambda: self._engine_is(root_pid)))

    def mark(self, name: str) -> None:
        wish = _Wish(lambda: self._look_at_mark(name))
        self._ask(wish)
        if not wish.done.wait(PATIENCE_S):
            self._note(f"no exact figures at the mark {name} within {PATIENCE_S:g} s")
        self._marks.setdefault(name, (self._now_s(), self._latest))

    def taken_now_bytes(self) -> int:
        return max(self._latest)

    def at_mark_bytes(self, name: str) -> int | None:
        mark = self._marks.get(name)
        return None if mark is None else max(mark[1])

    def stop(self) -> Trace:
        if self._trace is None:
            self._stopping.set()
            self._asked.set()
            if self._current is not None:
                self._current.over = True
            give_up_s = time.monotonic() + 2 * PATIENCE_S
            for thread in self._threads:
                thread.join(max(0.0, give_up_s - time.monotonic()))
            if any(thread.is_alive() for thread in self._threads):
                # What a stuck call still uses is not closed under it.
                raise _ended_early(None)
            self._let_go()
            if self._failure is not None or self._others is None:
                raise _ended_early(self._failure)
            self._trace = self._told(self._others)
        return self._trace

    # --- the two threads

    def _run(self, name: str, work: Callable[[], None]) -> None:
        """Whatever ends a thread is kept for :meth:`stop`, and ends the other one as well."""
        try:
            work()
        except Exception as error:
            self._failure = self._failure or error
            self._stopping.set()
            self._asked.set()
        finally:
            self._costs_s[name] = time.thread_time()
            if name == "looks":
                self._stopping.set()
                for wish in self._wishes:
                    wish.done.set()

    def _keep_sampling(self) -> None:
        pause_s, sampled_s = PERIOD_S, self._now_s()
        while not self._stopping.is_set():
            began_s, before = time.monotonic(), len(self._curves)
            missed = self._sample(pause_s)
            if len(self._curves) > before:
                sampled_s = self._curves.times_s[-1]
            if missed is not None:
                if self._now_s() - sampled_s > LOST_AFTER_S:
                    raise missed
                self._note(f"a sample was missed: {_words(missed)}")
                continue
            # What a sample takes beside its pause, waking up late among it, comes off the pause.
            if len(self._curves) - before < SAMPLES_AT_ONCE:
                continue
            beside_s = (time.monotonic() - began_s) / SAMPLES_AT_ONCE - pause_s
            pause_s = min(PERIOD_S, max(PERIOD_S / 4, PERIOD_S - beside_s))

    def _sample(self, pause_s: float) -> Exception | None:
        """Take some samples; the fault that kept the last of them from being taken, if one did."""
        reading = self._current = self._reading()
        answers: list[Any] = []
        missed = None
        try:
            reading.collect(answers, SAMPLES_AT_ONCE, pause_s)
        except Exception as error:
            if not self._goes_on_without(reading, len(answers)):
                missed = error
        for *sample, at_s in _complete(answers, reading.width + 1):
            self._curves.append(at_s - self._started_s, reading.taken_bytes(sample))
        self._latest = tuple(curve[-1] for curve in self._curves.taken_bytes)
        return missed

    def _keep_looking(self) -> None:
        due_s = time.monotonic()
        while True:
            self._asked.wait(max(0.0, due_s - time.monotonic()))
            self._asked.clear()
            while self._wishes:
                wish = self._wishes.pop(0)
                self._try(wish.work)
                wish.done.set()
            if self._stopping.is_set():
                break
            if time.monotonic() >= due_s:
                self._try(lambda: self._look(None))
                due_s = time.monotonic() + LOOK_PERIOD_S
        self._threads[0].join(PATIENCE_S)
        for since_s, until_s, more_bytes in self._lifts:
            self._curves.lift(since_s, until_s, more_bytes)
        self._others = self._finish(*self._worst())

    def _look_at_mark(self, name: str) -> None:
        self._look(name)
        self._latest = tuple(self._now_bytes())
        self._marks.setdefault(name, (self._now_s(), self._latest))

    def _ask(self, wish: _Wish) -> None:
        if self._stopping.is_set():
            # Nobody is there any more who could fulfil it.
            wish.done.set()
            return
        self._wishes.append(wish)
        self._asked.set()

    def _try(self, work: Callable[[], object]) -> None:
        """A look that fails is worth a note: the next one may not."""
        try:
            work()
        except Exception as error:
            self._note(f"a look at the processes failed: {_words(error)}")

    def _note(self, sentence: str) -> None:
        if sentence in self._notes or len(self._notes) < MAX_NOTES:
            self._notes[sentence] = self._notes.get(sentence, 0) + 1

    def _now_s(self) -> float:
        return time.monotonic() - self._started_s

    # --- what came of it

    def _worst(self) -> tuple[int, int]:
        """The device with the largest drop, and that drop; what comes after the last token is not in it."""
        end_s = self._marks[ENDING][0] if ENDING in self._marks else None
        peaks_bytes = self._curves.peaks_bytes(end_s)
        for at_s, taken in self._marks.values():
            # Exact, where samples between the marks are corrected by what was known before them.
            if end_s is None or at_s <= end_s:
                peaks_bytes = tuple(map(max, peaks_bytes, taken))
        worst = max(range(len(peaks_bytes)), key=peaks_bytes.__getitem__)
        return worst, peaks_bytes[worst]

    def _told(self, others: Others) -> Trace:
        worst, drop_bytes = self._worst()
        times_s, room = self._curves.times_s, self._rooms[worst]
        span_s = times_s[-1] - times_s[0]
        gap_s = self._curves.largest_gap_s()
        if gap_s > GAP_S:
            self._note(f"for {gap_s:.1f} s no sample could be taken")
        return Trace(
            times_s=times_s,
            taken_bytes=self._curves.taken_bytes[worst],
            free_bytes=room.free_bytes,
            total_bytes=room.total_bytes,
            worst=worst,
            drop_bytes=drop_bytes,
            own_peak_bytes=others.own_peak_bytes,
            foreign_bytes=others.foreign_bytes,
            foreign_process=others.foreign_process,
            sampled_hz=(len(times_s) - 1) / span_s if span_s > 0 else 0.0,
            cost_share=sum(self._costs_s.values()) / times_s[-1] if times_s[-1] > 0 else 0.0,
            started_s=self._started_s,
            notes=tuple(
                f"{text} ({count} times)" if count > 1 else text for text, count in self._notes.items()
            ),
        )


class _Wish:
    """Something that the looking thread is to do now."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()


def _complete(answers: Sequence[Any], width: int) -> Iterator[Sequence[Any]]:
    for first in range(0, len(answers) - width + 1, width):
        yield answers[first : first + width]


def _words(error: Exception) -> str:
    return printable(str(error) or type(error).__name__)


def _ended_early(failure: Exception | None) -> MeasurementError:
    why = f"no answer in {PATIENCE_S:g} s" if failure is None else _words(failure)
    return MeasurementError(
        f"the device's memory could not be followed to the end: {why}", next_step="Measure it again."
    )
