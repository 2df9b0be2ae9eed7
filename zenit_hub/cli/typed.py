"""What several commands refuse of what was typed, before anything is read or asked."""

from __future__ import annotations

import re
from pathlib import Path

from zenit_hub.errors import UsageError
from zenit_hub.text import printable

_TOKEN = re.compile(r"[!-~]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def check_branch(revision: str, *, may_be_commit: bool = False) -> None:
    """A branch or ``refs/pr/N``, on which a commit can be put. Raises :class:`UsageError`."""
    odd = not revision.isprintable() or any(letter in revision for letter in " %?#\\")
    if odd or not all(part.strip(".") for part in revision.split("/")):
        raise UsageError(
            "--revision names no branch", got=printable(revision), allowed="a branch, or refs/pr/N as it is"
        )
    if _COMMIT.fullmatch(revision) and not may_be_commit:
        raise UsageError(
            "--revision names a commit; a new one goes on top of a branch", next_step="Name the branch."
        )


def check_proposal(revision: str) -> None:
    """Where ``--create-pr`` goes to. Raises :class:`UsageError`."""
    if revision.startswith("refs/pr/"):
        raise UsageError(
            "--create-pr goes to a branch",
            got=printable(revision),
            next_step="Leave one of the two options out.",
        )


def check_token(token: str | None) -> None:
    """Raises :class:`UsageError`, without what was got: it may be a real one with a slip of the finger."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError(
            "--token holds no Hub token", allowed="ASCII letters, digits and signs, without spaces"
        )


def check_no_cache(file: Path) -> None:
    """That ``file``, which is to be written, is not the Hub client's copy. Raises :class:`UsageError`."""
    if any(part.startswith("models--") for part in file.resolve().parts):
        raise UsageError(
            "this folder is the Hub client's cache, which holds what the Hub sent",
            got=printable(file),
            next_step="Name the Hub id, or download the repo: hf download ORG/MODEL --local-dir FOLDER",
        )
