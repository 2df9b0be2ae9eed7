"""One launch, one decision: what is handed down, and what of a forged one is believed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from zenit_hub import env
from zenit_hub.apply import Filling
from zenit_hub.caller import Caller
from zenit_hub.launch import Publisher, hand_down, launch_key, take

KEY = "a" * 64
FILLING = Filling(
    set={"max_model_len": 4096, "gpu_memory_utilization": 0.5, "tensor_parallel_size": 2},
    kept={"max_num_seqs": 2},
    env={env.EFFECTIVE_WINDOW: "4096", env.RAY_COPIES: "X"},
)
NOBODY = 4_194_305
"""Above the largest process id of Linux."""


def handed(**changed: object) -> dict[str, str]:
    """An environment in which this process's parent was the launcher, with changes of a forger."""
    environment: dict[str, str] = {}
    hand_down(KEY, "p", FILLING, environment)
    content = {**json.loads(environment[env.HANDED_DOWN]), "pid": os.getppid(), **changed}
    return {env.HANDED_DOWN: json.dumps(content)}


def test_a_child_takes_what_its_launcher_set() -> None:
    """Arguments and variables, to the value."""
    found = take(KEY, handed())

    assert found is not None
    assert found.profile == "p"
    assert found.filling.set == FILLING.set
    assert found.filling.env == FILLING.env


def test_a_process_further_down_takes_it_too() -> None:
    """An API server may be a child's child; a stranger with the same key is not of the launch."""
    environment = {**os.environ}
    hand_down(KEY, "p", FILLING, environment)
    inner = f"from zenit_hub.launch import take; import os; print(take({KEY!r}, os.environ) is not None)"
    outer = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"

    child = subprocess.run(
        [sys.executable, "-c", outer, inner], env=environment, capture_output=True, text=True, check=True
    )

    assert child.stdout == "True\n"


def test_a_process_that_was_started_beside_the_launcher_takes_it_too() -> None:
    """One parent, one environment: a launcher that has gone on leaves its decision."""
    assert take(KEY, handed(pid=NOBODY, parent_pid=os.getppid())) is not None


def test_the_launcher_itself_decides_afresh() -> None:
    """A second engine of one process is another launch."""
    environment: dict[str, str] = {}
    hand_down(KEY, "p", FILLING, environment)

    assert take(KEY, environment) is None


def test_a_launch_without_a_profile_is_handed_down_too() -> None:
    """That nothing is set is a decision."""
    environment: dict[str, str] = {}
    hand_down(KEY, None, Filling(), environment)
    content = json.loads(environment[env.HANDED_DOWN]) | {"pid": os.getppid()}

    found = take(KEY, {env.HANDED_DOWN: json.dumps(content)})

    assert found is not None
    assert (found.profile, dict(found.filling.set), dict(found.filling.env)) == (None, {}, {})


@pytest.mark.parametrize(
    "changed",
    [
        {"key": "b" * 64},
        {"key": None},
        {"form": 2},
        {"form": None},
        {"pid": NOBODY, "parent_pid": NOBODY},
        {"pid": None, "parent_pid": None},
        {"pid": "x", "parent_pid": []},
    ],
)
def test_another_launchs_decision_is_not_taken(changed: dict[str, Any]) -> None:
    """Another key, form or family of processes."""
    assert take(KEY, handed(**changed)) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"set": {"trust_remote_code": True}},
        {"set": {"max_model_len": 4096, "model": "/etc"}},
        {"set": {"max_model_len": "4096"}},
        {"set": {"max_model_len": -1}},
        {"set": {"gpu_memory_utilization": 1.5}},
        {"set": {"gpu_memory_utilization": float("nan")}},
        {"set": {"kv_cache_dtype": "fp8; rm"}},
        {"set": {"tensor_parallel_size": 0}},
        {"set": None},
        {"set": "max_model_len"},
        {"set": [1]},
        {"set": [["download_dir", "/"]]},
        {"env": {"LD_PRELOAD": "x.so"}},
        {"env": {env.EFFECTIVE_WINDOW: 4096}},
        {"env": {env.PROFILE: "p"}},
        {"env": {env.HANDED_DOWN: "{}"}},
        {"env": None},
        {"profile": 7},
        {"profile": ["p"]},
    ],
)
def test_a_forged_decision_is_not_taken(changed: dict[str, Any]) -> None:
    """Held against the list of what a section can set, name by name and value by value."""
    assert take(KEY, handed(**changed)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"x"',
        "{}",
        '{"form": 1}',
        "[" * 100_000,
        "9" * 5000,
        "\x00",
        "NaN",
        "\ud800",
    ],
)
def test_garbage_is_not_taken(text: str) -> None:
    """Whatever stands in the variable."""
    assert take(KEY, {env.HANDED_DOWN: text}) is None


