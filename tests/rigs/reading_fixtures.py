"""Fixtures for reading, for modules with ``pytest_plugins = ("tests.rigs.reading_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .hub import LoopbackHub
from .reading import COMMANDS, ENGINE, Commands, Reader, Readers


@pytest.fixture(scope="session")
def repos() -> Iterator[LoopbackHub]:
    """One hub for all that reads; each test has repos of its own."""
    with LoopbackHub() as hub:
        yield hub


@pytest.fixture(scope="session")
def readers(repos: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Both import vLLM at the same time."""
    folder = tmp_path_factory.mktemp("readers")
    environment = repos.environment(home=folder / "home")
    with (
        Reader(folder / "online", environment, ENGINE) as online,
        Reader(folder / "offline", {**environment, "HF_HUB_OFFLINE": "1"}, ENGINE) as offline,
    ):
        yield Readers(folder / "home", online, offline)


@pytest.fixture(scope="session")
def reader(readers: Readers) -> Reader:
    """vLLM, and the Hub's client with the loopback hub."""
    return readers.online


@pytest.fixture(scope="session")
def commands(repos: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Neither imports vLLM."""
    folder = tmp_path_factory.mktemp("commands")
    environment = repos.environment(home=folder / "home")
    with (
        Reader(folder / "bare", environment) as bare,
        Reader(folder / "prepared", environment, COMMANDS) as prepared,
    ):
        yield Commands(bare, prepared)


@pytest.fixture(scope="session")
def command(commands: Commands) -> Reader:
    """``zenit-hub``, and the Hub's client with the loopback hub."""
    return commands.prepared
