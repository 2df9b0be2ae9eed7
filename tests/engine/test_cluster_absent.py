"""With the Ray backend where no Ray cluster is up, or none that answers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.ray_cluster import LOOPBACK, MARK, marked
from zenit_hub.engine.cluster import look_at_cluster, look_through_ray
from zenit_hub.machine import Machine


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which no cluster was started."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for name, value in {**LOOPBACK, "RAY_TMPDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def dead_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An address of a cluster, bound and not listening: nobody can be reached there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        yield


@pytest.mark.parametrize("address", ["", "local"])
def test_where_none_is_up_none_is_started(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM will start Ray on this machine, so its own cards are looked at."""
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert look_at_cluster(timeout_s=30) is None
    assert list(tmp_path.iterdir()) == []
    assert not look_through_ray().cluster


def test_an_address_that_nobody_answers_costs_the_time_limit_at_most(dead_address: None) -> None:
    """The memory is unknown, and why; the cards of this machine do not stand in for those elsewhere."""
    started = time.monotonic()
    machine = look_at_cluster(timeout_s=2)
    assert time.monotonic() - started < 4
    assert machine == Machine(
        "nvml", driver_error="the Ray cluster could not be asked: no answer in 2 s", cluster=True
    )


def test_an_address_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM will refuse it in its own words."""
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    machine = look_at_cluster(timeout_s=30)
    assert machine is not None
    assert machine.driver_error is not None
    assert machine.driver_error.startswith("the Ray cluster could not be asked: ValueError: ")


def test_a_launcher_that_is_killed_leaves_no_child_that_asks(
    dead_address: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child ends itself when the time is over: Ray alone would try for minutes."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    code = "from zenit_hub.engine.cluster import look_at_cluster; look_at_cluster(timeout_s=4)"
    launcher = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 20
    while len(marked(mark)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(marked(mark)) == 2
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    assert len(marked(mark)) == 1
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marked(mark) == set()
