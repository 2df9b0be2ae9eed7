"""Where a card is made from: config, card and receipts of a model's folder, or of a repo on the Hub."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub.answer import Config, Unreadable
from zenit_hub.errors import CardError, PublicationError
from zenit_hub.files import read_limited
from zenit_hub.limits import CONFIG_NAME, MAX_CONFIG_BYTES
from zenit_hub.maintain.card.facts import usable_section
from zenit_hub.maintain.card.render import picture_paths, receipt_paths, render_block
from zenit_hub.maintain.measurement import MAX_BYTES
from zenit_hub.maintain.publish.hub import README_NAME, Hub
from zenit_hub.maintain.publish.outcomes import HubFailure
from zenit_hub.maintain.publish.readme import block_of
from zenit_hub.read import Found, find_config, hub_repo, local_config
from zenit_hub.text import printable

_MAIN = "main"
_SERVED = re.compile(r"^vllm serve ([A-Za-z0-9._/-]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Source:
    """``readme`` is ``None`` where there is none; ``file``: where it stands on this machine, ``None``: on the Hub.

    ``repo``: the Hub id that it was read by.
    """

    config: Mapping[str, Any]
    readme: bytes | None
    file: Path | None
    repo: str | None
    files: frozenset[str]
    receipts: Mapping[str, bytes]

    def block(self, repo: str | None) -> str:
        """The block as it should stand in the card. ``repo``: the Hub id that people type, where it is another."""
        return render_block(self.config, repo or self.repo or self._served, self.files, self.receipts)

    @property
    def _served(self) -> str | None:
        """The Hub id in the card that is there, where neither folder nor section names one: `publish` knew it."""
        if usable_section(self.config).repo is not None:
            return None
        try:
            found = _SERVED.search(block_of(self.readme or b"") or "")
        except PublicationError:
            return None
        return hub_repo(found[1]) if found else None

    @property
    def missing(self) -> tuple[str, ...]:
        """Receipts that the section names and that are not there."""
        return tuple(path for path in receipt_paths(self.config) if path not in self.files)


def find_source(model: str, revision: str | None, readme: Path | None) -> Source:
    """A folder, a ``config.json`` or a Hub id. ``readme``: the card on this machine, where it stands elsewhere.

    Raises :class:`CardError`, :class:`~zenit_hub.errors.ModelNotFound` and ``OSError``.
    """
    found = find_config(model, revision)
    config = _usable(found.config)
    local = local_config(model)
    if local is not None:
        return _local(config, local.parent, readme or local.parent / README_NAME)
    return _on_the_hub(config, found, revision, readme)


def _usable(config: Config) -> Mapping[str, Any]:
    if isinstance(config, Mapping):
        return config
    why = config.why if isinstance(config, Unreadable) else f"there is no {CONFIG_NAME}"
    raise CardError(f"no card can be made from this model: {why}")


def _local(config: Mapping[str, Any], folder: Path, file: Path) -> Source:
    receipts: dict[str, bytes] = {}
    files: set[str] = set()
    for path in receipt_paths(config):
        files.update(each for each in picture_paths(path) if (folder / each).is_file())
        if (folder / path).is_file():
            files.add(path)
            receipts[path] = read_limited(folder / path, MAX_BYTES)
    return Source(config, _readme(file), file, None, frozenset(files), receipts)


def _readme(file: Path) -> bytes | None:
    try:
        data = read_limited(file, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return None
    if len(data) > MAX_CONFIG_BYTES:
        raise CardError(
            f"{printable(file, limit=400)} is too large", allowed=f"up to {MAX_CONFIG_BYTES} bytes"
        )
    return data


def _on_the_hub(config: Mapping[str, Any], found: Found, revision: str | None, file: Path | None) -> Source:
    hub = Hub(found.repo or "")
    try:
        head = hub.head(found.commit or revision or _MAIN)
        wanted = [path for path in receipt_paths(config) if path in head.paths]
        entries = hub.entries(head.commit, wanted if file else [*wanted, README_NAME])
        read = {path: hub.content(head.commit, entry) for path, entry in entries.items()}
    except HubFailure as failure:
        raise CardError(
            f"the Hub did not give what the card is made from: {failure.sentence}",
            got=printable(found.repo),
            next_step="Try again later, or name a downloaded folder.",
        ) from failure
    readme = _readme(file) if file else read.pop(README_NAME, None)
    return Source(config, readme, file, found.repo, head.paths, read)
