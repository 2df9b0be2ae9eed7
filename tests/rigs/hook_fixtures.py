"""The pytest fixture ``hook``, for modules with ``pytest_plugins = ("tests.rigs.hook_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hook import HookServer


@pytest.fixture(scope="session")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookServer]:
    """vLLM, imported once for all modules that ask for it."""
    with HookServer(tmp_path_factory.mktemp("hook")) as started:
        yield started
