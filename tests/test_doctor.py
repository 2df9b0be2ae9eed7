"""The doctor's checks of Python, vLLM, the plug-in, our variables and a model; and everything together."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import worlds
from tests.doctor_facts import HERE, facts, found, read_model
from tests.stage import config, needs, unrated
from zenit_hub import device, read
from zenit_hub.errors import ModelNotFound
from zenit_hub.machine import Machine, Platform
from zenit_hub.maintain.doctor import gather
from zenit_hub.maintain.doctor import hub as hub_module
from zenit_hub.maintain.doctor.checks import CHECKS, examine
from zenit_hub.maintain.doctor.facts import (
    Memory,
    Model,
    ModelRead,
    ModelUnread,
    Unreached,
)
from zenit_hub.maintain.validate import validate
from zenit_hub.nvml_words import in_words
from zenit_hub.read import Found


def test_all_is_well() -> None:
    """And then there is nothing to type."""
    assert [(check.status, check.next) for check in examine(facts())] == [("ok", None)] * 10


def test_every_check_is_in_the_list_once() -> None:
    """A function of a module of checks that is not run would be no check."""
    assert len(set(CHECKS)) == len(CHECKS) == 13
    assert all(function.__doc__ for function in CHECKS)


# --- Python, vLLM, the plug-in


def test_a_python_newer_than_the_tests_is_a_warning() -> None:
    assert found(facts(installed=replace(HERE, python=(3, 99, 0))), "python").status == "warn"


@pytest.mark.parametrize(
    ("version", "status", "said"),
    [
        ("0.25.1", "ok", "0.25.1 for cuda (0.25.1 to 0.33.0 are supported)"),
        ("0.33.7", "ok", "0.33.7"),
        ("0.25.0", "fail", "too old"),
        ("0.34.0rc1", "warn", "newer than what this zenit-hub knows"),
        ("odd", "warn", "has no number in it"),
        (None, "warn", "nothing is served here"),
    ],
)
def test_the_version_of_vllm(version: str | None, status: str, said: str) -> None:
    """Supported, too old, too new, unreadable, absent."""
    check = found(facts(installed=replace(HERE, vllm=version)), "vllm")

    assert check.status == status
    assert said in check.message


@pytest.mark.parametrize(
    ("version", "name", "status"), [(None, "vllm", "fail"), ("0.33.0", "vllm on PATH", "warn")]
)
def test_the_vllm_of_another_environment(version: str | None, name: str, status: str) -> None:
    """Where `zenit-hub` was put beside the wrong Python, no plug-in will be loaded."""
    check = found(facts(installed=replace(HERE, vllm=version, other_python="/other/bin/python3")), name)

    assert check.status == status
    assert "/other/bin/python3 -m pip install ." in (check.next or "")


def test_a_package_that_was_not_installed_is_no_plugin() -> None:
    """Only found, by PYTHONPATH or the current folder."""
    check = found(facts(installed=replace(HERE, plugins=("other",))), "plug-in")

    assert (check.status, check.next) == ("fail", "in a clone of zenit_hub: /env/bin/python -m pip install .")


def test_other_plugins_are_named() -> None:
    """One of them may be an older hook of the same kind."""
    assert found(facts(installed=replace(HERE, plugins=("other", "zenit_hub"))), "plug-in").message == (
        "registered, beside other"
    )
    assert found(facts(VLLM_PLUGINS="a,zenit_hub"), "plug-in").status == "ok"


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (b"#!/somewhere/bin/python3\n", "/somewhere/bin/python3"),
        (f"#!{sys.executable}\n".encode(), None),
        (b"#!/usr/bin/env python3\n", None),
        (b"#!/bin/sh\n", None),
        (b"\x7fELF", None),
    ],
)
def test_whose_vllm_a_shell_finds(
    first: bytes, other: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first line of the command, which is read and not run."""
    (tmp_path / "vllm").write_bytes(first)
    (tmp_path / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    installation = gather.look_at_installation()

    assert installation.other_python == other
    assert installation.python == sys.version_info[:3]
    assert "zenit_hub" in installation.plugins


# --- our own variables


@pytest.mark.parametrize(
    ("name", "value", "status", "said"),
    [
        ("ZENIT_SERVING_PROFILE", "off", "warn", "as if this package were not there"),
        ("ZENIT_SERVING_PROFILE", "wide", "ok", "wide: memory does not choose"),
        ("ZENIT_SERVING_STRICT", "yes", "ok", "on"),
        ("ZENIT_SERVING_STRICT", "0", "ok", "off"),
        ("ZENIT_SERVING_STRICT", "ture", "warn", "ture is taken for off"),
        ("ZENIT_SERVING_KEEP", "max_num_seqs, --seed", "ok", "kept as they are: max_num_seqs, seed"),
        ("ZENIT_SERVING_KEEP", "max_num_seq", "warn", "max_num_seq is no engine argument"),
        ("ZENIT_SERVING_DECISION", "{}", "warn", "not into a shell"),
        ("ZENIT_SERVING_STICT", "1", "warn", "there is no such variable"),
        ("ZENIT_NOOSPHERE_MODE", "deep", "warn", "stands against what any profile says"),
        ("VLLM_USE_MODELSCOPE", "True", "warn", "models come from ModelScope"),
    ],
)
def test_what_the_shell_says_of_profiles(name: str, value: str, status: str, said: str) -> None:
    """Each variable by its name; then nothing is said of all."""
    of = facts(**{name: value})
    check = found(of, name)

    assert (check.status, bool(check.next)) == (status, status != "ok")
    assert said in check.message
    assert not [check for check in examine(of) if check.name == "environment"]


@pytest.mark.parametrize(
    ("name", "value", "then"),
    [
        ("ZENIT_SERVING_KEEP", "max_num_seq", "did you mean max_num_seqs?"),
        ("ZENIT_SERVING_KEEP", "xyzzy", "leave it out"),
        ("ZENIT_SERVING_STICT", "1", "did you mean ZENIT_SERVING_STRICT?"),
        ("ZENIT_SERVING_XYZZY", "1", "unset ZENIT_SERVING_XYZZY"),
    ],
)
def test_a_name_that_is_nearly_right_is_guessed(name: str, value: str, then: str) -> None:
    assert found(facts(**{name: value}), name).next == then


# --- a model and what would be chosen

THREE = config({"wide": needs(40, 16384), "narrow": needs(10, 4096)}, default_profile="narrow")


def test_a_choice_is_told_with_its_figures() -> None:
    check = found(facts(model=read_model(THREE)), "choice")

    assert check.status == "ok"
    assert check.message == (
        "profile narrow, 4096 tokens: the widest window that fits the free memory; "
        "needs 10.00 GiB, its budget is 29.44 GiB"
    )


@pytest.mark.parametrize(
    ("variables", "status", "said"),
    [
        ({"ZENIT_SERVING_PROFILE": "wide"}, "fail", "It does not fit"),
        ({"ZENIT_SERVING_PROFILE": "wide", "ZENIT_SERVING_STRICT": "1"}, "fail", "refuses this start"),
        ({"ZENIT_SERVING_PROFILE": "nope"}, "fail", "vLLM will refuse to start"),
        ({"ZENIT_SERVING_PROFILE": "off"}, "ok", "no profile, vLLM starts with its own values"),
    ],
)
def test_a_choice_that_will_not_start_fails(variables: dict[str, str], status: str, said: str) -> None:
    """As the launch itself would end."""
    check = found(facts(model=read_model(THREE), **variables), "choice")

    assert check.status == status
    assert said in check.message


def test_a_section_without_a_choice_is_a_warning() -> None:
    """Nothing measured, no default."""
    check = found(facts(model=read_model(config({"p": unrated(4096)}))), "choice")

    assert (check.status, check.next) == ("warn", "zenit-hub plan ./model")


def test_every_warning_of_the_decision_is_a_check() -> None:
    """With its code, and what to type for all the figures."""
    of = facts(machine=Machine("nvml", driver_error=in_words("NoPermission")), model=read_model(THREE))

    assert found(of, "choice: memory_unknown").next == "zenit-hub plan ./model"


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (ModelUnread("m", ModelNotFound("gone", got="m", next_step="Look.")), {"model": "fail"}),
        (ModelRead("m", None, Found(None), None), {"model": "warn"}),
        (ModelRead("s3://m", None, Found(read.NotHub("s3://m")), None), {"model": "warn"}),
        (read_model({"architectures": ["X"]}), {"section": "warn"}),
        (read_model(config({})), {"section": "fail"}),
        (
            ModelRead("m", None, Found(read.Unreadable("it is not JSON")), validate(b"{")),
            {"section": "fail"},
        ),
    ],
)
def test_a_model_that_gives_no_profiles(model: Model, names: dict[str, str]) -> None:
    """Said once, with something to type."""
    wrong = [check for check in examine(facts(model=model)) if check.status != "ok"]

    assert {check.name: check.status for check in wrong} == names
    assert all(check.next for check in wrong)


