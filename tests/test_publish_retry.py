"""Tries under one deadline: how long is waited, what is said, and when it ends."""

from __future__ import annotations

import pytest

from tests.rigs.publishing import QuickClock, Somebody
from zenit_hub.maintain.publish.outcomes import HubFailure, PublishingFailed, Trouble
from zenit_hub.maintain.publish.retry import Pace, RealClock, Tries, is_transient, told_s

STALE = HubFailure(Trouble.STALE_PARENT, status=412)


def waits(clock: QuickClock, failure: HubFailure, pace: Pace | None = None) -> list[float]:
    """The waits between all tries that there are."""
    tries = Tries(pace or Pace(), clock, Somebody())
    for _ in range(5):
        tries.begin()
        tries.wait(failure)
    tries.begin()
    with pytest.raises(PublishingFailed, match="6 tries"):
        tries.wait(failure)
    return clock.slept_s


@pytest.mark.parametrize(("chance", "least"), [(0.0, 0.25), (0.5, 0.625), (1.0, 1.0)])
def test_waits_grow_with_jitter(chance: float, least: float) -> None:
    """Five waits between six tries, doubled each time, from a quarter of the span to all of it."""
    assert waits(QuickClock(chance), STALE) == [least * 2**number for number in range(5)]


def test_waits_have_an_upper_end() -> None:
    """However slow the tries are."""
    assert max(waits(QuickClock(1.0), STALE, Pace(first_wait_s=40))) == 120


def test_slow_tries_spread_over_more_time() -> None:
    """Twice what the try took: publishers in each other's way are apart afterwards."""
    clock = QuickClock(1.0)
    tries = Tries(Pace(), clock, Somebody())
    tries.begin()
    clock.sleep(7)
    tries.wait(STALE)
    assert clock.slept_s == [7, 14]


def test_what_the_hub_asks_for_is_waited_and_a_little_more() -> None:
    """Those who were told the same do not come back at the same moment; also with a 503."""
    for trouble in (Trouble.RATE_LIMITED, Trouble.UNKNOWN):
        clock, person = QuickClock(1.0), Somebody()
        tries = Tries(Pace(), clock, person)
        tries.begin()
        tries.wait(HubFailure(trouble, status=503, wait_s=30))
        assert clock.slept_s == [31]
        assert person.notes[0].endswith("Waiting 31 s, then try 2 of 6.")


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    """The end comes at once, with both times."""
    clock = QuickClock(0.0)
    tries = Tries(Pace(deadline_s=100), clock, Somebody())
    tries.begin()
    with pytest.raises(PublishingFailed, match=r"4 min 31 s to wait go beyond the 1 min 40 s") as caught:
        tries.wait(HubFailure(Trouble.RATE_LIMITED, status=429, wait_s=271))
    assert caught.value.tries == 1
    assert clock.slept_s == []


def test_time_to_think_does_not_count() -> None:
    """A person may take an hour before he says yes."""
    clock = QuickClock(0.0)
    tries = Tries(Pace(deadline_s=100), clock, Somebody())
    tries.begin()
    clock.sleep(3600)
    tries.pause(3600)
    tries.wait(STALE)
    assert clock.slept_s == [3600, 0.25]


def test_the_end_says_what_is_known() -> None:
    """Whether it landed, where that is not known; else, and where nothing was sent, when to come again."""
    for trouble, has_sent, words in (
        (Trouble.UNKNOWN, True, "Whether it landed is not known"),
        (Trouble.UNKNOWN, False, "again later"),
        (Trouble.BUSY, True, "again later"),
    ):
        tries = Tries(Pace(tries=1), QuickClock(), Somebody())
        tries.begin()
        with pytest.raises(PublishingFailed, match=words):
            tries.wait(HubFailure(trouble), has_sent=has_sent)


def test_what_another_try_may_mend() -> None:
    """Four troubles; all others end it."""
    mended = {trouble for trouble in Trouble if is_transient(HubFailure(trouble))}
    assert mended == {Trouble.STALE_PARENT, Trouble.BUSY, Trouble.RATE_LIMITED, Trouble.UNKNOWN}


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.04, "0.0 s"), (9.5, "9.5 s"), (55, "55 s"), (60, "1 min"), (271, "4 min 31 s")]
)
def test_seconds_as_people_say_them(seconds: float, said: str) -> None:
    """Rounded, minutes apart."""
    assert told_s(seconds) == said


def test_the_real_clock() -> None:
    """Goes on while it sleeps; its chance is between 0 and 1."""
    clock = RealClock()
    began_s = clock.now_s()
    clock.sleep(0.01)
    assert clock.now_s() - began_s >= 0.01
    assert 0 <= clock.chance() < 1
