"""The cards of a Ray cluster that is up, asked on their own nodes.

Ray runs in a child process (``nodes``): in the launcher a connection would stay behind, and vLLM makes its
own, with settings of its own.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from zenit_hub import env
from zenit_hub.device import look_at_cards
from zenit_hub.engine.nodes import Found, unknown
from zenit_hub.machine import Device, Machine
from zenit_hub.text import printable

TIMEOUT_S = 8.0
"""For everything: connecting, a worker process on each node, the driver's answer there."""

_CHILD = "from zenit_hub.engine.nodes import main; main()"
"""Not ``-m``: Ray would look for what it pickles in ``__main__``."""


def look_through_ray() -> Machine:
    """The cards of the cluster that is up; where none is, vLLM starts Ray on this machine alone."""
    return look_at_cluster() or look_at_cards()


def look_at_cluster(timeout_s: float = TIMEOUT_S) -> Machine | None:
    """All cards that Ray may give to the launch. ``None``: no cluster is up, so vLLM stays on this machine."""
    if importlib.util.find_spec("ray") is None:
        return None
    found = _from_child(_joined(), timeout_s)
    if not found["cluster"]:
        return None
    if found["unknown"] is not None:
        return Machine("nvml", driver_error=printable(found["unknown"], limit=400), cluster=True)
    return Machine("nvml", tuple(_device(i, card) for i, card in enumerate(found["cards"])), cluster=True)


def _device(index: int, card: Mapping[str, Any]) -> Device:
    """A card of some node; ``index`` counts through the cluster."""
    capability = card["compute_capability"]
    return Device(
        index=index,
        uuid=card["uuid"] or "",
        name=card["name"],
        compute_capability=(capability[0], capability[1]) if capability else None,
        total_bytes=card["total_bytes"],
        free_bytes=card["free_bytes"],
        error=card["error"],
        node=card["node"],
    )


def _joined() -> dict[str, Any]:
    """The cluster in which this process is already, and the placement group that vLLM would fill."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return {"address": None, "group": None}
    group = ray.util.get_current_placement_group()
    return {
        "address": ray.get_runtime_context().gcs_address,
        "group": None if group is None else [group.id.hex(), group.bundle_specs],
    }


def _from_child(joined: Mapping[str, Any], timeout_s: float) -> Found:
    request = json.dumps({"group": joined["group"], "until_s": time.monotonic() + timeout_s})
    at = {env.RAY_ADDRESS: joined["address"]} if joined["address"] else {}
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, request],
        env={**os.environ, env.RAY_USAGE_STATS: "0", **at},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as child:
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.communicate(timeout=timeout_s)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        # One that was killed may have answered before, and hung in its farewell.
        output = child.communicate()[0]
    try:
        found: Found = json.loads(output)
    except ValueError:
        late_or_dead = f"no answer in {timeout_s:g} s" if child.returncode == -signal.SIGKILL else "it failed"
        return unknown(f"the Ray cluster could not be asked: {late_or_dead}")
    return found
