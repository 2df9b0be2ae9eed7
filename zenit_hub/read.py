"""From a model's name to its config: a directory, a file beside weights, or a repo on the Hub.

Nothing of the repo is ever run, and nothing here imports vLLM; how the hook reads through vLLM's own
helpers stands in :mod:`zenit_hub.engine`. A config that is there and cannot be used is a value
(:class:`Unreadable`), not an exception.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub.answer import Config, NotHub, Unreadable
from zenit_hub.deadline import within
from zenit_hub.errors import ModelNotFound
from zenit_hub.limits import CONFIG_NAME, LFS_MARK, MAX_CONFIG_BYTES, MAX_DEPTH
from zenit_hub.text import printable

CLOUD_SCHEMES = ("s3://", "gs://", "az://")
HUB_TIMEOUT_S = 10
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


def config_bytes(model: str, revision: str | None = None) -> bytes:
    """The ``config.json`` of a Hub repo as it stands there. Raises :class:`ModelNotFound`."""
    repo = hub_repo(model)
    path = _download(repo, revision, None) if repo else None
    if path is None:
        raise ModelNotFound(f"there is no {CONFIG_NAME}", got=printable(model))
    return path.read_bytes()


def local_config(model: str) -> Path | None:
    """Where the config of a local model stands, whether or not it is there; ``None``: not a local model."""
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
    repo = model.partition(":")[0]
    valid = _REPO_ID.fullmatch(repo) and len(repo) <= MAX_REPO_LETTERS and "--" not in repo and ".." not in repo
    return repo if valid else None


def read_file(path: Path) -> Mapping[str, Any] | Unreadable | None:
    """A ``config.json`` from the disk; ``None`` where there is none."""
    try:
        size_bytes = path.stat().st_size
        if size_bytes > MAX_CONFIG_BYTES:
            return Unreadable(f"it has {size_bytes} bytes, more than {MAX_CONFIG_BYTES} are not read")
        return parse(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unreadable(f"{error.strerror} ({printable(path)})")


def parse(data: bytes) -> dict[str, Any] | Unreadable:
    """The object that ``data`` holds. A byte order mark is tolerated, as vLLM tolerates it."""
    if data.startswith(LFS_MARK):
        return Unreadable("it is a Git LFS pointer, not the file: run git lfs pull")
    try:
        text = data.removeprefix(_BOM).decode("utf-8")
        value = json.loads(text)
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
    if text.count("{") + text.count("[") > MAX_DEPTH and _deeper_than(value, MAX_DEPTH):
        return Unreadable(f"it is nested deeper than {MAX_DEPTH}")
    return value


def _deeper_than(value: dict[str, Any], depth: int) -> bool:
    level: list[dict[str, Any] | list[Any]] = [value]
    for _ in range(depth):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return False
    return True


def _download(repo: str, revision: str | None, token: str | None) -> Path | None:
    """The cached ``config.json`` of a repo; ``None`` where the repo has none."""
    from huggingface_hub import errors, hf_hub_download

    def download() -> str:
        return hf_hub_download(repo, CONFIG_NAME, revision=revision, token=token, etag_timeout=HUB_TIMEOUT_S)

    try:
        # The client tries a download five times, 23 s of waiting in all.
        return Path(within(HUB_TIMEOUT_S, download))
    except errors.RemoteEntryNotFoundError:
        return None
    except TimeoutError:
        why, then = f"the Hub did not answer in {HUB_TIMEOUT_S} s", "Try again, or name a downloaded folder."
    except errors.GatedRepoError:
        why, then = "access to it is restricted", "Ask for access on its page, then `hf auth login`."
    except errors.RevisionNotFoundError:
        why, then = f"it has no revision {printable(revision)}", "Look at its branches and tags on the Hub."
    except errors.RepositoryNotFoundError:
        why, then = "the Hub has no such repo, or it is private", "Check the id, or `hf auth login`."
    except errors.LocalEntryNotFoundError:
        why, then = (
            "the Hub cannot be reached and it is not in the cache",
            "Check the network, or HF_HUB_OFFLINE.",
        )
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        why, then = (
            f"the Hub answered {type(error).__name__}",
            "Try again, or download the repo and name its folder.",
        )
    raise ModelNotFound(f"the model cannot be read: {why}", got=printable(repo), next_step=then)
