"""How often, how long, and what is said meanwhile: tries with jitter under one deadline."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Protocol

from zenit_hub.maintain.publish.outcomes import TRANSIENT, HubFailure, PublishingFailed, Trouble

_SECONDS_IN_A_MINUTE = 60.0


class Listener(Protocol):
    """To whom it is said what goes on. The command line's sink is one."""

    def note(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...


class Clock(Protocol):
    """Time and chance. ``chance``: evenly from 0 to 1."""

    def now_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def chance(self) -> float: ...


class RealClock:
    """This machine's."""

    def now_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def chance(self) -> float:
        return random.random()


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. ``first_wait_s`` and ``longest_wait_s`` hold where the Hub does not say how long to wait,
    ``longest_asked_s`` where it does: its windows have 300 s."""

    tries: int = 6
    deadline_s: float = 900.0
    first_wait_s: float = 1.0
    longest_wait_s: float = 120.0
    longest_asked_s: float = 300.0


@dataclass(slots=True)
class Tries:
    """The tries of one publication. ``number``: of the one that runs, from 1."""

    pace: Pace
    clock: Clock
    listener: Listener
    number: int = 0
    _deadline_s: float = field(init=False)
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock.now_s()
        self._deadline_s = self._began_s + self.pace.deadline_s

    def begin(self) -> None:
        self.number += 1
        self._began_s = self.clock.now_s()

    def pause(self, seconds: float) -> None:
        """Time that a person took to think does not count."""
        self._deadline_s += seconds
        self._began_s += seconds

    def wait(self, failure: HubFailure, *, has_sent: bool = True) -> None:
        """Wait for the next try. Raises :class:`PublishingFailed` where there is none, or no time for it.
        ``has_sent``: a commit may have landed."""
        why = f"The Hub: {failure.sentence}"
        if self.number >= self.pace.tries:
            raise self._given_up(failure, f"{self.number} tries did not do it", has_sent)
        seconds, remark = self._seconds(failure)
        left_s = self._deadline_s - self.clock.now_s()
        if seconds >= left_s:
            limit = told_s(self.pace.deadline_s)
            why_not = f"{told_s(seconds)} to wait go beyond the {limit} that all tries may take"
            raise self._given_up(failure, why_not, has_sent)
        next_try = f"try {self.number + 1} of {self.pace.tries}"
        self.listener.note(f"{why}. Waiting {told_s(seconds)}{remark}, then {next_try}.")
        self.clock.sleep(seconds)

    def _seconds(self, failure: HubFailure) -> tuple[float, str]:
        """How long, and what is to be said of it."""
        chance = self.clock.chance()
        asked_s = failure.wait_s
        if asked_s is not None:
            # A second more at most: those who were told the same do not come back at the same moment.
            seconds = min(asked_s, self.pace.longest_asked_s) + chance
            return seconds, "" if seconds >= asked_s else f" (it asks for {told_s(asked_s)})"
        # Publishers in each other's way must spread over more than a try takes, wider each time: simulated,
        # of eight that begin at once none is left over after six tries in 4,000 runs.
        took_s = self.clock.now_s() - self._began_s
        span_s = max(self.pace.first_wait_s, 2 * took_s) * 2.0 ** (self.number - 1)
        return min(span_s, self.pace.longest_wait_s) * (0.25 + 0.75 * chance), ""

    def _given_up(self, failure: HubFailure, why: str, has_sent: bool) -> PublishingFailed:
        landed = (
            "Whether it landed is not known: the same command finds out, and finishes it"
            if has_sent and failure.trouble is Trouble.UNKNOWN
            else "Run the same command again later"
        )
        return PublishingFailed(
            f"not published: {why}; the Hub: {failure.sentence}",
            next_step=f"{landed}. The measurement files are kept.",
            trouble=failure.trouble,
            tries=self.number,
        )


def told_s(seconds: float) -> str:
    """``0.8 s``, ``55 s``, ``4 min 31 s``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), int(_SECONDS_IN_A_MINUTE))
    if not minutes:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def is_transient(failure: HubFailure) -> bool:
    """Whether another try may mend it."""
    return failure.trouble in TRANSIENT
