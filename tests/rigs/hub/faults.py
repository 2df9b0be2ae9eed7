"""What the hub can be told to do wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass
class Fault:
    """One misbehaviour and the requests that it befalls.

    ``path`` is a shell pattern over the decoded path without the query (``*`` crosses slashes).
    ``times`` None goes on until ``heal()``; ``skip`` lets that many matching requests through first.
    With ``after_effect`` the request does its work before the status, the drop or the stall.
    """

    method: str = "*"
    path: str = "*"
    times: int | None = 1
    skip: int = 0
    status: int | None = None
    message: str = "told to fail"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    stall_s: float = 0.0
    after_effect: bool = False
    meanwhile: Callable[[], object] | None = None
    hits: int = 0
    healed: threading.Event = field(default_factory=threading.Event)

    def matches(self, method: str, path: str) -> bool:
        return fnmatchcase(method, self.method) and fnmatchcase(path, self.path)


def limit_headers(retry_after_s: int | None, rate_limit_reset_s: int | None) -> dict[str, str]:
    """The two ways in which the Hub says how long to wait, in seconds."""
    headers = {}
    if retry_after_s is not None:
        headers["Retry-After"] = str(retry_after_s)
    if rate_limit_reset_s is not None:
        headers["RateLimit"] = f'"api";r=0;t={rate_limit_reset_s}'
        headers["RateLimit-Policy"] = '"fixed window";"api";q=500;w=300'
    return headers


@dataclass
class StaleInfo:
    """A replica that lags: model info of ``repo_id`` shows ``oid`` as the head ``times`` more times."""

    repo_id: str
    branch: str
    oid: str
    times: int


class Faults:
    """The armed faults; each request is befallen by at most one, the one that was armed first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._armed: list[Fault] = []
        self._stale: list[StaleInfo] = []

    def arm(self, fault: Fault) -> Fault:
        with self._lock:
            self._armed.append(fault)
        return fault

    def arm_stale(self, stale: StaleInfo) -> None:
        with self._lock:
            self._stale.append(stale)

    def heal(self) -> None:
        """Behave from here on, also towards those who are waiting."""
        with self._lock:
            for fault in self._armed:
                fault.healed.set()
            self._armed.clear()
            self._stale.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """The fault that befalls this request, counted."""
        with self._lock:
            for fault in self._armed:
                if not fault.matches(method, path) or fault.times == 0:
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.hits += 1
                fault.times = None if fault.times is None else fault.times - 1
                return fault
        return None

    def take_stale(self, repo_id: str, branch: str) -> str | None:
        """The old head to show for this branch, if there is one to show."""
        with self._lock:
            for stale in self._stale:
                if (stale.repo_id, stale.branch) == (repo_id, branch) and stale.times > 0:
                    stale.times -= 1
                    return stale.oid
        return None
