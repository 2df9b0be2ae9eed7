"""Cards made small: beside the launch one process a card holds all of its memory but what is to be left.

NVML's figure decides, to the driver's granularity: at least the bytes that were asked for are left, and less than
one granule (usually 2 MiB) more. What CUDA says is another figure and not looked at.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import zenit_hub
from zenit_hub import env
from zenit_hub.deadline import within
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import ballast_process
from zenit_hub.maintain.measure.ballast_process import CUDA_LIBRARY, CardMemory, Held, NotPossible
from zenit_hub.text import printable

START_TIMEOUT_S = 90.0
"""A context alone takes some seconds on a machine with many cards, and so does the driver when it wakes up."""

RELEASE_TIMEOUT_S = 10.0
"""How long the driver may take to give memory back after a process's end."""

STILL_S = 2.0
"""How long a difference has to last, after the launch's end, to be somebody else's."""

_POLL_INTERVAL_S = 0.02
_DRIVER_PATIENCE_S = 5.0


def why_no_ballast() -> str | None:
    """Why no memory can be held on a card here, in one sentence; ``None`` where it can."""
    try:
        ctypes.CDLL(CUDA_LIBRARY)
    except OSError:
        return f"CUDA's driver library {CUDA_LIBRARY} is not there, so nothing can hold memory on a card"
    return None


class BallastConfiner:
    """Leaves so many bytes on each of the cards (or slices) with these UUIDs.

    ``held``: what the processes hold, card by card, while they do. ``moved_bytes``: by how much the figure of a
    card had moved at the end of the last hold: memory that somebody else took (or, below 0, freed) meanwhile.
    """

    method: Literal["ballast"] = "ballast"

    def __init__(self, uuids: Sequence[str]) -> None:
        self._uuids = tuple(uuids)
        self.held: tuple[Held, ...] = ()
        self.moved_bytes: int | None = None

    @contextlib.contextmanager
    def hold(self, free_bytes: int) -> Iterator[None]:
        """Raises :class:`MeasurementError` where a card has less free, or its figure does not keep still."""
        self.moved_bytes = None
        cards: list[CardMemory] = []
        processes: list[_Process] = []
        try:
            cards += (_watched(uuid) for uuid in self._uuids)
            processes += (_Process(uuid, free_bytes) for uuid in self._uuids)
            deadline_s = time.monotonic() + START_TIMEOUT_S
            self.held = tuple([process.held(deadline_s) for process in processes])
            try:
                yield
            finally:
                # The launch has ended by now, and the driver may still be giving its memory back.
                self.moved_bytes = _moved(cards, self.held)
        finally:
            held, self.held = self.held, ()
            for process in processes:
                process.end()
            if held:
                _wait_for_return(cards, held, self.moved_bytes or 0)
            for card in cards:
                card.close()


class _Process:
    """One ballast process. It dies with this one, also when that is killed."""

    def __init__(self, uuid: str, free_bytes: int) -> None:
        self._uuid = uuid
        self._process = subprocess.Popen(
            [sys.executable, "-m", ballast_process.__name__, uuid, str(free_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # It sees that one card, by the name that CUDA and NVML share. Ctrl-C is this process's business.
            env={**os.environ, env.VISIBLE_DEVICES: uuid},
            start_new_session=True,
            # Its folder is the first on the module path: the package's own, whatever lies where the tool runs.
            cwd=Path(zenit_hub.__file__).parents[1],
        )

    def held(self, deadline_s: float) -> Held:
        """What it says when it has reached its level."""
        line = self._line(deadline_s)
        try:
            answer = json.loads(line)
        except ValueError:
            raise self._error("the process that holds memory ended without a word") from None
        if "why" in answer:
            raise self._error(answer["why"])
        return Held(**answer)

    def end(self) -> None:
        """At once, whatever it is doing: what it holds ends with it."""
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the driver, which nothing ends
            self._process.wait(RELEASE_TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _line(self, deadline_s: float) -> bytes:
        output = self._process.stdout
        if output is None or not select.select([output], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            raise self._error(f"the driver did not hold the memory within {START_TIMEOUT_S:g} s")
        return output.readline()

    def _error(self, why: str) -> MeasurementError:
        return MeasurementError(
            f"the card {printable(self._uuid)} cannot be made small: {printable(why, limit=400)}",
            next_step="Measure while nothing else uses the card.",
        )


def _watched(uuid: str) -> CardMemory:
    try:
        return within(_DRIVER_PATIENCE_S, lambda: CardMemory(uuid))
    except (NotPossible, TimeoutError) as why:
        raise MeasurementError(f"the card cannot be made small: {why}") from why


def _moved(cards: Sequence[CardMemory], held: Sequence[Held]) -> int | None:
    """The largest difference to what was left at first, once it is as small as it gets; ``None``: unknown."""
    deadline_s = time.monotonic() + STILL_S
    while True:
        free = [_free(card) for card in cards]
        moves = [was.left_bytes - now for was, now in zip(held, free, strict=True) if now is not None]
        largest = max(moves, key=abs, default=None)
        if not largest or time.monotonic() > deadline_s:
            return largest
        time.sleep(_POLL_INTERVAL_S)


def _wait_for_return(cards: Sequence[CardMemory], held: Sequence[Held], moved_bytes: int) -> None:
    """Until what was held is free again, as far as others leave it."""
    deadline_s = time.monotonic() + RELEASE_TIMEOUT_S
    for card, was in zip(cards, held, strict=True):
        wanted_bytes = was.left_bytes + was.held_bytes - max(0, moved_bytes)
        while time.monotonic() < deadline_s:
            now = _free(card)
            if now is None or now >= wanted_bytes:
                break
            time.sleep(_POLL_INTERVAL_S)


def _free(card: CardMemory) -> int | None:
    try:
        return within(_DRIVER_PATIENCE_S, card.free_bytes)
    except (NotPossible, TimeoutError):
        return None
