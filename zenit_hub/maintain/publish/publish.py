"""A publication: read the repo at one commit, put the measurements in, send one commit, see that it is there.

What is sent depends on what was read, and the Hub takes it only on top of that. So every try begins with
reading, and whatever went wrong before it (somebody else's commit, an answer that was lost) is seen there:
what is in the repo already is not sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from zenit_hub.limits import CONFIG_NAME
from zenit_hub.maintain.publish.advice import Asked, explained
from zenit_hub.maintain.publish.content import Content, Rendered, Written
from zenit_hub.maintain.publish.diff import unified
from zenit_hub.maintain.publish.hub import README_NAME, Hub, Message, Pull, Sent, offline
from zenit_hub.maintain.publish.outcomes import (
    Declined,
    HubFailure,
    Nothing,
    Previewed,
    Proposed,
    Publication,
    Published,
    PublishingFailed,
    Trouble,
)
from zenit_hub.maintain.publish.pulls import marked, own_pull
from zenit_hub.maintain.publish.retry import Clock, Listener, Pace, RealClock, Tries, is_transient
from zenit_hub.maintain.publish.snapshot import Snapshot, take, take_cached
from zenit_hub.text import listed, printable, shown

_COMMIT_DIGITS = 40


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a try writes: ``revision`` as it stands at ``here``. ``pull``: our pull request that is updated;
    ``opens``: a new one holds the commit."""

    here: Snapshot
    revision: str
    pull: Pull | None = None
    opens: bool = False


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


@dataclass(frozen=True, slots=True)
class Waits:
    """How long is waited, and by which clock."""

    pace: Pace = field(default_factory=Pace)
    clock: Clock = field(default_factory=RealClock)


def publish(
    hub: Hub, content: Content, asked: Asked, person: Person, waits: Waits | None = None
) -> Publication:
    """One commit or one pull request, or nothing.

    Raises :class:`~zenit_hub.errors.PublicationError` (:class:`PublishingFailed` for what the Hub did).
    """
    if offline():
        return _offline(hub, content, asked, person)
    waits = waits or Waits()
    return _Run(hub, content, asked, person, Tries(waits.pace, waits.clock, person)).publish()


def _offline(hub: Hub, content: Content, asked: Asked, listener: Listener) -> Publication:
    if not asked.dry_run:
        raise PublishingFailed(
            "nothing can be published offline (HF_HUB_OFFLINE is set)",
            next_step="Unset it, or look at what would be sent with --dry-run --revision COMMIT.",
        )
    if not is_commit(asked.branch):
        raise PublishingFailed(
            f"what {printable(asked.branch)} stands for cannot be asked offline (HF_HUB_OFFLINE is set)",
            next_step="Name a commit that is in the cache: --dry-run --revision COMMIT (40 digits).",
        )
    here = take_cached(hub, asked.branch, content.needs)
    listener.warning("offline: whether the weights are those that were measured cannot be seen")
    return _preview(here, content.render(here), 0)


def is_commit(revision: str) -> bool:
    """Whether that is a whole commit id, which nothing can be put on top of."""
    return len(revision) == _COMMIT_DIGITS and all(digit in "0123456789abcdef" for digit in revision)


