"""Processes beside a cluster of ``ray_cluster.py``: the one that holds it up, and drivers that use it."""

from __future__ import annotations

import json
import sys
from typing import Any

TINY = {"num_cpus": 1, "object_store_memory": 80 << 20, "node_ip_address": "127.0.0.1"}


def hold(described: str) -> None:
    """Start the nodes, say where they are, stop them when stdin ends. A number there kills that node's raylet."""
    from ray._private.ray_constants import PROCESS_TYPE_RAYLET
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    raylets, up = [], []
    for number, node_options in enumerate(json.loads(described)):
        options: dict[str, Any] = {**TINY, **node_options, "resources": {f"node-{number}": 1}}
        node = cluster.add_node(include_dashboard=False, **options)
        raylets.append(node.all_processes[PROCESS_TYPE_RAYLET][0].process)
        up.append(node.node_id)
    print(json.dumps({"address": cluster.address, "nodes": up}), flush=True)
    for line in sys.stdin:
        raylets[int(line)].kill()
        # Reaped, or else its workers take the zombie for a raylet that lives, and live on.
        raylets[int(line)].wait()
    cluster.shutdown()


def borrow(gpus: str, node: str) -> None:
    """Hold so many GPUs of a node until stdin ends."""
    import ray

    ray.init(log_to_driver=False)
    actor = ray.remote(_actor()).options(num_cpus=0, num_gpus=int(gpus), resources={node: 0.1}).remote()
    print(ray.get(actor.says.remote()), flush=True)
    sys.stdin.read()


def look_in_group(node: str) -> None:
    """What a launcher sees that is an actor in a placement group with one GPU, on ``node``."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.init(log_to_driver=False)
    group = ray.util.placement_group([{"CPU": 1}, {"GPU": 1, node: 0.1}])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    actor = ray.remote(_actor()).options(num_cpus=1, scheduling_strategy=strategy).remote()
    print(ray.get(actor.looks.remote()), flush=True)


def _actor() -> type:
    """A class in a function travels to its node by value."""

    class Actor:
        def says(self) -> str:
            return "here"

        def looks(self) -> str:
            from dataclasses import asdict

            from zenit_hub.engine.cluster import look_at_cluster

            seen = look_at_cluster(timeout_s=30)
            return json.dumps(seen and asdict(seen))

    return Actor


if __name__ == "__main__":
    {"hold": hold, "borrow": borrow, "look_in_group": look_in_group}[sys.argv[1]](*sys.argv[2:])
