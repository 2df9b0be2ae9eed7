"""Fixtures for publishing, for modules with ``pytest_plugins = ("tests.rigs.publishing_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from .hub import LoopbackHub
from .publishing import Publisher

pytest_plugins = ("tests.rigs.hub.fixtures",)


@pytest.fixture
def publisher(hub: LoopbackHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    """The owner of a repo on a loopback hub; the client has an empty cache of its own, and no login."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield Publisher(hub)
    hub.heal()
