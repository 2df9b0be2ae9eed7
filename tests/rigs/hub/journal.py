"""What a hub was asked."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from .wire import Call


@dataclass
class Request:
    """One request as it arrived. ``path`` is decoded; ``status`` is None while unanswered, and if dropped."""

    method: str
    path: str
    query: str
    authorized: bool
    status: int | None = None


class Journal:
    """The requests in the order of arrival; each is written down before the client has its answer."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def add(self, call: Call) -> Request:
        made = Request(call.method, call.path, call.query_text, call.token is not None)
        self._requests.append(made)
        return made

    def all(self) -> list[Request]:
        return list(self._requests)

    def count(self, method: str, path: str) -> int:
        """How many requests match both shell patterns (``*`` crosses slashes)."""
        return sum(
            fnmatchcase(each.method, method) and fnmatchcase(each.path, path) for each in self._requests
        )

    def forget(self) -> None:
        self._requests = []
