"""The Ray side of ``cluster``: a child of the launcher that asks the nodes, and what is asked on each of them.

Which of the cards Ray will give to which rank nobody can know before it does: each of those that it may give
must do, so it is asked for them all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zenit_hub import env
from zenit_hub.device import look_at_cards
from zenit_hub.visible import ranks, see_cards

_CLOSING_S = 1.0
"""Of the time limit, for the way back: so that the one who waits can still say which node was silent."""

Found = dict[str, Any]
"""``cards`` and ``unknown``, as JSON carries them; ``cluster`` is false where none is up."""


def unknown(why: str) -> Found:
    return {"cluster": True, "cards": [], "unknown": why}


def main() -> None:
    """The child: its one argument is the request, its output the answer. Ray's own words go nowhere."""
    request = json.loads(sys.argv[1])
    # Whoever waits may have been killed: then nobody ends this process but itself.
    signal.setitimer(signal.ITIMER_REAL, max(0.0, request["until_s"] - time.monotonic()) + 1.0)
    answer = os.dup(1)
    os.dup2(2, 1)
    found = _ask(request["group"], request["until_s"] - _CLOSING_S)
    with os.fdopen(answer, "w", encoding="utf-8") as output:
        json.dump(found, output)


def _ask(group: list[Any] | None, until_s: float) -> Found:
    import logging

    import ray
    from ray._private.services import canonicalize_bootstrap_address

    try:
        # As `ray.init()` of vLLM finds its cluster: RAY_ADDRESS, else what `ray start` left. It would start one
        # of its own where none is, so it must not be asked then.
        address = canonicalize_bootstrap_address(None)
        if address is None:
            return {"cluster": False}
        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        places = _nodes() if group is None else _bundles(*group)
        return _answers(places, until_s)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        return unknown(f"the Ray cluster could not be asked: {_words(error)}")


@dataclass(frozen=True, slots=True)
class _Place:
    """One question. ``why_not``: it need not be asked, the memory of that node cannot be known."""

    node: str
    gpus: int
    options: Mapping[str, Any]
    why_not: str | None = None


def _nodes() -> list[_Place]:
    """The nodes on which Ray may place ranks: those with a GPU that is not lent."""
    import ray
    from ray._private.state import available_resources_per_node
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    left = available_resources_per_node()
    places = []
    for node in ray.nodes():
        counted = int(node["Resources"].get("GPU", 0))
        free = left.get(node["NodeID"], {}).get("GPU", 0)
        if not node["Alive"] or free < 1:
            continue
        # A lent card is full, or soon will be; Ray tells which it is to nobody but the borrower.
        why_not = (
            f"{free:g} of its {counted} GPUs are left, and Ray does not tell which"
            if free < counted
            else None
        )
        strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        places.append(_Place(_name(node), counted, {"scheduling_strategy": strategy}, why_not))
    return places


def _bundles(group: str, specs: list[dict[str, float]]) -> list[_Place]:
    """The bundles of the placement group in which the launcher runs: there Ray lends the very cards."""
    import ray
    from ray.util.placement_group import PlacementGroup, placement_group_table
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    handle = PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group)), specs)
    at = placement_group_table(handle)["bundles_to_node_id"]
    names = {node["NodeID"]: _name(node) for node in ray.nodes()}
    wanted = [int(index) for index in os.environ.get(env.RAY_BUNDLES, "").split(",") if index]
    places = []
    for index, spec in enumerate(specs):
        if spec.get("GPU") and (not wanted or index in wanted):
            strategy = PlacementGroupSchedulingStrategy(handle, placement_group_bundle_index=index)
            options = {"scheduling_strategy": strategy, "num_gpus": spec["GPU"]}
            places.append(_Place(names.get(at[index], at[index]), 1, options))
    return places


def _name(node: Mapping[str, Any]) -> str:
    """A node as people find it in ``ray list nodes``."""
    return f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"


def _answers(places: list[_Place], until_s: float) -> Found:
    """What all places say; one that cannot is enough for nobody to know the worst."""
    import ray

    trouble = {place.node: place.why_not for place in places if place.why_not}
    if trouble or not places:
        return unknown(_listed(trouble) or "no node of the Ray cluster has a GPU left")
    task = ray.remote(_task())
    asked = {
        task.options(num_cpus=0, max_retries=0, **place.options).remote(place.gpus): place.node
        for place in places
    }
    left_s = max(0.0, until_s - time.monotonic())
    done, silent = ray.wait(list(asked), num_returns=len(asked), timeout=left_s)
    trouble = {asked[question]: "no answer in time" for question in silent}
    cards = []
    for question in done:
        try:
            found = ray.get(question)
        except ray.exceptions.RayError as error:
            found = unknown(_words(error))
        cards += [{**card, "node": asked[question]} for card in found["cards"]]
        if found["unknown"]:
            trouble[asked[question]] = found["unknown"]
    return {"cluster": True, "cards": cards, "unknown": _listed(trouble)}


def _listed(trouble: Mapping[str, str]) -> str | None:
    return "; ".join(f"{node} of the Ray cluster: {why}" for node, why in trouble.items()) or None


def _task() -> Callable[[int], Found]:
    def zenit_hub_looks_at_cards(gpus: int) -> Found:
        # A function in a function travels by value: where this import fails, that is the answer.
        from zenit_hub.engine.nodes import this_node

        return this_node(gpus)

    return zenit_hub_looks_at_cards


def this_node(gpus: int) -> Found:
    """On a node: the cards lent to this task, or else the ``gpus`` cards that Ray has there."""
    import ray

    # Older Ray hides all cards from a task without GPUs: what the process started with says what Ray has.
    started = Path("/proc/self/environ").read_bytes().split(b"\0")
    there = dict(os.fsdecode(line).split("=", 1) for line in started if b"=" in line)
    lent = ray.get_runtime_context().get_accelerator_ids().get("GPU")
    if lent:
        there[env.VISIBLE_DEVICES] = ",".join(str(identifier) for identifier in lent)
    sight = see_cards(look_at_cards(), there, None)
    if sight.count is not None and sight.count < gpus:
        return unknown(f"Ray counts {gpus} GPUs there and {sight.count} are visible")
    found = ranks(sight, gpus)
    return {"cards": [asdict(card) for card in found.cards], "unknown": found.unknown}


def _words(error: Exception) -> str:
    """The first sentence of an error of Ray's; of an error in a task, the task's own without the trace."""
    cause = getattr(error, "cause", None) or error
    first = str(cause).strip().partition("\n")[0].partition(". ")[0]
    return f"{type(cause).__name__}: {first}"
