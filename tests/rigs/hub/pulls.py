"""What a repo does with pull requests: open, compare, merge."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .discussions import Discussion
from .objects import Commit, File, Files
from .refusals import Kind, Refusal
from .repository import MAIN, Delete, Edit, Message, Put, Repository


def open_discussion(repo: Repository, title: str, description: str, author: str) -> Discussion:
    """A discussion without changes. Discussions and pull requests share one row of numbers."""
    num = len(repo.discussions) + 1
    made = Discussion(num=num, title=title, author=author, time_s=repo.now_s())
    made.add_comment(author, description, made.time_s)
    repo.discussions[num] = made
    return made


def open_pull(
    repo: Repository, message: Message, *, branch: str = MAIN, parent: str | None = None
) -> Discussion:
    """A pull request without commits yet, based on ``parent`` (any commit) or on the branch's head."""
    branch = branch.removeprefix("refs/heads/")
    if branch not in repo.branches:
        raise Refusal(Kind.NO_REVISION, f"Invalid rev id: {branch}")
    base = repo.resolve(parent or branch)
    made = open_discussion(repo, message.summary, message.description, message.author)
    made.base = base
    made.target_branch = branch
    repo.pulls[made.num] = base.oid
    return made


def propose(
    repo: Repository,
    edits: Iterable[Edit],
    message: Message,
    *,
    branch: str = MAIN,
    parent: str | None = None,
) -> tuple[Discussion, Commit]:
    """A pull request that holds one commit. It starts at ``parent`` even when the branch has moved on."""
    commit = repo.add_commit(repo.resolve(parent or branch), edits, message)
    made = open_pull(repo, message, branch=branch, parent=parent)
    repo.pulls[made.num] = commit.oid
    made.add_commit(commit)
    return made, commit


def conflicts(repo: Repository, pull: Discussion) -> list[str]:
    """The paths that both the pull request and its branch changed since the base, differently."""
    base, ours, theirs = _three(repo, pull)
    return sorted(
        path
        for path in {*base, *ours, *theirs}
        if ours.get(path) != theirs.get(path) and base.get(path) not in (ours.get(path), theirs.get(path))
    )


def merge(repo: Repository, pull: Discussion, author: str) -> Commit:
    """Put the pull request's changes on its branch as one commit, as the Hub's merge button does."""
    if not pull.is_pull_request or pull.status != "open":
        raise Refusal(Kind.INVALID, f"Only an open pull request can be merged; this one is {pull.status}")
    if clashing := conflicts(repo, pull):
        raise Refusal(Kind.CONFLICT, f"This pull request has conflicts: {', '.join(clashing)}")
    base, ours, theirs = _three(repo, pull)
    edits: list[Edit] = [
        Put(path, theirs[path]) if path in theirs else Delete(path)
        for path in sorted({*base, *theirs})
        if theirs.get(path) not in (base.get(path), ours.get(path))
    ]
    message = Message(f"{pull.title} (#{pull.num})", f"- {pull.title} ({repo.pulls[pull.num]})", author)
    commit = repo.commit(edits, message, revision=pull.target_branch or MAIN)
    pull.merge_commit = commit.oid
    pull.change_status(author, "merged", commit.time_s)
    return commit


def _three(repo: Repository, pull: Discussion) -> tuple[Files, Files, Files]:
    base = pull.base.files if pull.base else {}
    return base, repo.resolve(pull.target_branch or MAIN).files, repo.commits[repo.pulls[pull.num]].files


def diff(repo: Repository, pull: Discussion) -> str:
    """The unified diff between the base and the pull request's head."""
    before, _, after = _three(repo, pull)
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    return "".join(_file_diff(path, before.get(path), after.get(path)) for path in changed)


def _file_diff(path: str, old: File | None, new: File | None) -> str:
    lines = difflib.unified_diff(
        _lines(old),
        _lines(new),
        f"a/{path}" if old else "/dev/null",
        f"b/{path}" if new else "/dev/null",
    )
    return f"diff --git a/{path} b/{path}\n" + "".join(lines)


def _lines(file: File | None) -> list[str]:
    if file is None:
        return []
    stored = file.pointer if file.is_lfs else file.content
    *whole, last = stored.decode(errors="replace").split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, f"{last}\n\\ No newline at end of file\n"] if last else lines
