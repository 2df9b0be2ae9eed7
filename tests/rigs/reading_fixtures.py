"""Fixtures for reading, for modules with ``pytest_plugins = ("tests.rigs.reading_fixtures",)``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .hub import LoopbackHub
from .reading import COMMANDS, ENGINE, Reader, Readers


@pytest.fixture(scope="session")
def repos() -> Iterator[LoopbackHub]:
    """One hub for all that reads; each test has repos of its own."""
    with LoopbackHub() as hub:
        yield hub


@pytest.fixture(scope="session")
def reading_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the readers put what they write."""
    return tmp_path_factory.mktemp("reading")


@pytest.fixture(scope="session")
def environment(repos: LoopbackHub, reading_folder: Path) -> dict[str, str]:
    """What makes a reader take the loopback hub for the real one; all have one Hugging Face home."""
    return repos.environment(home=reading_folder / "home")


@pytest.fixture(scope="session")
def readers(environment: dict[str, str], reading_folder: Path) -> Iterator[Readers]:
    """Both import vLLM at the same time."""
    with (
        Reader(reading_folder / "online", environment, ENGINE) as online,
        Reader(reading_folder / "offline", {**environment, "HF_HUB_OFFLINE": "1"}, ENGINE) as offline,
    ):
        yield Readers(online, offline)


@pytest.fixture(scope="session")
def reader(readers: Readers) -> Reader:
    """vLLM, and the Hub's client with the loopback hub."""
    return readers.online


@pytest.fixture(scope="session")
def command(environment: dict[str, str], reading_folder: Path) -> Iterator[Reader]:
    """``zenit-hub`` without vLLM, and the Hub's client with the loopback hub."""
    with Reader(reading_folder / "command", environment, COMMANDS) as made:
        yield made