def test_nothing_handed_down_is_nothing() -> None:
    """The usual start."""
    assert take(KEY, {}) is None


# --- what makes two launches one


@pytest.mark.parametrize(
    ("values", "environment", "same"),
    [
        ({"seed": 1}, {}, True),
        ({"seed": 2}, {}, False),
        ({}, {}, False),
        ({"seed": 1, "hf_token": "other"}, {}, True),
        ({"seed": 1, "max_num_seqs": None}, {}, False),
        ({"seed": 1}, {env.PROFILE: "p"}, False),
        ({"seed": 1}, {env.KEEP: "seed"}, False),
        ({"seed": 1}, {env.VISIBLE_DEVICES: "1"}, False),
        ({"seed": 1}, {"PATH": "/bin"}, True),
    ],
)
def test_the_same_words_are_the_same_launch(
    values: dict[str, Any], environment: dict[str, str], same: bool
) -> None:
    """Arguments and what steers the choice; a secret is not part of it."""
    key = launch_key("org/model", None, Caller(values={"seed": 1, "hf_token": "secret"}), {})

    assert (launch_key("org/model", None, Caller(values=values), environment) == key) is same


def test_another_model_or_revision_is_another_launch() -> None:
    """What is served is part of the key."""
    keys = {launch_key(*of, Caller(), {}) for of in (("a", None), ("b", None), ("a", "main"))}

    assert len(keys) == 3


def test_an_object_counts_by_its_type_and_never_by_its_address() -> None:
    """Another process has it elsewhere."""
    keys = {launch_key("a", None, Caller(values={"x": object()}), {}) for _ in range(2)}

    assert len(keys) == 1


@pytest.mark.parametrize("value", [{1: 2, "a": 3}, {("a", "b"): 1}, {"a": {1, 2}}, b"x", float("nan")])
def test_any_value_can_be_part_of_a_key(value: object) -> None:
    """``hf_overrides`` of a script may hold anything."""
    caller = Caller(values={"hf_overrides": value})

    assert launch_key("a", None, caller, {}) == launch_key("a", None, caller, {})


def test_a_circle_can_be_part_of_a_key() -> None:
    """It has no end, and a key all the same."""
    circle: list[object] = []
    circle.append(circle)

    assert launch_key("a", None, Caller(values={"x": circle}), {})


def test_no_secret_is_handed_down() -> None:
    """Neither the token nor the key of the API stands in the variable."""
    environment: dict[str, str] = {}
    key = launch_key("a", None, Caller(values={"hf_token": "hf_geheim", "api_key": ["geheim"]}), {})
    hand_down(key, "p", FILLING, environment)

    assert "geheim" not in environment[env.HANDED_DOWN]


# --- what is taken back


def test_what_was_set_for_an_earlier_engine_is_taken_back() -> None:
    """What stood there before comes again; the handed decision goes."""
    environment = {"A": "theirs", env.HANDED_DOWN: "{}"}
    publisher = Publisher()
    publisher.publish({"A": "ours", "B": "ours"}, environment)

    publisher.withdraw(environment)

    assert environment == {"A": "theirs"}


def test_what_somebody_changed_since_is_left() -> None:
    """It is his now, and stays so."""
    environment: dict[str, str] = {}
    publisher = Publisher()
    publisher.publish({"A": "ours", "B": "ours"}, environment)
    environment["A"] = "theirs"
    del environment["B"]

    publisher.withdraw(environment)
    publisher.withdraw(environment)

    assert environment == {"A": "theirs"}
