"""A Ray cluster of several nodes on this machine, on loopback ports, each node with cards of its own made of C.

    with RayCluster(tmp_path, (1, {}), (2, {"CUDA_VISIBLE_DEVICES": "1,2"})) as cluster:
        cluster.nodes[1].cards(24 * GIB, 80 * GIB, total_bytes=80 * GIB)
        subprocess.run([…], env={**os.environ, **cluster.environment})

The processes of the cluster are found by a variable in their environment, so that none is left at the end.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rigs.nvml import LIBRARY_NAME, NvmlRig

ROOT = Path(__file__).resolve().parents[2]
MARK = "ZENIT_RIG_RAY"
UP_TIMEOUT_S, DOWN_TIMEOUT_S = 90.0, 20.0

LOOPBACK = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # Ray's way to say: 127.0.0.1 is not to become the outer address
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Node:
    """One node: its cards, of which Ray has ``gpus``, its own variables, and its id once the cluster is up."""

    def __init__(self, folder: Path, gpus: int, variables: Mapping[str, str]) -> None:
        self.rig = NvmlRig(folder)
        self.gpus = gpus
        self._variables = variables
        self.id = ""
        self._library_switch = folder / "switch"
        self._library_switch.mkdir()

    def cards(self, *free_bytes: int, total_bytes: int, **keys: Any) -> None:
        card = {"name": "Card A", "compute_capability": "9.0", "total_bytes": total_bytes, **keys}
        self.rig.put({"devices": [{**card, "free_bytes": free} for free in free_bytes]})

    def take_library(self) -> None:
        """From now on a new process on this node finds no NVML."""
        (self._library_switch / LIBRARY_NAME).touch()

    def give_library(self) -> None:
        (self._library_switch / LIBRARY_NAME).unlink(missing_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        own = self.rig.environment()
        return {
            **self._variables,
            **own,
            "LD_LIBRARY_PATH": f"{self._library_switch}:{own['LD_LIBRARY_PATH']}",
        }


class RayCluster:
    """Up from ``__enter__`` to ``__exit__``; ``environment`` is what a process needs to find it."""

    def __init__(self, folder: Path, *nodes: tuple[int, Mapping[str, str]]) -> None:
        self.nodes = [Node(folder / f"node-{number}", *node) for number, node in enumerate(nodes)]
        # Short: Ray's sockets lie in it, and the path of a socket has at most 107 bytes.
        self._scratch = Path(tempfile.mkdtemp(prefix="zr_"))
        self._mark = uuid.uuid4().hex
        self.environment = {**LOOPBACK, "RAY_TMPDIR": str(self._scratch), MARK: self._mark}

    def __enter__(self) -> RayCluster:
        described = [{"num_gpus": node.gpus, "env_vars": node.environment} for node in self.nodes]
        with (self._scratch / "cluster.log").open("wb") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.rigs.ray_child", "hold", json.dumps(described)],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            self._read()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _read(self) -> None:
        ready, _, _ = select.select([self._child.stdout], [], [], UP_TIMEOUT_S)
        line = self._child.stdout.readline() if ready else b""
        if not line:
            raise AssertionError(
                f"the cluster did not come up:\n{(self._scratch / 'cluster.log').read_text()}"
            )
        up = json.loads(line)
        self.environment["RAY_ADDRESS"] = up["address"]
        for node, identifier in zip(self.nodes, up["nodes"], strict=True):
            node.id = identifier

    def kill_raylet(self, number: int) -> None:
        """The node is dead, as after a power cut."""
        self._child.stdin.write(f"{number}\n".encode())
        self._child.stdin.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.stdin.close()
        try:
            self._child.wait(DOWN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        self.settled_at(set(), DOWN_TIMEOUT_S)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def processes(self) -> set[int]:
        """Every process that was started for this cluster or with its ``environment``."""
        return marked(self._mark)

    def settled_at(self, expected: set[int], timeout_s: float) -> set[int]:
        """The processes beside ``expected`` once there are none, or what is left of them after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s
        while (extra := self.processes() - expected) and time.monotonic() < deadline:
            time.sleep(0.1)
        return extra


def marked(mark: str) -> set[int]:
    """The processes with this value of ``MARK`` in the environment with which they started."""
    sign = f"{MARK}={mark}".encode()
    found = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if sign in environ.read_bytes().split(b"\0"):
                found.add(int(environ.parent.name))
        except OSError:  # ended meanwhile
            continue
    return found - {os.getpid()}