@dataclass(slots=True)
class _Run:
    """``first``: what stood at the keys that we write when a revision was read first. ``sent``: the paths of the
    commit that was sent last; ``unanswered``: its answer was lost; ``acknowledged``: it was not."""

    hub: Hub
    content: Content
    asked: Asked
    person: Person
    tries: Tries
    first: dict[str, Written] = field(default_factory=dict)
    may: bool = False
    author: str | None = None
    has_agreed: bool = False
    sent: tuple[str, ...] = ()
    unanswered: bool = False
    acknowledged: Sent | None = None

    def publish(self) -> Publication:
        while True:
            self.tries.begin()
            try:
                return self._try()
            except HubFailure as failure:
                try:
                    self._before_another(failure)
                except PublishingFailed:
                    if self.acknowledged is None:
                        raise
                    self.person.warning(
                        f"the Hub took the commit; that it holds what was sent could not be seen: {failure.sentence}"
                    )
                    return self._done(self.acknowledged, self.acknowledged.pull_request)

    def _before_another(self, failure: HubFailure) -> None:
        """Wait for another try. Raises :class:`PublishingFailed` where there is none."""
        if not is_transient(failure):
            raise explained(failure, self.hub, self.asked, self.tries.number)
        self.tries.wait(failure)

    def _try(self) -> Publication:
        self._check_access()
        goal = self._goal()
        rendered = self.content.render(goal.here)
        self._refuse_conflicts(goal.revision, rendered)
        changed = _changed(goal.here, rendered)
        if not changed or (goal.pull is None and self._landed(changed)):
            return self._there_already(goal)
        if self.asked.dry_run:
            return _preview(goal.here, rendered, self.tries.number)
        if not self._agree(goal, rendered, changed):
            return Declined(goal.here.commit, tuple(changed), self.tries.number)
        sent = self._send(goal, changed)
        self.acknowledged = sent
        for remark in sent.remarks:
            self.person.warning(f"the Hub on README.md: {remark}")
        self._see_that_it_is_there(goal, sent, changed)
        return self._done(sent, goal.pull.number if goal.pull else sent.pull_request, updated=bool(goal.pull))

    def _check_access(self) -> None:
        """Before anything is read: who may not write should hear it first."""
        if self.may:
            return
        if not self.asked.dry_run:
            # A pull request's own commits are its author's, who need not have a right to the branches.
            self.hub.check_access(
                write=not self.asked.create_pr and not self.asked.branch.startswith("refs/pr/")
            )
        if self.asked.create_pr and (self.hub.has_token or not self.asked.dry_run):
            self.author = self.hub.user()
        self.may = True

    def _goal(self) -> Goal:
        branch = self.asked.branch
        here = self._read(branch)
        if not self.asked.create_pr:
            return Goal(here, branch)
        pull = own_pull(self.hub, branch, self.author) if self.author else None
        if pull is None:
            return Goal(here, branch, opens=True)
        # What may be published is asked of the branch, where it will end up.
        if not _changed(here, self.content.render(here)):
            self.person.note(
                f"Pull request {pull.number} is still open; {printable(branch)} has all of it already."
            )
            return Goal(here, branch)
        if pull.conflicts:
            self.person.warning(
                f"pull request {pull.number} is in conflict with {printable(branch)} in {listed(pull.conflicts)}; "
                f"close it and run the same command again for a new one"
            )
        return Goal(self._read(pull.revision), pull.revision, pull)

    def _read(self, revision: str) -> Snapshot:
        return take(self.hub, revision, self.content.paths, self.content.needs)

    def _refuse_conflicts(self, revision: str, rendered: Rendered) -> None:
        first = self.first.setdefault(revision, rendered.before)
        foreign = [
            key
            for key, now in rendered.before.items()
            if now != first.get(key) and now != rendered.after.get(key)
        ]
        if not foreign:
            return
        shown_keys = "; ".join(
            f"{self.content.shown(key)} was {_value(first.get(key))}, is {_value(rendered.before[key])} now, "
            f"yours is {_value(rendered.after.get(key))}"
            for key in foreign
        )
        if not self.asked.force:
            raise PublishingFailed(
                f"somebody else changed what you publish while it was on its way: {shown_keys}",
                next_step=f"To put yours in its place: {self.asked.command} --force",
                trouble=Trouble.STALE_PARENT,
                tries=self.tries.number,
            )
        self.person.warning(f"put in the place of what somebody else published meanwhile: {shown_keys}")
        self.first[revision] = rendered.before

    def _agree(self, goal: Goal, rendered: Rendered, changed: dict[str, bytes]) -> bool:
        if not self.has_agreed:
            began_s = self.tries.clock.now_s()
            proposal = Proposal(self.hub.repo, goal, tuple(changed), rendered.lines, rendered.remarks)
            self.has_agreed = self.person.agrees(proposal)
            self.tries.pause(self.tries.clock.now_s() - began_s)
        return self.has_agreed

    def _send(self, goal: Goal, changed: dict[str, bytes]) -> Sent:
        message: Message = self.content.message
        self.sent = tuple(changed)
        try:
            return self.hub.commit(
                changed,
                marked(message) if goal.opens else message,
                revision=goal.revision,
                parent=goal.here.commit,
                create_pr=goal.opens,
            )
        except HubFailure as failure:
            self.unanswered = self.unanswered or failure.trouble is Trouble.UNKNOWN
            raise

    def _see_that_it_is_there(self, goal: Goal, sent: Sent, changed: dict[str, bytes]) -> None:
        held = self.hub.entries(sent.commit, changed)
        wrong = [path for path, data in changed.items() if path not in held or not held[path].holds(data)]
        if not wrong:
            return
        if goal.opens:
            # The branch moved in between: the client leaves out what equals the branch's new head.
            self.person.note(f"Pull request {sent.pull_request} lacks {listed(wrong)}: adding it.")
            raise HubFailure(Trouble.STALE_PARENT)
        raise PublishingFailed(
            f"commit {sent.commit} does not hold what was sent: {listed(wrong)}",
            next_step="Look whether the repo's .gitignore leaves it out, then run the same command again.",
            tries=self.tries.number,
        )

    def _landed(self, changed: dict[str, bytes]) -> bool:
        """Whether the commit whose answer was lost is there, under a later one that left the card as it was."""
        answer_lost = self.unanswered or self.acknowledged is not None
        return answer_lost and CONFIG_NAME in self.sent and changed.keys() == {README_NAME}

    def _there_already(self, goal: Goal) -> Publication:
        number = goal.pull.number if goal.pull else None
        if self.acknowledged is None and not self.unanswered:
            page = f"{self.hub.page}/discussions/{number}" if number else self._commit_page(goal.here.commit)
            return Nothing(goal.here.commit, page, self.tries.number, number)
        if self.acknowledged is None:
            self.person.note("It is there: only the Hub's answer was lost.")
        return self._done(self.acknowledged or Sent(goal.here.commit), number)

    def _done(self, sent: Sent, number: int | None, *, updated: bool = False) -> Publication:
        files, tries, config_changed = self.sent, self.tries.number, CONFIG_NAME in self.sent
        if number is None:
            page = self._commit_page(sent.commit)
            return Published(sent.commit, page, files, tries, config_changed)
        page = f"{self.hub.page}/discussions/{number}"
        return Proposed(number, sent.commit, page, files, tries, updated, config_changed)

    def _commit_page(self, commit: str) -> str:
        return f"{self.hub.page}/commit/{commit}"


def _changed(here: Snapshot, rendered: Rendered) -> dict[str, bytes]:
    return {path: data for path, data in rendered.files.items() if not here.holds(path, data)}


def _preview(here: Snapshot, rendered: Rendered, tries: int) -> Previewed:
    changed = _changed(here, rendered)
    diff = "".join(unified(path, here.read.get(path), data) for path, data in changed.items())
    return Previewed(here.commit, tuple(changed), rendered.lines, diff, tries)


def _value(value: object) -> str:
    return "not there" if value is None else shown(value, limit=200)
