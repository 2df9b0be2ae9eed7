"""Fixtures for reading, for modules with ``pytest_plugins = ("tests.rigs.reading_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .hub import LoopbackHub
from .reading import ENGINE, Reader


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers of one Hugging Face home, one as usual and one with ``HF_HUB_OFFLINE=1``."""

    home: Path
    online: Reader
    offline: Reader


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
def command(repos: LoopbackHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """``zenit-hub`` without vLLM; nothing is imported before an order says in which environment."""
    folder = tmp_path_factory.mktemp("command")
    with Reader(folder, repos.environment(home=folder / "home")) as made:
        yield made
