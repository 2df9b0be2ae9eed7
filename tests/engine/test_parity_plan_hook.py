"""``plan --machine`` and the hook give one decision: every field case whose machine can be put on.

The machine is NVML's library, made of C, and the environment; of the rest only the platform is set. Both speak of the
installed engine here, and so what a case says about another one is left out of its machine.
"""

from __future__ import annotations

import gc
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, choice, said
from tests.rigs.hook_child import apart, rig, serve
from tests.test_cases import CASES, words_of
from zenit_hub.cli.main import main
from zenit_hub.installed import vllm_version
from zenit_hub.say import REPAIR_ID
from zenit_hub.text import gib

pytest_plugins = ("tests.rigs.hook_fixtures",)

MEMINFO = "its memory is the host's, and what the kernel says of that cannot be set from outside"
LEFT_OUT = {
    "C2-10a": MEMINFO,
    "C2-10b": MEMINFO,
    "C2-11a": MEMINFO,
    "C2-11b": MEMINFO,
    "C2-12b": MEMINFO,
    "C2-12c": MEMINFO,
    "X-20a": MEMINFO,
}
PUT_ON = [case for case in CASES if case["id"] not in LEFT_OUT]
ENGINE_KEYS = ("vllm_version", "engine_defaults", "engine_fields_absent")
STRICT, PROFILE, HAND_DOWN = "ZENIT_SERVING_STRICT", "ZENIT_SERVING_PROFILE", "ZENIT_SERVING_DECISION"
PROCESSES = 2


def test_every_case_that_can_be_put_on_is_put_on() -> None:
    """250 of the 257; the others have an integrated GPU or are on the CPU platform."""
    assert len(PUT_ON) == 250
    for case in CASES:
        machine = case["machine"]
        host_decides = machine["platform"] == "cpu" or any(d.get("integrated") for d in machine["devices"])
        assert host_decides is (case["id"] in LEFT_OUT), case["id"]


def launch_all(launches: list[dict[str, Any]]) -> list[Any]:
    """Each launch, and the same without us, in a process of its own."""
    warm_up(launches[0]["model"])
    return [apart(launch_one, **launch) for launch in launches]


def warm_up(model: str) -> None:
    """Import and compile, once for all, what a launch imports and compiles; it leaves nothing else behind."""
    from zenit_hub.engine.facts import installed_engine
    from zenit_hub.section import Section, read_section

    os.environ[PROFILE] = "off"
    serve(model)
    del os.environ[PROFILE]
    config = json.loads(Path(model, "config.json").read_text(encoding="utf-8"))
    assert isinstance(read_section(config, installed_engine().kv_cache_dtypes), Section)
    gc.freeze()


def launch_one(model: str, words: list[str], machine: dict[str, Any], strict: bool) -> list[Launch]:
    os.environ.update(machine["env"])
    if strict:
        os.environ[STRICT] = "1"
    rig().put(machine)
    asked = os.environ.get(PROFILE)
    os.environ[PROFILE] = "off"
    without = serve(model, *words, platform=machine["platform"])
    del os.environ[PROFILE]
    if asked is not None:
        os.environ[PROFILE] = asked
    return [without, serve(model, *words, platform=machine["platform"])]


def as_a_launch(planned: list[str], machine: dict[str, Any]) -> dict[str, Any]:
    """What is typed behind ``zenit-hub``, as it is typed behind ``vllm``."""
    own, typed = planned[: planned.index("--")], planned[planned.index("--") + 1 :]
    if machine.get("device_ids"):
        typed = [*typed, "--device-ids", ",".join(map(str, machine["device_ids"]))]
    return {"model": own[1], "words": typed, "machine": machine, "strict": "--strict" in own}


Both = dict[str, tuple[list[str], list[Launch]]]


@pytest.fixture(scope="module")
def both(hook: HookServer, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Of each case: the words for ``plan``, and the launch without us and with the hook."""
    planned, launches = [], []
    for case in PUT_ON:
        machine = {key: value for key, value in case["machine"].items() if key not in ENGINE_KEYS}
        # vLLM names its version without the label that a build may carry in its metadata.
        version = (vllm_version() or "").partition("+")[0]
        words = words_of(
            {**case, "machine": {**machine, "vllm_version": version}}, tmp_path_factory.mktemp("case")
        )
        planned.append(words)
        launches.append(as_a_launch(words, machine))
    shares = [launches[start::PROCESSES] for start in range(PROCESSES)]
    done = hook.together(*((launch_all, {"launches": share}) for share in shares))
    outcomes: list[Any] = [None] * len(launches)
    for start, outcome in enumerate(done):
        outcomes[start::PROCESSES] = outcome
    return {case["id"]: pair for case, pair in zip(PUT_ON, zip(planned, outcomes, strict=True), strict=True)}


@pytest.mark.parametrize("case", [case["id"] for case in PUT_ON])
def test_plan_and_hook_decide_alike(case: str, both: Both, capsys: pytest.CaptureFixture[str]) -> None:
    """Profile and reason, every engine argument, kept ones, environment, memory and warnings, word for word."""
    words, (without, launch) = both[case]
    status = main(words)
    out, err = capsys.readouterr()
    if status in (1, 2):
        refused = {1: "ProfileNotDeclared", 2: "SystemExit"}[status]
        assert (launch["raised"] or "").startswith(refused), (launch, err)
        return
    plan = json.loads(out)
    assert warnings_of(launch) == [f"{w['message']} [{w['code']}]" for w in plan["warnings"]]
    assert choice(launch) == ((plan["profile"], plan["reason"]) if plan["profile"] else None)
    assert kept_of(launch) == {name: str(value) for name, value in plan["kept"].items()}
    assert memory_of(launch) == memory_in_words(plan)
    if status == 3:
        assert launch["raised"].startswith("StrictRefusal")
        return
    assert launch["raised"] is None
    assert launch["fields"] == {**without["fields"], **plan["set"]}
    assert published(launch, without) == plan["env"]


def warnings_of(launch: Launch) -> list[str]:
    return [line.removeprefix(f"{REPAIR_ID} ") for level, line in launch["lines"] if level == "WARNING"]


def kept_of(launch: Launch) -> dict[str, str]:
    found = re.search(r"kept as you gave them: (.*)\.$", said(launch), re.MULTILINE)
    return dict(pair.split("=") for pair in found[1].split(", ")) if found else {}


def memory_of(launch: Launch) -> str | None:
    found = re.search(
        r", ([0-9.]+ GiB of [0-9.]+ GiB free, budget [0-9.]+ GiB)\.$", said(launch), re.MULTILINE
    )
    return found[1] if found else None


def memory_in_words(plan: dict[str, Any]) -> str | None:
    seen = plan["memory"]
    if plan["profile"] is None or seen is None or seen["free_bytes"] is None:
        return None
    return f"{gib(seen['free_bytes'])} of {gib(seen['total_bytes'])} free, budget {gib(seen['budget_bytes'])}"


def published(launch: Launch, without: Launch) -> dict[str, str]:
    """What the hook added to the environment or changed there."""
    own = {**without["env"], PROFILE: launch["env"].get(PROFILE)}
    return {n: v for n, v in launch["env"].items() if own.get(n) != v and n != HAND_DOWN}
