"""Discussions and pull requests as the Hub keeps them: a title, a status and a list of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .objects import Commit


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a discussion; ``data`` is in the Hub's own words."""

    kind: str
    author: str
    time_s: int
    data: dict[str, Any]


@dataclass
class Discussion:
    """A discussion, or a pull request when ``base`` (the commit that it started from) is there."""

    num: int
    title: str
    author: str
    time_s: int
    status: str = "open"
    target_branch: str | None = None
    base: Commit | None = None
    merge_commit: str | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def is_pull_request(self) -> bool:
        return self.base is not None

    @property
    def description(self) -> str:
        """The opening comment, where a publisher leaves its marker."""
        comments = [event for event in self.events if event.kind == "comment"]
        return comments[0].data["raw"] if comments else ""

    def add_comment(self, author: str, text: str, time_s: int) -> Event:
        return self._add(Event("comment", author, time_s, {"raw": text}))

    def add_commit(self, commit: Commit) -> Event:
        data = {"subject": commit.summary, "oid": commit.oid}
        return self._add(Event("commit", commit.author, commit.time_s, data))

    def change_status(self, author: str, status: str, time_s: int) -> Event:
        self.status = status
        return self._add(Event("status-change", author, time_s, {"status": status}))

    def change_title(self, author: str, title: str, time_s: int) -> Event:
        data = {"from": self.title, "to": title}
        self.title = title
        return self._add(Event("title-change", author, time_s, data))

    def _add(self, event: Event) -> Event:
        self.events.append(event)
        return event
