"""From a model's name to its config: a directory, a file beside weights, or a repo on the Hub.

Nothing of the repo is ever run, and nothing here imports vLLM; how the hook reads through vLLM's own
helpers stands in :mod:`zenit_hub.engine`. A config that is there and cannot be used is a value
(:class:`Unreadable`), not an exception.
"""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub.answer import Config, NotHub, Unreadable
from zenit_hub.deadline import within
from zenit_hub.errors import ModelNotFound
from zenit_hub.files import read_limited
from zenit_hub.limits import CONFIG_NAME, LFS_MARK, MAX_CONFIG_BYTES, MAX_DEPTH, deeper_than
from zenit_hub.text import printable

CLOUD_SCHEMES = ("s3://", "gs://", "az://")

DEADLINE_S = 8.0
"""What the Hub may take to answer: all of reading is then done within 10 s, also on a busy machine."""

HEAD_TIMEOUT_S = 4.0
MAX_REPO_LETTERS = 96
"""The Hub's own limit (``huggingface_hub.utils.validate_repo_id``), as are ``--`` and ``..``."""

_BOM = b"\xef\xbb\xbf"
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class Found:
    """A model's config. ``repo`` and ``commit`` are set where it came from the Hub."""

    config: Config
    repo: str | None = None
    commit: str | None = None


def find_config(model: str, revision: str | None = None, token: str | None = None) -> Found:
    """The config of ``model``. Raises :class:`ModelNotFound` where there is no such model."""
    if model.startswith(CLOUD_SCHEMES):
        return Found(NotHub(model))
    local = local_config(model)
    if local is not None:
        return Found(read_file(local))
    repo = hub_repo(model)
    if repo is None:
        raise ModelNotFound(
            "there is no such model",
            got=printable(model),
            allowed="a folder, a config.json, a .gguf file or a Hub id like org/model",
        )
    path = _download(repo, revision, token)
    if path is None:
        return Found(None, repo)
    commit = path.parent.name
    return Found(read_file(path), repo, commit if _COMMIT.fullmatch(commit) else None)


def config_bytes(model: str, revision: str | None = None, token: str | None = None) -> bytes:
    """The ``config.json`` of a Hub repo as it stands there, of one that is too large just enough to see it.

    Raises :class:`ModelNotFound`.
    """
    repo = hub_repo(model)
    path = _download(repo, revision, token) if repo else None
    if path is None:
        raise ModelNotFound(f"there is no {CONFIG_NAME}", got=printable(model))
    with path.open("rb") as file:
        return file.read(MAX_CONFIG_BYTES + 1)


def local_config(model: str) -> Path | None:
    """Where the config of a local model stands, whether or not it is there; ``None``: not a local model."""
    if not model:
        return None  # Path("") is the current folder
    try:
        path = Path(model).expanduser()
        if path.is_dir():
            return path / CONFIG_NAME
        if path.is_file():
            return path if path.suffix == ".json" else path.parent / CONFIG_NAME
    except (OSError, RuntimeError, ValueError):
        return None
    return None


def hub_repo(model: str) -> str | None:
    """The repo that a Hub id names: ``org/model:Q4_K_M`` is one file of ``org/model``."""
    repo = "" if "://" in model else model.partition(":")[0]
    valid = (
        _REPO_ID.fullmatch(repo) and len(repo) <= MAX_REPO_LETTERS and "--" not in repo and ".." not in repo
    )
    return repo if valid else None


def read_file(path: Path) -> Mapping[str, Any] | Unreadable | None:
    """A ``config.json`` from the disk; ``None`` where there is none."""
    try:
        data = read_limited(path, MAX_CONFIG_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(f"{error.strerror} ({printable(path)})")
    if len(data) > MAX_CONFIG_BYTES:
        return Unreadable(f"it is larger than {MAX_CONFIG_BYTES} bytes and is not read")
    return parse(data)


def parse(data: bytes) -> dict[str, Any] | Unreadable:
    """The object that ``data`` holds. A byte order mark is tolerated, as vLLM tolerates it."""
    if data.startswith(LFS_MARK):
        return Unreadable("it is a Git LFS pointer, not the file: run git lfs pull")
    try:
        value = _without_collecting(data.removeprefix(_BOM).decode("utf-8"))
    except UnicodeDecodeError as error:
        return Unreadable(f"it is not UTF-8 (byte {error.start})")
    except json.JSONDecodeError as error:
        return Unreadable(f"it is not JSON (line {error.lineno}: {error.msg})")
    except (RecursionError, ValueError) as error:
        return Unreadable(
            "it is nested too deep" if isinstance(error, RecursionError) else "it is not JSON (a number)"
        )
    if not isinstance(value, dict):
        return Unreadable("it holds a JSON list or value where an object belongs")
    if deeper_than(data, MAX_DEPTH):
        return Unreadable(f"it is nested deeper than {MAX_DEPTH}")
    return value


def _without_collecting(text: str) -> Any:
    """``json.loads``. Millions of brackets make the garbage collector walk them all, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        return json.loads(text)
    finally:
        if was_on:
            gc.enable()


def cached_config(repo: str, revision: str | None) -> Path | None:
    """The ``config.json`` of a repo in the Hub's cache on this machine, if it is there."""
    from huggingface_hub import errors, try_to_load_from_cache

    try:
        found = try_to_load_from_cache(repo, CONFIG_NAME, revision=revision)
    except errors.HFValidationError:
        return None
    return Path(found) if isinstance(found, str) else None


def hub_trouble(error: Exception, revision: str | None) -> tuple[str, str]:
    """Why the Hub did not give a file, and what to do. An error's own text may hold an address or a token."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return "access to it is restricted", "ask for access on its page, then `hf auth login`"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision {printable(revision)}", "look at its branches and tags on the Hub"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hub has no such repo, or it is private", "check the id, or `hf auth login`"
    if isinstance(error, errors.LocalEntryNotFoundError):
        return "the Hub cannot be reached and it is not in the cache", "check the network, or HF_HUB_OFFLINE"
    if isinstance(error, TimeoutError):
        return f"the Hub did not give it in {DEADLINE_S:g} s", "try again, or name a downloaded folder"
    if isinstance(error, errors.HfHubHTTPError):
        status = getattr(error.response, "status_code", None)
        refused = status in (401, 403)
        return f"the Hub answered {status}", "check the token" if refused else "try again later"
    return (
        f"the Hub's client failed with {type(error).__name__}",
        "check the network, HF_ENDPOINT and the token",
    )


def _download(repo: str, revision: str | None, token: str | None) -> Path | None:
    """The cached ``config.json`` of a repo; ``None`` where the repo has none."""
    from huggingface_hub import errors, hf_hub_download

    def download() -> str:
        return hf_hub_download(repo, CONFIG_NAME, revision=revision, token=token, etag_timeout=HEAD_TIMEOUT_S)

    try:
        # The client tries a download five times, 23 s of waiting in all.
        return Path(within(DEADLINE_S, download))
    except errors.RemoteEntryNotFoundError:
        return None
    except Exception as error:
        cached = cached_config(repo, revision)
        if cached is not None:
            return cached
        why, then = hub_trouble(error, revision)
        raise ModelNotFound(
            f"the model cannot be read: {why}", got=printable(repo), next_step=f"{then[0].upper()}{then[1:]}."
        ) from error