# --- all together


@settings(max_examples=150, deadline=None)
@given(
    machine=worlds.machines,
    environment=worlds.environments,
    platform=worlds.platforms,
    content=worlds.configs,
    version=st.sampled_from([None, *worlds.VERSIONS]),
)
def test_every_machine_and_every_section_get_an_answer(
    machine: Machine, environment: dict[str, str], platform: Platform, content: Any, version: str | None
) -> None:
    """No exception, whatever is there, and nothing that moves a cursor."""
    model = ModelRead("m", None, Found(content), None) if isinstance(content, dict) else None
    installed = replace(HERE, vllm=version)
    seen = Memory(None if platform in ("rocm", "xpu", "unspecified") else machine, host=machine.host)

    for check in examine(
        facts(installed=installed, memory=seen, platform=platform, model=model, **environment)
    ):
        assert check.message.isprintable(), check
        assert (check.next or "x").isprintable(), check
        assert check.name.isprintable()


def test_the_deadlines_leave_ten_seconds() -> None:
    """A driver, a hub and a model that hang are waited for at the same time."""
    longest_s = max(device.TIMEOUT_S + gather.HOLDERS_S, hub_module.DEADLINE_S, read.DEADLINE_S)

    assert hub_module.REQUEST_S < hub_module.DEADLINE_S
    assert longest_s < gather.GATHER_S < 10


def test_what_hangs_for_good_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest is told."""
    over = Event()
    monkeypatch.setattr(gather, "GATHER_S", 0.2)
    for name in ("look_at_memory", "ask_hub", "read_model"):
        monkeypatch.setattr(gather, name, lambda *_: over.wait(10))

    told = gather.gather("m")
    over.set()

    assert told.memory.machine is not None
    assert "did not answer" in (told.memory.machine.driver_error or "")
    assert isinstance(told.hub.reach, Unreached)
    assert isinstance(told.model, ModelUnread)
    assert told.installed.plugins
