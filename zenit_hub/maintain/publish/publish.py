"""A publication: read the repo at one commit, put the measurements in, send one commit, see that it is there.

What is sent depends on what was read, and the Hub takes it only on top of that. So every try begins with
reading, and whatever went wrong before it (somebody else's commit, an answer that was lost) is seen there:
what is in the repo already is not sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from zenit_hub.limits import CONFIG_NAME
from zenit_hub.maintain.publish.advice import Asked, explained
from zenit_hub.maintain.publish.conflicts import FirstSeen
from zenit_hub.maintain.publish.content import Content, Rendered
from zenit_hub.maintain.publish.diff import unified
from zenit_hub.maintain.publish.goals import Goal, Person, Proposal, find_goal
from zenit_hub.maintain.publish.hub import README_NAME, Hub, Sent, offline
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
from zenit_hub.maintain.publish.pulls import marked
from zenit_hub.maintain.publish.retry import Clock, Listener, Pace, RealClock, Tries, is_transient
from zenit_hub.maintain.publish.snapshot import take_cached
from zenit_hub.text import listed, printable

_COMMIT_DIGITS = 40


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
    goal = Goal(here, asked.branch)
    return _preview(goal, content.render(here), 0)


def is_commit(revision: str) -> bool:
    """Whether that is a whole commit id, which nothing can be put on top of."""
    return len(revision) == _COMMIT_DIGITS and all(digit in "0123456789abcdef" for digit in revision)


@dataclass(frozen=True, slots=True)
class _Taken:
    """A commit that the Hub took, and that is to be read back."""

    goal: Goal
    sent: Sent
    files: dict[str, bytes]


@dataclass(slots=True)
class _Run:
    """``sent``: the paths of what may have landed; ``unanswered``: the Hub's answer to a commit was lost;
    ``opened``: a new pull request was asked for."""

    hub: Hub
    content: Content
    asked: Asked
    person: Person
    tries: Tries
    first_seen: FirstSeen = field(default_factory=FirstSeen)
    may: bool = False
    author: str | None = None
    has_agreed: bool = False
    sent: tuple[str, ...] = ()
    unanswered: bool = False
    opened: bool = False
    taken: _Taken | None = None

    def publish(self) -> Publication:
        while True:
            self.tries.begin()
            try:
                return self._try() if self.taken is None else self._read_back(self.taken)
            except HubFailure as failure:
                try:
                    self._before_another(failure)
                except PublishingFailed:
                    if self.taken is None:
                        raise
                    self.person.warning(
                        f"the Hub took the commit; that it holds what was sent could not be seen: {failure.sentence}"
                    )
                    return self._done(self.taken.sent, self.taken.goal)

    def _before_another(self, failure: HubFailure) -> None:
        """Wait for another try. Raises :class:`PublishingFailed` where there is none."""
        if not is_transient(failure):
            raise explained(failure, self.hub, self.asked, self.tries.number)
        self.tries.wait(failure, has_sent=bool(self.sent))

    def _try(self) -> Publication:
        if self.tries.number == 1:
            self.person.note(f"Reading {printable(self.hub.repo)}, {printable(self.asked.branch)}.")
        self._check_access()
        goal = find_goal(self.hub, self.content, self.asked, self.person, self.author)
        rendered = self.content.render(goal.here)
        self._refuse_conflicts(goal.revision, rendered)
        changed = goal.changed(rendered)
        if not changed or self._landed(goal, changed):
            return self._there_already(goal)
        if self.asked.dry_run:
            return _preview(goal, rendered, self.tries.number)
        if not self._agree(goal, rendered, changed):
            return Declined(goal.here.commit, tuple(changed), self.tries.number)
        self.taken = _Taken(goal, self._send(goal, changed), changed)
        for remark in self.taken.sent.remarks:
            self.person.warning(f"the Hub on README.md: {remark}")
        return self._read_back(self.taken)

    def _check_access(self) -> None:
        """Before anything is read: who may not write should hear it first."""
        if self.may:
            return
        if not self.asked.dry_run:
            # A pull request's own commits are its author's, who need not have a right to the branches.
            to_a_branch = not self.asked.create_pr and not self.asked.branch.startswith("refs/pr/")
            self.hub.check_access(write=to_a_branch)
        if self.asked.create_pr and (self.hub.has_token or not self.asked.dry_run):
            self.author = self.hub.user()
        self.may = True

    def _refuse_conflicts(self, revision: str, rendered: Rendered) -> None:
        conflict = self.first_seen.conflict(revision, rendered, self.content.shown)
        if conflict is None:
            return
        if not self.asked.force:
            raise PublishingFailed(
                f"somebody else changed what you publish while it was on its way: {conflict}",
                next_step=f"To publish yours all the same: {self.asked.command} --force",
                trouble=Trouble.STALE_PARENT,
                tries=self.tries.number,
            )
        self.person.warning(f"published over what somebody else published meanwhile: {conflict}")
        self.first_seen.accept(revision, rendered)

    def _agree(self, goal: Goal, rendered: Rendered, changed: dict[str, bytes]) -> bool:
        if not self.has_agreed:
            began_s = self.tries.clock.now_s()
            proposal = Proposal(self.hub.repo, goal, tuple(changed), rendered.lines, rendered.remarks)
            self.has_agreed = self.person.agrees(proposal)
            self.tries.pause(self.tries.clock.now_s() - began_s)
        return self.has_agreed

    def _send(self, goal: Goal, changed: dict[str, bytes]) -> Sent:
        message = self.content.message
        earlier = self.sent if self.unanswered or self.opened else ()
        self.sent = tuple(dict.fromkeys((*earlier, *changed)))
        self.opened = self.opened or goal.opens
        self.person.note(f"Sending {len(changed)} file{'s' if len(changed) > 1 else ''}.")
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

    def _read_back(self, taken: _Taken) -> Publication:
        """See that the commit holds what was sent."""
        held = self.hub.entries(taken.sent.commit, taken.files)
        wrong = [path for path, data in taken.files.items() if path not in held or not held[path].holds(data)]
        pull = taken.goal.pull
        if not wrong and pull is not None and not self.hub.pull(pull.number).is_open:
            # The commit stands in it and goes nowhere any more.
            self.person.note(f"Pull request {pull.number} was merged or closed meanwhile.")
            self.taken = None
            raise HubFailure(Trouble.STALE_PARENT)
        if not wrong:
            return self._done(taken.sent, taken.goal)
        if taken.goal.opens:
            # The branch moved in between: the client leaves out what equals the branch's new head.
            self.person.note(f"Pull request {taken.sent.pull_request} lacks {listed(wrong)}: adding it.")
            self.taken = None
            raise HubFailure(Trouble.STALE_PARENT)
        raise PublishingFailed(
            f"commit {taken.sent.commit} does not hold what was sent: {listed(wrong)}",
            next_step="Look whether the repo's .gitignore leaves it out, then run the same command again.",
            tries=self.tries.number,
        )

    def _landed(self, goal: Goal, changed: dict[str, bytes]) -> bool:
        """Whether the commit whose answer was lost is there, under a later one that left the card as it was."""
        all_but_the_card = CONFIG_NAME in self.sent and changed.keys() == {README_NAME}
        return self.unanswered and goal.pull is None and all_but_the_card

    def _there_already(self, goal: Goal) -> Publication:
        here = goal.here.commit
        if self.unanswered or self.opened:
            self.person.note("It is there: only the Hub's answer was lost.")
            return self._done(Sent(here), goal)
        number = goal.pull.number if goal.pull else None
        page = f"{self.hub.page}/discussions/{number}" if number else self._commit_page(here)
        return Nothing(here, page, self.tries.number, number)

    def _done(self, sent: Sent, goal: Goal) -> Publication:
        number = goal.pull.number if goal.pull else sent.pull_request
        files, tries, config_changed = self.sent, self.tries.number, CONFIG_NAME in self.sent
        if number is None:
            page = self._commit_page(sent.commit)
            return Published(sent.commit, page, files, tries, config_changed)
        page = f"{self.hub.page}/discussions/{number}"
        return Proposed(number, sent.commit, page, files, tries, not self.opened, config_changed)

    def _commit_page(self, commit: str) -> str:
        return f"{self.hub.page}/commit/{commit}"


def _preview(goal: Goal, rendered: Rendered, tries: int) -> Previewed:
    changed, here = goal.changed(rendered), goal.here
    diff = "".join(unified(path, here.read.get(path), data) for path, data in changed.items())
    return Previewed(here.commit, tuple(changed), rendered.lines, diff, tries)
