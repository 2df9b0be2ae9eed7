"""What the hub says no to, in words that know nothing of HTTP; ``wire`` turns a kind into a status."""

from __future__ import annotations

from enum import Enum


class Kind(Enum):
    """Why a request is refused."""

    BAD_TOKEN = "the token itself is unknown"
    ANONYMOUS = "this needs a token"
    FORBIDDEN = "the token may not do this"
    GATED = "the repo exists, its files need an accepted request"
    NO_REPO = "no such repo, or none that this reader may know of"
    NO_REVISION = "no such branch, tag, pull request or commit"
    NO_ENTRY = "no such file at this commit"
    NO_PAGE = "no such discussion or address"
    STALE_PARENT = "the branch moved since the parent commit"
    CONFLICT = "something of that name exists, or two changes collide"
    INVALID = "the request makes no sense"
    RANGE = "the range lies outside of the file"


class Refusal(Exception):
    """A request that has no effect. ``headers`` go with the answer as they are."""

    def __init__(self, kind: Kind, message: str, *, headers: dict[str, str] | None = None) -> None:
        self.kind = kind
        self.message = message
        self.headers = headers or {}
        super().__init__(message)
