"""Work with a deadline: a Hub or a driver that does not answer must not keep a server from starting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """``work()``, its result or its exception. Raises ``TimeoutError`` after ``seconds``."""
    return begun(work)(seconds)


def begun(work: Callable[[], T]) -> Callable[[float], T]:
    """Begin ``work()`` now; what is returned waits for it, as :func:`within` does, and is called once.

    It runs in a daemon thread: a call that hangs in a socket or a driver cannot be stopped, only left behind.
    """
    results: queue.SimpleQueue[tuple[T]] = queue.SimpleQueue()
    failures: queue.SimpleQueue[Exception] = queue.SimpleQueue()
    done = threading.Event()

    def run() -> None:
        try:
            results.put((work(),))
        except Exception as error:
            failures.put(error)
        done.set()

    def wait(seconds: float) -> T:
        if not done.wait(seconds):
            raise TimeoutError(f"no answer in {seconds:g} s")
        if not failures.empty():
            raise failures.get()
        return results.get()[0]

    threading.Thread(target=run, name="zenit-hub", daemon=True).start()
    return wait
