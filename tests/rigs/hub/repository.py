"""One repo: its commits, branches, tags and pull request heads. No accounts, no HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .discussions import Discussion
from .objects import Commit, File, Files
from .refusals import Kind, Refusal

SHORTEST_OID = 7
MAIN = "main"


@dataclass(frozen=True, slots=True)
class Put:
    """Write a file."""

    path: str
    file: File


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a file, or with ``is_folder`` everything below a directory."""

    path: str
    is_folder: bool = False


Edit = Put | Delete


@dataclass(frozen=True, slots=True)
class Message:
    """What a commit says, and who says it."""

    summary: str
    description: str = ""
    author: str = "loopback"


@dataclass
class Repository:
    """The state of one repo. ``now_s`` is later at each call, so that no two commits are equal."""

    repo_id: str
    now_s: Callable[[], int]
    private: bool = False
    gated: str | bool = False
    readers: frozenset[str] = frozenset()
    lfs_paths: tuple[str, ...] = ()
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    pulls: dict[int, str] = field(default_factory=dict)
    discussions: dict[int, Discussion] = field(default_factory=dict)
    lfs_objects: dict[str, bytes] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        return self.repo_id.partition("/")[0]

    def is_lfs_path(self, path: str) -> bool:
        """Whether the repo was told to keep ``path`` in LFS."""
        return any(fnmatchcase(path, pattern) for pattern in self.lfs_paths)

    def resolve(self, revision: str) -> Commit:
        """The commit that a branch, tag, ``refs/…`` name or (short) commit id stands for."""
        for candidate in (self._reference(revision), revision):
            if candidate is not None and candidate in self.commits:
                return self.commits[candidate]
        if re.fullmatch(rf"[0-9a-f]{{{SHORTEST_OID},39}}", revision):
            matches = [oid for oid in self.commits if oid.startswith(revision)]
            if len(matches) == 1:
                return self.commits[matches[0]]
        raise Refusal(Kind.NO_REVISION, f"Invalid rev id: {revision}")

    def _reference(self, revision: str) -> str | None:
        short = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        if pull := re.fullmatch(r"refs/pr/(\d+)", revision):
            return self.pulls.get(int(pull[1]))
        return self.branches.get(short) or self.tags.get(short)

    def entry(self, commit: Commit, path: str) -> File:
        """The file at ``path``; a refusal names the commit, so that a client can remember the absence."""
        if path not in commit.files:
            raise Refusal(Kind.NO_ENTRY, "Entry not found", headers={"X-Repo-Commit": commit.oid})
        return commit.files[path]

    def commit(
        self, edits: Iterable[Edit], message: Message, *, revision: str = MAIN, parent: str | None = None
    ) -> Commit:
        """Move a branch or a pull request by one commit; a ``parent`` that is not its head is refused."""
        target = self._movable(revision)
        head = self.resolve(revision) if target in self.branches or isinstance(target, int) else None
        if parent is not None and (head is None or not head.oid.startswith(parent)):
            raise Refusal(Kind.STALE_PARENT, "A commit has happened since. Please refresh and try again.")
        made = self.add_commit(head, edits, message)
        if isinstance(target, int):
            self.pulls[target] = made.oid
            self.discussions[target].add_commit(made)
        else:
            self.branches[target] = made.oid
        return made

    def _movable(self, revision: str) -> str | int:
        """The branch name or pull request number that ``revision`` stands for."""
        if pull := re.fullmatch(r"refs/pr/(\d+)", revision):
            if int(pull[1]) in self.pulls:
                return int(pull[1])
        else:
            branch = revision.removeprefix("refs/heads/")
            if branch in self.branches or not self.branches:
                return branch
        raise Refusal(Kind.NO_REVISION, f"Invalid rev id: {revision}")

    def add_commit(self, base: Commit | None, edits: Iterable[Edit], message: Message) -> Commit:
        """A commit on top of ``base`` that no reference points to yet."""
        if not message.summary:
            raise Refusal(Kind.INVALID, '"summary" is not allowed to be empty')
        made = Commit(
            files=edited(base.files if base else {}, edits),
            parent=base.oid if base else None,
            summary=message.summary,
            description=message.description,
            author=message.author,
            time_s=self.now_s(),
        )
        self.commits[made.oid] = made
        self.lfs_objects.update({file.sha256: file.content for file in made.files.values() if file.is_lfs})
        return made

    def branch(self, name: str, start: str = MAIN) -> None:
        """Add a branch at the commit that ``start`` stands for."""
        _refuse_known(name, self.branches)
        self.branches[name] = self.resolve(start).oid

    def tag(self, name: str, revision: str = MAIN) -> None:
        """Add a tag at the commit that ``revision`` stands for."""
        _refuse_known(name, self.tags)
        self.tags[name] = self.resolve(revision).oid

    def history(self, commit: Commit) -> list[Commit]:
        """The commit and its ancestors, newest first."""
        found = [commit]
        while (parent := found[-1].parent) is not None:
            found.append(self.commits[parent])
        return found


def _refuse_known(name: str, references: dict[str, str]) -> None:
    if name in references:
        raise Refusal(Kind.CONFLICT, f"Reference already exists: {name}")


def edited(files: Files, edits: Iterable[Edit]) -> dict[str, File]:
    """``files`` after the edits, in their order; sorted by path, as the Hub lists them."""
    after = dict(files)
    for edit in edits:
        _refuse_bad_path(edit.path)
        if isinstance(edit, Put):
            after[edit.path] = edit.file
            continue
        prefix = edit.path.rstrip("/") + "/"
        gone = [path for path in after if (path.startswith(prefix) if edit.is_folder else path == edit.path)]
        if not gone:
            raise Refusal(Kind.NO_ENTRY, f"A file with this name doesn't exist: {edit.path}")
        for path in gone:
            del after[path]
    return dict(sorted(after.items()))


def _refuse_bad_path(path: str) -> None:
    parts = path.rstrip("/").split("/")
    if any(part in {"", ".", "..", ".git"} for part in parts):
        raise Refusal(Kind.INVALID, f"Invalid path: {path!r}")
