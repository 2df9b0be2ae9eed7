"""What a call to the Hub came to, and what a publication came to: both are closed sets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from zenit_hub.errors import PublicationError


class Trouble(Enum):
    """Why a call to the Hub did not do what it was for."""

    STALE_PARENT = "the branch moved meanwhile (412)"
    BUSY = "another change is being written (409)"
    RATE_LIMITED = "it has been asked too often (429)"
    UNKNOWN = "there was no answer that says what happened"
    UNAUTHORIZED = "it does not know who asks (401)"
    FORBIDDEN = "the token may not do this (403)"
    GATED = "access to the repo is restricted"
    NO_REPO = "there is no such repo, or it is private (404)"
    NO_REVISION = "the repo has no such revision (404)"
    NO_FILE = "the repo has no such file (404)"
    BAD_METADATA = "it does not accept the metadata of README.md"
    REFUSED = "it refuses the request"
    CLIENT = "its client failed here"


TRANSIENT = frozenset({Trouble.STALE_PARENT, Trouble.BUSY, Trouble.RATE_LIMITED, Trouble.UNKNOWN})
"""What another try may mend."""


class HubFailure(Exception):
    """One call that failed.

    ``said``: the Hub's own words, or the kind of a transport's error; printable, without the token.
    ``wait_s``: how long the Hub asks to wait; ``None``: it does not say.
    """

    def __init__(
        self, trouble: Trouble, *, status: int | None = None, said: str = "", wait_s: float | None = None
    ) -> None:
        self.trouble = trouble
        self.status = status
        self.said = said
        self.wait_s = wait_s
        super().__init__(self.sentence)

    @property
    def sentence(self) -> str:
        """What happened, for people: ``it refuses the request (400): …``."""
        why = self.trouble.value
        if self.status is not None and str(self.status) not in why:
            why += f" ({self.status})"
        return f"{why}: {self.said.rstrip('.')}" if self.said else why


class PublishingFailed(PublicationError):
    """A publication that ended without one. ``trouble`` is ``None`` where the Hub is not to blame."""

    def __init__(
        self, what: str, *, next_step: str = "", trouble: Trouble | None = None, tries: int = 0
    ) -> None:
        self.trouble = trouble
        self.tries = tries
        super().__init__(what, next_step=next_step)


@dataclass(frozen=True, slots=True)
class Nothing:
    """Everything is there already; nothing was sent. ``pull_request``: the open one that holds it."""

    commit: str
    url: str
    tries: int
    pull_request: int | None = None
    outcome: Literal["nothing"] = "nothing"


@dataclass(frozen=True, slots=True)
class Published:
    """The branch holds it. ``commit``: the one that brought it, or, where the Hub's answer to it was lost, the
    one at which it was seen. ``config_changed``: serving machines compile once."""

    commit: str
    url: str
    files: tuple[str, ...]
    tries: int
    config_changed: bool
    outcome: Literal["published"] = "published"


@dataclass(frozen=True, slots=True)
class Proposed:
    """A pull request holds it. ``updated``: one that was open already."""

    pull_request: int
    commit: str
    url: str
    files: tuple[str, ...]
    tries: int
    updated: bool
    config_changed: bool
    outcome: Literal["pull_request"] = "pull_request"


@dataclass(frozen=True, slots=True)
class Previewed:
    """What would be sent. ``commit``: the one that it was prepared on; ``diff``: for people."""

    commit: str
    files: tuple[str, ...]
    lines: tuple[str, ...]
    diff: str
    tries: int
    outcome: Literal["dry_run"] = "dry_run"


@dataclass(frozen=True, slots=True)
class Declined:
    """The person said no."""

    commit: str
    files: tuple[str, ...]
    tries: int
    outcome: Literal["declined"] = "declined"


Publication = Nothing | Published | Proposed | Previewed | Declined
