"""What a publication reads of a repo, all of it at one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from zenit_hub.errors import PublicationError
from zenit_hub.limits import CONFIG_NAME, MAX_CONFIG_BYTES
from zenit_hub.maintain.measure.subject import WEIGHT_SUFFIXES
from zenit_hub.maintain.measurement import MAX_BYTES, WeightFile
from zenit_hub.maintain.publish.hub import README_NAME, Entry, Hub
from zenit_hub.text import printable

Needs = Callable[[bytes], Iterable[str]]
"""The bytes of a config → paths of further files whose content is needed, where the repo has them."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """``read``: the files whose content was read, config and card among them; ``paths``: all files;
    ``entries``: those that are compared. ``weights`` is ``None`` where they cannot be known (offline).
    """

    commit: str
    read: Mapping[str, bytes]
    paths: frozenset[str]
    entries: Mapping[str, Entry]
    weights: tuple[WeightFile, ...] | None

    @property
    def config(self) -> bytes:
        return self.read[CONFIG_NAME]

    @property
    def readme(self) -> bytes | None:
        return self.read.get(README_NAME)

    def holds(self, path: str, content: bytes) -> bool:
        """Whether the repo has that file with that content already."""
        known, entry = self.read.get(path), self.entries.get(path)
        return known == content if known is not None else entry is not None and entry.holds(content)


def take(hub: Hub, revision: str, paths: Iterable[str], needs: Needs) -> Snapshot:
    """The repo at the head of ``revision``; ``paths``: files beside config and card that may be written."""
    head = hub.head(revision)
    if head.repo != hub.repo:
        raise PublicationError(
            f"{printable(hub.repo)} is called {printable(head.repo)} by now",
            next_step=f"Type {printable(head.repo)} instead: what is published names the repo, too.",
        )
    weights = sorted(path for path in head.paths if path.endswith(WEIGHT_SUFFIXES))
    entries = hub.entries(head.commit, [CONFIG_NAME, README_NAME, *paths, *weights])
    if CONFIG_NAME not in entries:
        raise PublicationError(
            f"{printable(hub.repo)} has no {CONFIG_NAME} at {head.commit[:12]}",
            next_step="Name a repo of a model, and its branch with --revision.",
        )
    both = [entries[name] for name in (CONFIG_NAME, README_NAME) if name in entries]
    for entry in both:
        _refuse_what_is_not_text(entry)
    read = {entry.path: hub.content(head.commit, entry) for entry in both}
    needed = hub.entries(head.commit, head.paths.intersection(needs(read[CONFIG_NAME])))
    read |= {
        path: hub.content(head.commit, entry)
        for path, entry in needed.items()
        if entry.size_bytes <= MAX_BYTES
    }
    told = tuple(_weight(entries[path]) for path in weights if path in entries)
    return Snapshot(head.commit, read, head.paths, {**entries, **needed}, told)


def take_cached(hub: Hub, commit: str, needs: Needs) -> Snapshot:
    """The same from this machine's cache, without the network."""
    read = {name: hub.cached(commit, name) for name in (CONFIG_NAME, README_NAME)}
    for name, data in read.items():
        if data is None:
            raise PublicationError(
                f"{name} of {printable(hub.repo)} at {commit[:12]} is not in this machine's cache",
                next_step="Run the dry run once with the network, or unset HF_HUB_OFFLINE.",
            )
    read |= {path: hub.cached(commit, path) for path in needs(read[CONFIG_NAME] or b"")}
    found = {path: data for path, data in read.items() if data is not None}
    return Snapshot(commit, found, frozenset(found), {}, None)


def _refuse_what_is_not_text(entry: Entry) -> None:
    if entry.sha256 is not None:
        raise PublicationError(
            f"{entry.path} is kept in Git LFS, where nothing can be changed in place",
            next_step=f"Take it out of LFS in the repo's .gitattributes and commit {entry.path} as text.",
        )
    if entry.size_bytes > MAX_CONFIG_BYTES:
        raise PublicationError(
            f"{entry.path} is too large",
            got=f"{entry.size_bytes} bytes",
            allowed=f"up to {MAX_CONFIG_BYTES}",
        )


def _weight(entry: Entry) -> WeightFile:
    """Of a file in LFS its SHA-256, of another its blob id, as ``measure`` records them."""
    in_lfs = entry.sha256 is not None
    return WeightFile(entry.path, entry.size_bytes, entry.sha256, None if in_lfs else entry.blob_id)
