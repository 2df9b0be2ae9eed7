"""A model's config through vLLM's own helpers: no code of the repo runs, and a dead Hub costs 10 s at most.

A repo without a section is seen to have none at the price of one look-up (the raw ``config.json``). For one
with a section vLLM's ``get_config`` then says what the engine sees; it finds the file in the cache, under
the commit that the look-up resolved, and the listing that it asks for is the one that vLLM asks for anyway.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zenit_hub import env
from zenit_hub.answer import NotHub, Unreadable
from zenit_hub.deadline import within
from zenit_hub.limits import CONFIG_NAME
from zenit_hub.read import (
    CLOUD_SCHEMES,
    DEADLINE_S,
    HEAD_TIMEOUT_S,
    Found,
    cached_config,
    hub_repo,
    hub_trouble,
    local_config,
    read_file,
)
from zenit_hub.section import CONFIG_KEY, NEUTRAL_KEY, section_key
from zenit_hub.text import printable


@dataclass(frozen=True, slots=True)
class Source:
    """What ``EngineArgs`` says about where the config is."""

    model: str
    revision: str | None = None
    token: str | bool | None = None
    config_path: str | None = None

    @classmethod
    def of(cls, engine_args: Any) -> Source:
        return cls(
            model=str(engine_args.model),
            revision=getattr(engine_args, "revision", None),
            token=getattr(engine_args, "hf_token", None),
            config_path=getattr(engine_args, "hf_config_path", None),
        )


@dataclass(frozen=True, slots=True)
class _Raw:
    """The raw ``config.json`` of a repo; not ``fresh``: the Hub did not answer and the cache did."""

    path: Path | None
    fresh: bool


def read_config(source: Source) -> tuple[Found, str | None]:
    """The config and, where something kept it from being read, one sentence for the log."""
    place = source.config_path or source.model
    if place.startswith(CLOUD_SCHEMES):
        return Found(NotHub(place)), "a model in cloud storage is not looked at"
    local = local_config(place)
    if local is not None:
        return Found(read_file(local)), None
    repo = hub_repo(place)
    if repo is None:
        return Found(None), None
    if _uses_modelscope():
        return Found(
            None
        ), "a model from ModelScope is not looked at; name a local folder to have its profiles"
    return _from_hub(source, repo)


def _uses_modelscope() -> bool:
    from vllm import envs

    return bool(envs.VLLM_USE_MODELSCOPE)


def _from_hub(source: Source, repo: str) -> tuple[Found, str | None]:
    started = time.monotonic()
    try:
        raw = within(DEADLINE_S, lambda: _look_up(repo, source))
    except Exception as error:
        cached = cached_config(repo, source.revision)
        if cached is None:
            why, then = hub_trouble(error, source.revision)
            trouble = f"{CONFIG_NAME} of {printable(repo)} could not be had, because {why} ({then})"
            return Found(None, repo), trouble
        raw = _Raw(cached, fresh=False)
    if raw.path is None:
        return Found(None, repo), None
    config = read_file(raw.path)
    if isinstance(config, Mapping) and raw.fresh and section_key(config) is not None:
        left_s = DEADLINE_S - (time.monotonic() - started)
        config = _as_the_engine_sees_it(config, source, repo, left_s)
    return Found(config, hub_repo(source.model), raw.path.parent.name), None


def _look_up(repo: str, source: Source) -> _Raw:
    """One look-up: the cached file where the Hub says that it is still the newest, else a download."""
    from huggingface_hub import errors, get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.constants import HF_HUB_OFFLINE

    cached = cached_config(repo, source.revision)
    if HF_HUB_OFFLINE and cached is not None:
        return _Raw(cached, fresh=False)
    try:
        if cached is not None:
            url = hf_hub_url(repo, CONFIG_NAME, revision=source.revision)
            newest = get_hf_file_metadata(url, token=source.token, timeout=HEAD_TIMEOUT_S)
            if newest.commit_hash == cached.parent.name:
                return _Raw(cached, fresh=True)
        path = hf_hub_download(
            repo, CONFIG_NAME, revision=source.revision, token=source.token, etag_timeout=HEAD_TIMEOUT_S
        )
        return _Raw(Path(path), fresh=True)
    except errors.RemoteEntryNotFoundError:
        return _Raw(None, fresh=True)


def _as_the_engine_sees_it(
    raw: Mapping[str, Any], source: Source, repo: str, left_s: float
) -> Mapping[str, Any] | Unreadable:
    """``get_config``'s view of a config that has a section, where it can have one; else the raw file."""
    can_answer = _is_known(raw.get("model_type")) and not raw.keys() & {"auto_map", "speculators_config"}
    if not can_answer or left_s <= 1:
        return raw
    before = dict(os.environ)
    try:
        if isinstance(source.token, str):
            # The listing that get_config asks for knows no other way to the caller's token (0.25.1 to 0.33.0).
            os.environ[env.HUB_TOKEN] = source.token
        seen = within(left_s, lambda: _get_config(repo, source))
    except Exception:
        return raw
    finally:
        _restore(before)
    view = {
        key: getattr(seen, key)
        for key in (CONFIG_KEY, NEUTRAL_KEY, "architectures", "speculators_config")
        if getattr(seen, key, None) is not None
    }
    if raw.get("architectures"):
        # What the repo says of itself: in Mistral's format get_config puts another name in its place.
        view["architectures"] = raw["architectures"]
    return {**raw, **view} if section_key(view) is not None else raw


def _get_config(repo: str, source: Source) -> Any:
    from vllm.transformers_utils.config import get_config

    return get_config(repo, trust_remote_code=False, revision=_resolved(repo, source))


def _resolved(repo: str, source: Source) -> str | None:
    """The caller's revision, knowing its commit: downloads by commit are served from the cache."""
    from huggingface_hub import HfApi

    resolve = getattr(HfApi(), "resolve_revision", None)
    if resolve is None:
        return source.revision
    resolved: str = resolve(repo, revision=source.revision, local_files_only=True)
    return resolved


def _is_known(model_type: object) -> bool:
    """Whether a config class of transformers or vLLM answers to ``model_type`` without code from the repo."""
    from transformers import CONFIG_MAPPING
    from vllm.transformers_utils import config as vllm_config

    registered = getattr(vllm_config, "_CONFIG_REGISTRY", {})
    return isinstance(model_type, str) and (model_type in CONFIG_MAPPING or model_type in registered)


def _restore(before: Mapping[str, str]) -> None:
    """Take back what looking left in the environment (``get_config`` may set ``VLLM_USE_DEEP_GEMM_E8M0``)."""
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
