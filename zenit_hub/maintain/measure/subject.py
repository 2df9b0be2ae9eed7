"""What is measured: a model at one commit, its section, and the files that hold its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub.answer import NotHub, Unreadable
from zenit_hub.compat import engine_facts
from zenit_hub.errors import MeasurementError
from zenit_hub.files import read_limited
from zenit_hub.installed import assumed_version
from zenit_hub.limits import CONFIG_NAME, MAX_CONFIG_BYTES
from zenit_hub.maintain.measurement import MeasuredModel, WeightFile
from zenit_hub.read import config_bytes, find_config, local_config, parse
from zenit_hub.section import (
    InvalidSection,
    NoSection,
    OtherArchitecture,
    Section,
    read_section,
    section_key,
)
from zenit_hub.text import listed, printable

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class Subject:
    """``model`` is what vLLM is started with; ``revision`` the commit, of a model from the Hub.

    ``raw`` are the bytes of its ``config.json`` as they were when measuring began.
    """

    model: str
    revision: str | None
    raw: bytes
    config: Mapping[str, Any]
    section: Section
    measured: MeasuredModel

    def values(self, profile: str) -> Mapping[str, Any]:
        """The profile as it stands in the section; nothing where something else than an object stands there."""
        values = self.config[self.measured.section_key]["profiles"][profile]
        return values if isinstance(values, dict) else {}

    def changed(self) -> bool:
        """Whether the folder's ``config.json`` is another one by now; a commit of the Hub stays what it is."""
        if self.revision is not None:
            return False
        try:
            return _folder_config(Path(self.model)) != self.raw
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a model comes from. ``repo``: of a folder, what its section says."""

    repo: str | None
    commit: str | None
    weights: tuple[WeightFile, ...]


def load_subject(model: str, revision: str | None, token: str | None) -> Subject:
    """Raises :class:`MeasurementError` or :class:`~zenit_hub.errors.ModelNotFound`, each with what to type."""
    local = local_config(model)
    if local is not None:
        if revision is not None:
            raise MeasurementError(
                "a folder has no revision", got=printable(revision), next_step="Leave --revision out."
            )
        return _from_folder(local.parent)
    found = find_config(model, revision, token)
    config = found.config
    if isinstance(config, NotHub):
        raise MeasurementError("a model in cloud storage is not measured", got=printable(model))
    if found.repo is None or found.commit is None or not isinstance(config, Mapping):
        why = f": {config.why}" if isinstance(config, Unreadable) else ""
        raise MeasurementError(f"there is no {CONFIG_NAME} to measure by{why}", got=printable(model))
    raw = config_bytes(model, found.commit)
    weights = _hub_weights(found.repo, found.commit, token)
    return _subject(found.repo, raw, config, _Origin(found.repo, found.commit, weights))


def _from_folder(folder: Path) -> Subject:
    try:
        raw = _folder_config(folder)
    except OSError as error:
        raise MeasurementError(
            f"{CONFIG_NAME} cannot be read: {error.strerror}", got=printable(folder)
        ) from error
    config = parse(raw)
    if isinstance(config, Unreadable):
        raise MeasurementError(f"{CONFIG_NAME} cannot be used: {config.why}", got=printable(folder))
    body = config.get(section_key(config) or "")
    repo = body.get("repo") if isinstance(body, dict) and isinstance(body.get("repo"), str) else None
    # The engine takes it from a command line, where a word that begins with a dash is an option.
    model = f"./{folder}" if str(folder).startswith("-") else str(folder)
    return _subject(model, raw, config, _Origin(repo, None, _folder_weights(folder)))


def _subject(model: str, raw: bytes, config: Mapping[str, Any], origin: _Origin) -> Subject:
    key = section_key(config) or ""
    measured = MeasuredModel(origin.repo, origin.commit, key, hashlib.sha256(raw).hexdigest(), origin.weights)
    return Subject(model, origin.commit, raw, config, _section(config), measured)


def _section(config: Mapping[str, Any]) -> Section:
    try:
        json.dumps(config.get(section_key(config) or ""), allow_nan=False)
    except ValueError:
        # The engine does not mind, but what was measured could not be written down.
        raise MeasurementError(
            "the section holds a number that JSON does not have, as NaN or 1e999",
            next_step="`zenit-hub validate` shows every error.",
        ) from None
    reading = read_section(config, engine_facts(assumed_version()).kv_cache_dtypes)
    if isinstance(reading, NoSection):
        raise MeasurementError(
            "the model carries no serving profiles", next_step="`zenit-hub init MODEL` proposes a section."
        )
    if isinstance(reading, OtherArchitecture):
        raise MeasurementError(
            "the section speaks for another architecture", allowed=listed(reading.architectures)
        )
    if isinstance(reading, InvalidSection):
        raise MeasurementError(
            f"the section cannot be used: {reading.why}", next_step="`zenit-hub validate` shows every error."
        )
    return reading


def _folder_config(folder: Path) -> bytes:
    return read_limited(folder / CONFIG_NAME, MAX_CONFIG_BYTES)


def _folder_weights(folder: Path) -> tuple[WeightFile, ...]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in WEIGHT_SUFFIXES and path.is_file())
    try:
        return tuple(_hashed(path, path.relative_to(folder).as_posix()) for path in files)
    except OSError as error:
        raise MeasurementError(
            f"a weight file cannot be read: {error.strerror}", got=printable(error.filename)
        ) from error


def _hashed(path: Path, name: str) -> WeightFile:
    """Both hashes in one reading: what Git LFS records, and git's own for a file that is not in LFS."""
    size_bytes = path.stat().st_size
    content = hashlib.sha256()
    blob = hashlib.sha1(b"blob %d\0" % size_bytes, usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            content.update(chunk)
            blob.update(chunk)
    return WeightFile(name, size_bytes, content.hexdigest(), blob.hexdigest())


def _hub_weights(repo: str, commit: str, token: str | None) -> tuple[WeightFile, ...]:
    """What the Hub knows of the weight files at ``commit``; nothing is downloaded."""
    from huggingface_hub import HfApi

    from zenit_hub.deadline import within
    from zenit_hub.read import DEADLINE_S, hub_trouble

    def ask() -> Any:
        return HfApi(token=token).model_info(repo, revision=commit, files_metadata=True, timeout=DEADLINE_S)

    try:
        siblings = within(DEADLINE_S, ask).siblings or []
    except Exception as error:
        why, then = hub_trouble(error, commit)
        raise MeasurementError(
            f"the weight files of {printable(repo)} cannot be listed, because {why}",
            next_step=f"{then[0].upper()}{then[1:]}, or measure a downloaded folder.",
        ) from error
    return tuple(
        WeightFile(
            path=file.rfilename,
            size_bytes=file.size or 0,
            sha256=file.lfs.sha256 if file.lfs else None,
            blob_id=None if file.lfs else file.blob_id,  # of a file in LFS it is the pointer's
        )
        for file in siblings
        if file.rfilename.endswith(WEIGHT_SUFFIXES)
    )
