"""A Ray cluster of two nodes: whose memory decides, and what is said where a node cannot tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import field_config
from tests.rigs.ray_cluster import ROOT, RayCluster
from tests.stage import GIB, asked, name, sentence, told
from zenit_hub.answer import Answer
from zenit_hub.engine.cluster import TIMEOUT_S, look_at_cluster, look_through_ray
from zenit_hub.machine import Machine
from zenit_hub.say import lines

P3 = field_config("C1-03a")
"""The profiles s32k (the default, 18 GiB), m256k (24 GiB) and l1m (40 GiB)."""

AMPLE_S = 40.0
"""Of a look that is to succeed, however busy this machine is."""

ANSWER_LIMIT_S = 10.0
H100 = {"total_bytes": 80 * GIB}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """Node 0 has two cards, node 1 three, of which Ray has the second."""
    shadow = tmp_path_factory.mktemp("shadow")
    nodes = (2, {}), (1, {"CUDA_VISIBLE_DEVICES": "1", "PYTHONPATH": str(shadow)})
    with RayCluster(tmp_path_factory.mktemp("cluster"), *nodes) as cluster:
        cluster.shadow = shadow
        yield cluster


@pytest.fixture
def cluster(up: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RayCluster]:
    """The cluster, seen by this process, which has no NVML; whatever is asked leaves no process behind."""
    join(up, tmp_path, monkeypatch)
    up.nodes[0].cards(79 * GIB, 79 * GIB, **H100)
    up.nodes[1].cards(1 * GIB, 30 * GIB, 1 * GIB, **H100)
    before = up.processes()
    yield up
    up.nodes[1].give_library()
    up.nodes[1].rig.mend()
    hide_package(up).unlink(missing_ok=True)
    assert up.settled_at(before, 20.0) == set()


def hide_package(cluster: RayCluster) -> Path:
    """A module of that name that has nothing in it, first on the path of node 1's processes once it is there."""
    return cluster.shadow / "zenit_hub.py"


