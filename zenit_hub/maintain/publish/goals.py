"""Where a publication writes: a branch, a new pull request, or the one of ours that is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from zenit_hub.maintain.publish.advice import Asked
from zenit_hub.maintain.publish.content import Content, Rendered
from zenit_hub.maintain.publish.hub import Hub, Pull
from zenit_hub.maintain.publish.pulls import own_pull
from zenit_hub.maintain.publish.retry import Listener
from zenit_hub.maintain.publish.snapshot import Snapshot, take
from zenit_hub.text import listed, printable


@dataclass(frozen=True, slots=True)
class Goal:
    """``revision`` as it stands at ``here``. ``pull``: our pull request that is updated; ``opens``: a new one holds
    the commit."""

    here: Snapshot
    revision: str
    pull: Pull | None = None
    opens: bool = False

    def changed(self, rendered: Rendered) -> dict[str, bytes]:
        """The files that are not there yet."""
        return {path: data for path, data in rendered.files.items() if not self.here.holds(path, data)}


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a person is asked about before it is sent."""

    repo: str
    goal: Goal
    files: tuple[str, ...]
    lines: tuple[str, ...]
    remarks: tuple[str, ...]


class Person(Listener, Protocol):
    """Who publishes."""

    def agrees(self, proposal: Proposal) -> bool:
        """Asked once, before anything is sent."""


def find_goal(hub: Hub, content: Content, asked: Asked, listener: Listener, author: str | None) -> Goal:
    """The goal as it stands now. ``author``: whose pull request it would be; ``None``: of nobody known.

    Raises :class:`~zenit_hub.maintain.publish.outcomes.HubFailure`, and
    :class:`~zenit_hub.errors.PublicationError` for what the branch would not take.
    """
    branch = Goal(take(hub, asked.branch, content.paths, content.needs), asked.branch, opens=asked.create_pr)
    pull = own_pull(hub, asked.branch, author) if asked.create_pr and author else None
    if pull is None:
        return branch
    # What may be published is asked of the branch, where it will end up.
    if not branch.changed(content.render(branch.here)):
        listener.note(
            f"Pull request {pull.number} is still open; {printable(asked.branch)} has all of it already."
        )
        return branch
    if pull.conflicts:
        listener.note(
            f"Pull request {pull.number} is in conflict with {printable(asked.branch)} in {listed(pull.conflicts)}: "
            f"close it and run the same command again for a new one."
        )
    return Goal(take(hub, pull.revision, content.paths, content.needs), pull.revision, pull)
