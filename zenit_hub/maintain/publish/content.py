"""What a publication writes: the files of a repo at one commit → the same files with the measurements in them.

Only this module knows what a figure, an entry and a card are; the steps of a publication take it as a
function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from zenit_hub.errors import CardError, PublicationError
from zenit_hub.files import read_limited
from zenit_hub.limits import CONFIG_NAME
from zenit_hub.maintain.card.render import receipt_paths, render_block
from zenit_hub.maintain.measurement import MAX_BYTES, Measurement, read_measurement
from zenit_hub.maintain.publish import entries, readme, receipts, refusals, splice
from zenit_hub.maintain.publish.hub import README_NAME, Message
from zenit_hub.maintain.publish.snapshot import Snapshot
from zenit_hub.text import printable

PICTURES = (".svg", ".png")
_MAX_TITLE_LETTERS = 72

Written = Mapping[Any, Any]
"""Key that a publication writes → the value there."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """``files``: path → content, those that stay as they are among them.

    ``before`` and ``after``: the values of the keys that are written, in the repo and in ``files``.
    ``lines``: what changes, a sentence each; ``remarks``: what a person should know before it is sent.
    """

    files: Mapping[str, bytes]
    before: Written
    after: Written
    lines: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class Content(Protocol):
    """What is to be published. ``paths``: its files beside config and card."""

    @property
    def paths(self) -> tuple[str, ...]: ...

    @property
    def message(self) -> Message: ...

    def needs(self, config: bytes) -> tuple[str, ...]:
        """Paths of what must be read beside this config and the card, where the repo has it."""

    def render(self, here: Snapshot) -> Rendered:
        """Raises :class:`~zenit_hub.errors.PublicationError` for what may not be published there."""

    def shown(self, key: Hashable) -> str:
        """A key of ``before`` in people's words."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """One measurement as it was read: ``name`` is its file, ``path`` as an entry names it, ``files`` what it
    brings into the repo."""

    name: str
    measurement: Measurement
    path: str
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements on their way into ``repo``."""

    repo: str
    receipts: tuple[Receipt, ...]
    version: str = ""
    init_card: bool = False
    allow_unverified: bool = False
    block: Callable[..., str] = render_block

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(path for receipt in self.receipts for path in receipt.files)

    @property
    def message(self) -> Message:
        names = list(dict.fromkeys(receipt.measurement.profile.name for receipt in self.receipts))
        devices = list(dict.fromkeys(receipt.measurement.device.name for receipt in self.receipts))
        what = names[0] if len(names) == 1 else f"{len(names)} profiles"
        where = printable(devices[0]) if len(devices) == 1 else f"{len(devices)} cards"
        title = f"Measured: {what} on {where}"
        lines = [
            f"- {receipt.measurement.profile.name}: {receipt.measurement.requires_free_bytes} bytes free on "
            f"{printable(receipt.measurement.device.name)}, vLLM {printable(receipt.measurement.versions.vllm)}"
            for receipt in self.receipts
        ]
        tool = f"zenit-hub {self.version}".strip()
        return Message(title[:_MAX_TITLE_LETTERS], "\n".join([*lines, "", f"Published by {tool}."]))

    def needs(self, config: bytes) -> tuple[str, ...]:
        """The receipts that the section names: they say which figures were never verified."""
        try:
            return receipt_paths(json.loads(config)) if splice.refusal(config) is None else ()
        except CardError:
            return ()  # there is no section, or none that can be used: rendering says so

    def render(self, here: Snapshot) -> Rendered:
        why = splice.refusal(here.config)
        if why is not None:
            raise PublicationError(why)
        config = json.loads(here.config)
        self._refuse(config, here)
        measurements = [receipt.measurement for receipt in self.receipts]
        changes = entries.changes(config, [(each.measurement, each.path) for each in self.receipts])
        new_config = splice.splice(here.config, changes.values)
        new = json.loads(new_config)
        why = refusals.fault(new_config, self.repo)
        if why is not None:
            raise PublicationError(f"{CONFIG_NAME} would not be valid: {why}")
        files = {path: content for receipt in self.receipts for path, content in receipt.files.items()}
        block = self.block(new, self.repo, here.paths | files.keys(), {**here.read, **files})
        card = readme.with_block(here.readme, block, init_card=self.init_card)
        return Rendered(
            {CONFIG_NAME: new_config, README_NAME: card, **files},
            entries.written(config, measurements),
            entries.written(new, measurements),
            changes.lines,
            tuple(
                f"the figure of {printable(name)} was never tried with no more free than that, "
                f"and the card says so"
                for name in changes.unverified
            ),
        )

    def _refuse(self, config: Mapping[str, Any], here: Snapshot) -> None:
        """Raise what speaks against one of them, or against several, at once."""
        found = []
        for receipt in self.receipts:
            measured = receipt.measurement
            weights = measured.model.weights if here.weights is None else here.weights
            why = refusals.refusal(config, weights, measured, allow_unverified=self.allow_unverified)
            if why is not None:
                found.append(f"{receipt.name}: {why}")
        if found:
            raise PublicationError(" ".join(found))

    def shown(self, key: Hashable) -> str:
        parts = key if isinstance(key, tuple) else (key,)
        return " · ".join(printable(part) for part in parts)


def load(files: Sequence[Path], repo: str, **settings: Any) -> Measurements:
    """The measurements in ``files``, each with its picture if one stands beside it.

    Raises :class:`~zenit_hub.errors.MeasurementError` and ``OSError``.
    """
    return Measurements(repo, tuple(_receipt(file) for file in files), **settings)


def _receipt(file: Path) -> Receipt:
    name = printable(file, limit=400)
    data = read_limited(file, MAX_BYTES)
    measurement = read_measurement(data, name)
    try:
        path = receipts.receipt_path(measurement.profile.name, measurement.device.name, data)
    except PublicationError as error:
        raise PublicationError(f"{name}: {error}", next_step="Measure it again.") from error
    found = {receipts.in_repo(path): data}
    for suffix in PICTURES:
        picture = _picture(file.with_suffix(suffix))
        if picture is not None:
            found[receipts.in_repo(receipts.picture_path(path, suffix))] = picture
    return Receipt(name, measurement, path, found)


def _picture(file: Path) -> bytes | None:
    """The picture, if there is one."""
    try:
        data = read_limited(file, MAX_BYTES)
    except FileNotFoundError:
        return None
    if len(data) > MAX_BYTES:
        raise PublicationError(
            f"{printable(file, limit=400)} is too large", allowed=f"up to {MAX_BYTES} bytes"
        )
    return data
