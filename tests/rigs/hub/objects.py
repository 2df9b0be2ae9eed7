"""Files, trees and commits with the ids that git gives them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


def git_id(kind: str, payload: bytes) -> str:
    """The sha1 that git stores ``payload`` under, as 40 hex digits."""
    return hashlib.sha1(f"{kind} {len(payload)}\0".encode() + payload, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """The id of a regular file: what ``git hash-object`` prints."""
    return git_id("blob", content)


@dataclass(frozen=True)
class File:
    """A file's bytes. Of an LFS file git only sees the pointer, so its blob id is the pointer's."""

    content: bytes
    is_lfs: bool = False

    @property
    def size_bytes(self) -> int:
        return len(self.content)

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        """The text that stands in git in place of an LFS file."""
        return (
            f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size_bytes}\n"
        ).encode()

    @cached_property
    def blob_id(self) -> str:
        return blob_id(self.pointer if self.is_lfs else self.content)

    @property
    def etag(self) -> str:
        """What a cache names the blob by: the sha256 of an LFS file, the git id of any other."""
        return self.sha256 if self.is_lfs else self.blob_id


Files = Mapping[str, File]


def directory_files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory of the disk, by its path in a repo."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def tree_id(files: Files) -> str:
    """The id of the tree that holds ``files`` (paths relative to it, ``/`` between directories)."""
    blobs: list[tuple[str, bytes]] = []
    below: dict[str, dict[str, File]] = {}
    for path, file in files.items():
        name, slash, rest = path.partition("/")
        if slash:
            below.setdefault(name, {})[rest] = file
        else:
            blobs.append((name, _tree_line("100644", name, file.blob_id)))
    # Git sorts a directory as if its name ended in a slash.
    trees = [(f"{name}/", _tree_line("40000", name, tree_id(inner))) for name, inner in below.items()]
    return git_id("tree", b"".join(line for _, line in sorted(blobs + trees)))


def _tree_line(mode: str, name: str, object_id: str) -> bytes:
    return f"{mode} {name}".encode() + b"\0" + bytes.fromhex(object_id)


@dataclass(frozen=True)
class Commit:
    """A state of the repo. ``time_s`` is seconds since 1970; ``parent`` is None in the first commit."""

    files: Files
    parent: str | None
    summary: str
    description: str
    author: str
    time_s: int

    @cached_property
    def oid(self) -> str:
        who = f"{self.author} <{self.author}@loopback> {self.time_s} +0000"
        lines = [f"tree {tree_id(self.files)}"]
        if self.parent is not None:
            lines.append(f"parent {self.parent}")
        message = "\n\n".join(part for part in (self.summary, self.description) if part)
        text = "\n".join([*lines, f"author {who}", f"committer {who}", "", message]) + "\n"
        return git_id("commit", text.encode())

    def below(self, directory: str) -> dict[str, File]:
        """The files under ``directory`` by their path relative to it; ``""`` is the whole tree."""
        prefix = f"{directory}/" if directory else ""
        return {path[len(prefix) :]: file for path, file in self.files.items() if path.startswith(prefix)}

    def directories(self) -> set[str]:
        """Every directory of the tree."""
        found: set[str] = set()
        for path in self.files:
            parts = path.split("/")[:-1]
            found.update("/".join(parts[:depth]) for depth in range(1, len(parts) + 1))
        return found
