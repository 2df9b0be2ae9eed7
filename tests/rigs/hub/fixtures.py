"""The pytest fixture ``hub``, for modules with ``pytest_plugins = ("tests.rigs.hub.fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from huggingface_hub import close_session, constants

from . import LoopbackHub


@pytest.fixture(scope="session")
def shared_session() -> Iterator[None]:
    """One HTTP session of the client for all tests (each new one reads the certificates: 60 ms), no proxy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        close_session()
        yield
        close_session()


@pytest.fixture
def quiet_client(shared_session: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real client in this process, without the developer's token and without Xet."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)


@pytest.fixture
def hub(quiet_client: None) -> Iterator[LoopbackHub]:
    """A fresh loopback hub for the real client in this process (``HfApi(endpoint=hub.url)``)."""
    with LoopbackHub() as made:
        yield made