def join(cluster: RayCluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Become a process that finds the cluster, from where the sources of this package are not on the path."""
    for variable, value in cluster.environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(folder)


def launch(look: Any, **typed: Any) -> Answer:
    """A launch with the Ray backend, and with settings of this node's own that mean nothing elsewhere."""
    typed = {"distributed_executor_backend": "ray", **typed}
    return asked(P3, look, typed=typed, environment={"CUDA_VISIBLE_DEVICES": "7"}, device_ids=[3])


def patient_look() -> Machine:
    machine = look_at_cluster(AMPLE_S)
    assert machine is not None
    return machine


def free_gib(machine: Machine | None) -> list[int]:
    assert machine is not None
    assert machine.driver_error is None
    return sorted((device.free_bytes or 0) // GIB for device in machine.devices)


@contextmanager
def driver(cluster: RayCluster, *words: str) -> Iterator[str]:
    """A driver of ``ray_child.py``, from its first line to the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.rigs.ray_child", *words],
        cwd=ROOT,
        env={**os.environ, **cluster.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        yield started.stdout.readline()


def test_the_worse_node_decides(cluster: RayCluster) -> None:
    """Of each node the cards that Ray has there; what holds for the head's own cards holds for no others."""
    found = launch(patient_look, tensor_parallel_size=2)
    assert free_gib(found.machine) == [30, 79, 79]
    assert (name(found), found.reason) == ("m256k", "widest_fitting")
    assert found.filling.set["gpu_memory_utilization"] == 0.3
    assert "memory_unknown" not in told(found)
    at = f"30.00 GiB of 80.00 GiB free on node 127.0.0.1 ({cluster.nodes[1].id[:8]}), budget"
    assert at in "\n".join(lines(found))


def test_more_ranks_than_the_cluster_has_cards(cluster: RayCluster) -> None:
    """Nobody knows what they would get: the default, and both numbers."""
    found = launch(patient_look, tensor_parallel_size=4)
    assert (name(found), found.reason) == ("s32k", "default")
    assert "needs 4 devices and 3 are visible" in sentence(found, "memory_unknown")


def test_a_node_without_nvml_makes_the_memory_unknown(cluster: RayCluster) -> None:
    """The default, with the node's name and what it lacks; that others have plenty decides nothing."""
    cluster.nodes[1].take_library()
    found = launch(patient_look)
    assert (name(found), found.reason, found.decision.fits) == ("s32k", "default", None)
    said = sentence(found, "memory_unknown")
    assert f"node 127.0.0.1 ({cluster.nodes[1].id[:8]}) of the Ray cluster" in said
    assert "libnvidia-ml.so.1 is not there" in said
    assert cluster.nodes[0].id[:8] not in said


def test_a_node_without_this_package_makes_the_memory_unknown(cluster: RayCluster) -> None:
    """Nothing is sent there to stand in for it."""
    hide_package(cluster).touch()
    found = launch(patient_look)
    assert (name(found), found.reason) == ("s32k", "default")
    said = sentence(found, "memory_unknown")
    assert (
        f"({cluster.nodes[1].id[:8]}) of the Ray cluster: ModuleNotFoundError: No module named 'zenit_hub"
        in said
    )


def test_a_node_whose_cards_are_lent_in_part_makes_the_memory_unknown(cluster: RayCluster) -> None:
    """Ray tells nobody which of them it would give."""
    with driver(cluster, "borrow", "1", "node-0"):
        found = launch(patient_look)
    assert (name(found), found.reason) == ("s32k", "default")
    said = sentence(found, "memory_unknown")
    assert f"({cluster.nodes[0].id[:8]}) of the Ray cluster: 1 of its 2 GPUs are left" in said


def test_a_node_whose_cards_are_all_lent_is_not_asked(cluster: RayCluster) -> None:
    """No rank will come there."""
    cluster.nodes[0].cards(1 * GIB, 1 * GIB, **H100)
    with driver(cluster, "borrow", "2", "node-0"):
        assert free_gib(patient_look()) == [30]


def test_a_launcher_in_a_placement_group_asks_the_cards_of_its_bundles(cluster: RayCluster) -> None:
    """The very ones that Ray lends there, on a node where another is lent already, and full."""
    cluster.nodes[0].cards(1 * GIB, 60 * GIB, **H100)
    with driver(cluster, "borrow", "1", "node-0"):
        for node, expected in (("node-0", 60), ("node-1", 30)):
            with driver(cluster, "look_in_group", node) as line:
                seen = json.loads(line)
            assert (seen["driver_error"], seen["cluster"]) == (None, True)
            assert [device["free_bytes"] // GIB for device in seen["devices"]] == [expected]


def test_ray_keeps_silent(cluster: RayCluster, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither its greeting nor its errors reach the launcher's output, and Ray is not in the launcher."""
    cluster.nodes[1].take_library()
    before = "ray" in sys.modules
    patient_look()
    assert capfd.readouterr() == ("", "")
    assert ("ray" in sys.modules) is before


def test_a_driver_that_hangs_on_a_node_costs_the_time_limit_at_most(cluster: RayCluster) -> None:
    """The default, with the node's name."""
    cluster.nodes[1].rig.hang("nvmlDeviceGetMemoryInfo_v2", 60)
    started = time.monotonic()
    found = launch(look_through_ray)
    assert time.monotonic() - started < ANSWER_LIMIT_S
    assert (name(found), found.reason) == ("s32k", "default")
    assert f"node 127.0.0.1 ({cluster.nodes[1].id[:8]})" in sentence(found, "memory_unknown")


def test_a_node_that_dies_while_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer in time that names it, and nothing left of the question on it or here."""
    with RayCluster(tmp_path / "cluster", (1, {}), (1, {})) as cluster:
        join(cluster, tmp_path, monkeypatch)
        for node in cluster.nodes:
            node.cards(79 * GIB, **H100)
        dying = cluster.nodes[1]
        dying.rig.hang("nvmlDeviceGetMemoryInfo_v2", 60)
        before = cluster.processes()
        killer = threading.Thread(target=kill_once_asked, args=(cluster, 1))
        killer.start()
        started = time.monotonic()
        found = launch(look_through_ray)
        took_s = time.monotonic() - started
        killer.join()
        assert took_s < ANSWER_LIMIT_S
        assert "nvmlDeviceGetMemoryInfo_v2" in dying.rig.calls()
        assert (name(found), found.reason) == ("s32k", "default")
        assert f"node 127.0.0.1 ({dying.id[:8]}) of the Ray cluster: " in sentence(found, "memory_unknown")
        assert cluster.settled_at(before, 20.0) == set()
    assert cluster.processes() == set()


def kill_once_asked(cluster: RayCluster, number: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if "nvmlDeviceGetMemoryInfo_v2" in cluster.nodes[number].rig.calls():
            break
        time.sleep(0.02)
    cluster.kill_raylet(number)
