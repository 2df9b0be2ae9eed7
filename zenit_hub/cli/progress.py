"""Following a run: a live line on a terminal, plain lines in a log, JSON events for a machine."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from zenit_hub.cli.output import Sink
from zenit_hub.text import gib, printable

if TYPE_CHECKING:
    from zenit_hub.maintain.measure.samplers import Sampler
    from zenit_hub.maintain.measure.watch import Watch
    from zenit_hub.maintain.measurement import Boot, BootKind, Measurement, PhaseName

KINDS = {
    "cold": "cold boot",
    "warm": "warm boot",
    "verification": "with no more free than the figure",
    "below": "with 1 % less",
}
PHASES = {
    "start": "starting",
    "loading": "loading the weights",
    "compiling": "compiling",
    "kv_cache": "making the KV cache",
    "graphs": "capturing CUDA graphs",
    "workload": "answering a full window",
    "ending": "ending",
}
OUTCOMES = {
    "answered": "answered",
    "failed": "did not answer",
    "contaminated": "disturbed by another process",
    "disturbed": "disturbed by memory that was freed",
}
CURVE = "▁▂▃▄▅▆▇█"
CURVE_LETTERS = 24
REFRESH_HZ = 4


@contextmanager
def follow(sink: Sink, *, json: bool) -> Iterator[Watch]:
    """The follower that suits the stream: events, lines with a live one below, or lines alone."""
    if json:
        yield Events(sink)
    elif not sink.lively or importlib.util.find_spec("rich") is None:
        yield Lines(sink.note)
    else:
        live = LiveLines()
        try:
            yield live
        finally:
            live.close()


class Events:
    """One JSON object a line on stdout."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def run_begins(self, profiles: Sequence[str]) -> None:
        self._event("run", profiles=list(profiles))

    def profile_begins(self, profile: str, boots: int) -> None:
        self._event("profile", profile=profile, boots=boots)

    def boot_begins(self, kind: BootKind, attempt: int, sampler: Sampler) -> None:
        self._event("boot", kind=kind, attempt=attempt)

    def phase(self, name: PhaseName) -> None:
        self._event("phase", phase=name)

    def boot_ends(self, boot: Boot) -> None:
        found = asdict(boot)
        del found["samples"]
        self._event("boot_end", **found)

    def profile_ends(self, measurement: Measurement, file: str) -> None:
        self._event(
            "profile_end",
            profile=measurement.profile.name,
            verdict=measurement.verdict,
            verified=measurement.verified,
            requires_free_bytes=measurement.requires_free_bytes,
            kv_cache_memory_bytes=measurement.kv_cache_memory_bytes,
            failure=asdict(measurement.failure) if measurement.failure else None,
            file=file,
        )

    def said(self, sentence: str) -> None:
        self._event("said", message=sentence)

    def _event(self, event: str, **fields: Any) -> None:
        self._sink.data(json.dumps({"event": event, **fields}, allow_nan=False))
        self._sink.flush()


class Lines:
    """A line on stderr for what takes long; the figures come on stdout, at the end."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._began_s = time.monotonic()
        self._count = self._number = 0

    def run_begins(self, profiles: Sequence[str]) -> None:
        self._count = len(profiles)

    def profile_begins(self, profile: str, boots: int) -> None:
        self._number += 1
        self._line(
            f"{printable(profile)} ({self._number} of {self._count}): {boots} boot{'s' if boots != 1 else ''}"
        )

    def boot_begins(self, kind: BootKind, attempt: int, sampler: Sampler) -> None:
        again = f", try {attempt}" if attempt > 1 else ""
        self._line(f"  {KINDS[kind]}{again}")

    def phase(self, name: PhaseName) -> None:
        self._line(f"    {PHASES[name]}")

    def boot_ends(self, boot: Boot) -> None:
        took = f", took {gib(boot.drop_bytes)}" if boot.drop_bytes is not None else ""
        why = f": {printable(boot.failure.message, limit=300)}" if boot.failure else ""
        self._line(f"  {OUTCOMES[boot.outcome]} after {boot.ended_after_s:.0f} s{took}{why}")

    def profile_ends(self, measurement: Measurement, file: str) -> None:
        self._line(f"  {measurement.verdict} → {printable(file, limit=1000)}")

    def said(self, sentence: str) -> None:
        self._line(f"  {printable(sentence, limit=600)}")

    def _line(self, line: str) -> None:
        self._say(f"[{clock(time.monotonic() - self._began_s)}] {line}")


class LiveLines(Lines):
    """The same lines, and below them one that lives: what goes on, memory now and its curve, elapsed and expected."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False, markup=False)
        super().__init__(console.print)
        self._sampler: Sampler | None = None
        self._doing = ""
        self._boot_began_s = 0.0
        self._expected_s: float | None = None
        self._curve: list[int] = []
        self._live = Live(
            console=console, get_renderable=self._now, refresh_per_second=REFRESH_HZ, transient=True
        )
        self._live.start()

    def close(self) -> None:
        self._live.stop()

    def boot_begins(self, kind: BootKind, attempt: int, sampler: Sampler) -> None:
        super().boot_begins(kind, attempt, sampler)
        self._sampler, self._boot_began_s, self._curve = sampler, time.monotonic(), []
        self._doing = PHASES["start"]

    def phase(self, name: PhaseName) -> None:
        self._doing = PHASES[name]

    def boot_ends(self, boot: Boot) -> None:
        self._sampler = None
        if boot.outcome == "answered":
            self._expected_s = time.monotonic() - self._boot_began_s
        super().boot_ends(boot)

    def _now(self) -> str:
        if self._sampler is None:
            return ""
        taken_bytes = max(0, self._sampler.taken_now_bytes())
        self._curve = [*self._curve[1 - CURVE_LETTERS :], taken_bytes]
        elapsed_s = time.monotonic() - self._boot_began_s
        expected = f" of about {clock(self._expected_s)}" if self._expected_s else ""
        return f"  {self._doing}  {curve(self._curve)} {gib(taken_bytes)}  {clock(elapsed_s)}{expected}"


def curve(values: Sequence[int]) -> str:
    """A line of blocks, the highest value a full one."""
    top = max(values, default=0)
    return "".join(CURVE[(len(CURVE) - 1) * value // top] if top else CURVE[0] for value in values)


def clock(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 60}:{whole % 60:02d}"
