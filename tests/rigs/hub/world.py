"""All repos and accounts of a hub, and who may do what. No HTTP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from .refusals import Kind, Refusal
from .repository import Repository


@dataclass(frozen=True, slots=True)
class Account:
    """Whose token a request carries. A ``read`` token changes nothing, not even by a pull request."""

    name: str
    role: str = "write"
    organizations: tuple[str, ...] = ()

    def owns(self, repo: Repository) -> bool:
        return repo.owner in (self.name, *self.organizations)


Reader = Account | None


@dataclass
class World:
    """The hub's whole memory."""

    repos: dict[str, Repository] = field(default_factory=dict)
    tokens: dict[str, Account] = field(default_factory=dict)
    _last_s: int = 0

    def now_s(self) -> int:
        """Seconds since 1970, later at each call: git's times are whole seconds, and ids must differ."""
        self._last_s = max(int(time.time()), self._last_s + 1)
        return self._last_s

    def account(self, token: str | None) -> Reader:
        """The account of a token; None without one."""
        if token is None:
            return None
        if token not in self.tokens:
            raise Refusal(Kind.BAD_TOKEN, "Invalid credentials in Authorization header")
        return self.tokens[token]

    def readable(self, repo_id: str, reader: Reader) -> Repository:
        """A repo that this reader may know of. A private one is hidden, not forbidden."""
        repo = self.repos.get(repo_id)
        if repo is None or (repo.private and not _is_let_in(repo, reader)):
            raise Refusal(Kind.NO_REPO, "Repository not found")
        return repo

    def fetchable(self, repo_id: str, reader: Reader) -> Repository:
        """A repo whose files this reader may have: of a gated one, the listing is open, the files are not."""
        repo = self.readable(repo_id, reader)
        if repo.gated and not _is_let_in(repo, reader):
            raise Refusal(
                Kind.GATED,
                f"Access to model {repo_id} is restricted and you are not in the authorized list. "
                f"Visit the page of {repo_id} to ask for access.",
            )
        return repo

    def proposable(self, repo_id: str, reader: Reader) -> tuple[Repository, Account]:
        """A repo where this account may open pull requests and discussions."""
        repo = self.readable(repo_id, reader)
        account = signed_in(reader)
        if account.role != "write":
            raise Refusal(Kind.FORBIDDEN, "Authorization error: this token only has the read role")
        return repo, account

    def writable(self, repo_id: str, reader: Reader) -> tuple[Repository, Account]:
        """A repo whose branches this account may move."""
        repo, account = self.proposable(repo_id, reader)
        if not account.owns(repo):
            raise Refusal(Kind.FORBIDDEN, f"Authorization error: no write access to {repo_id}")
        return repo, account

    def add_repo(self, repo: Repository) -> None:
        """Take a repo in."""
        if repo.repo_id in self.repos:
            raise Refusal(Kind.CONFLICT, "You already created this model repo")
        self.repos[repo.repo_id] = repo


def signed_in(reader: Reader) -> Account:
    """The account, or a refusal for a request without token."""
    if reader is None:
        raise Refusal(Kind.ANONYMOUS, "Invalid username or password.")
    return reader


def _is_let_in(repo: Repository, reader: Reader) -> bool:
    return reader is not None and (reader.owns(repo) or reader.name in repo.readers)
