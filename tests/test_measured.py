"""A measured engine whose vLLM lacks what the account needs: it starts all the same, and nothing is made up."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zenit_hub.engine import measured


class Executor:
    """As far as the account looks at it; ``told``: the pins that its workers were sent."""

    def __init__(self) -> None:
        self.told: list[int | None] = []

    def get_kv_cache_specs(self) -> list[dict[str, object]]:
        return [{"layer": "a kind of cache that nobody knows"}]

    def determine_available_memory(self) -> list[int]:
        return [12345]

    def collective_rpc(self, method: Any, timeout: float | None, args: tuple[int | None]) -> None:
        self.told += args


def config(pin_bytes: int | None) -> Any:
    return SimpleNamespace(cache_config=SimpleNamespace(kv_cache_memory_bytes=pin_bytes))


def started(executor: Any, vllm_config: Any, folder: Path) -> list[int]:
    """What the engine core does with its executor."""
    account = measured._Account(executor, vllm_config, folder)
    account.begin()
    executor.get_kv_cache_specs()
    available: list[int] = executor.determine_available_memory()
    return available


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM without the engine core's module."""
    monkeypatch.delitem(measured.sys.modules, "vllm.v1.engine.core", raising=False)


@pytest.mark.usefixtures("unknown")
def test_an_unknown_vllm_runs_on_without_a_need(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As it would have without us, with one line that says what is missing."""
    executor, vllm_config = Executor(), config(None)

    with caplog.at_level(logging.WARNING):
        assert started(executor, vllm_config, tmp_path) == [12345]

    assert vllm_config.cache_config.kv_cache_memory_bytes is None
    assert executor.told == [None]
    assert json.loads((tmp_path / "kv_cache.json").read_text()) == {
        "needed_bytes": None,
        "pinned_bytes": None,
    }
    assert len(caplog.messages) == 1


@pytest.mark.usefixtures("unknown")
def test_nothing_that_goes_wrong_stops_the_engine(tmp_path: Path) -> None:
    """Workers that do not understand, a folder that is gone."""

    def refuses(*_: Any) -> None:
        raise RuntimeError("no such method")

    executor: Any = Executor()
    executor.collective_rpc = refuses

    assert started(executor, config(None), tmp_path / "gone") == [12345]


def test_a_process_without_an_executor_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The front end and the model inspection load plug-ins too."""
    monkeypatch.delitem(measured.sys.modules, "vllm.v1.executor.abstract", raising=False)

    assert not measured.install()
