"""A Hub that refuses, fails or is silent: the section from the cache, or one line, and never more than ten seconds."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.hub import LoopbackHub, directory_files
from tests.rigs.reading import COMMANDS, P3, SECTION, Reader, Told, cli, config_file, engine, hook, read

pytest_plugins = ("tests.rigs.reading_fixtures",)

TOKEN = "hf_nobody_may_see_this"
FORCED = {"ZENIT_SERVING_PROFILE": "m256k"}
"""Makes the choice independent of this machine's memory."""

STATES = ("cached", "new")
FAULTS: dict[str, dict[str, Any]] = {
    "503": {"status": 503},
    "504": {"status": 504},
    "silent": {"stall_s": 3600},
    "drops": {"drop": True},
}
REASONS = {
    "503": "the Hub did not give it in 8 s",
    "504": "the Hub did not give it in 8 s",
    "silent": "the Hub did not give it in 8 s",
    "drops": "client failed with RemoteProtocolError",
    "timeout": "the Hub did not give it in 8 s",
    "gated": "access to it is restricted",
    "gated-known": "access to it is restricted",
    "private": "no such repo, or it is private",
    "private-known": "no such repo, or it is private",
}
"""What goes wrong → what is said of it where the cache has nothing. ``known``: with the token of a stranger."""


@pytest.fixture
def failing(repos: LoopbackHub, reader: Reader) -> Iterator[list[tuple[str, str]]]:
    """A repo for each thing that goes wrong and each state of the cache, as (kind, state)."""
    named = [(kind, state) for kind in REASONS for state in STATES]
    for kind, state in named:
        repos.create(f"{kind}/{state}", {"config.json": config_file()})
    reader.together(*(read(f"{kind}/cached") for kind in REASONS))
    for kind, state in named:
        repo = repos.repository(f"{kind}/{state}")
        repo.private, repo.gated = kind.startswith("private"), kind.startswith("gated") and "manual"
    for kind, fault in FAULTS.items():
        repos.fail("*", f"*{kind}/*", times=None, **fault)
    repos.account("stranger", role="read", token=TOKEN)
    yield named
    repos.heal()


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that takes no connection and refuses none: its queue is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def launch(kind: str, state: str) -> dict[str, Any]:
    """The token is typed, or in the environment; without one the Hub answers 401 where it would answer 403 or 404."""
    environ = {**FORCED, "HF_TOKEN": TOKEN if kind.endswith("known") else ""}
    typed = {"hf_token": TOKEN} if kind in FAULTS else {}
    switch = {"connecting_times_out": True} if kind == "timeout" else {}
    return {**hook(f"{kind}/{state}", environ=environ, **typed), **switch}


def test_whatever_the_hub_does_a_launch_goes_on_within_ten_seconds(
    reader: Reader, failing: list[tuple[str, str]]
) -> None:
    """What is in the cache is read from there; else there is no section, one line with the reason, and no token."""
    answers = reader.together(*(launch(kind, state) for kind, state in failing))
    for (kind, state), told in zip(failing, answers, strict=True):
        assert (told["raised"], told["vllm_goes_on"], told.errors) == (None, True, []), kind
        assert told["read_s"] <= 10, (kind, state)
        assert TOKEN not in told.said
        if state == "cached":
            assert told["set"]["max_model_len"] == 262144, kind
        else:
            assert (told["set"], told.warnings) == ({}, []), kind
            assert [REASONS[kind] in line for line in told.lines] == [True], kind


def test_plan_and_validate_end_within_ten_seconds(
    repos: LoopbackHub, command: Reader, environment: dict[str, str], nowhere: str, tmp_path: Path
) -> None:
    """An error with the reason, exit 1; from the cache where it is there."""
    kinds = ("503", "silent", "drops", "unreachable")
    for kind in kinds:
        for state in STATES:
            repos.create(f"plan-{kind}/{state}", {"config.json": config_file()})
    command.together(*(cli("plan", f"plan-{kind}/cached") for kind in kinds))
    for kind, fault in FAULTS.items():
        repos.fail("*", f"*plan-{kind}/*", times=None, **fault)
    orders = {
        f"{kind}/{state}": cli("plan", f"plan-{kind}/{state}") for kind in kinds[:-1] for state in STATES
    }
    orders["validate/new"] = cli("validate", "plan-silent/new")
    with Reader(tmp_path, {**environment, "HF_ENDPOINT": nowhere}, COMMANDS) as elsewhere:
        unreached = elsewhere.begin(*(cli("plan", f"plan-unreachable/{state}") for state in STATES))
        answers = [*zip(orders, command.together(*orders.values()), strict=True)]
        answers += zip((f"unreachable/{state}" for state in STATES), unreached(), strict=True)
    repos.heal()
    for name, told in answers:
        new = name.endswith("new")
        assert told["seconds"] <= 10, name
        assert (told["raised"], told["status"]) == (None, int(new)), name
        assert ("cannot be read: the Hub" in told["out"] + told["err"]) == new, name


def test_a_hub_that_recovers_is_waited_for(repos: LoopbackHub, reader: Reader) -> None:
    """503 once, then the section; and where only the listing is silent or fails, the raw file's section."""
    for name in ("once", "no-listing", "silent-listing"):
        repos.create(f"recovers/{name}", {"config.json": config_file()})
    repos.fail("HEAD", "*recovers/once/*", status=503)
    repos.fail("GET", "/api/models/recovers/no-listing/*", times=None, status=503)
    repos.fail("GET", "/api/models/recovers/silent-listing/*", times=None, stall_s=3600)
    names = ("once", "no-listing", "silent-listing")
    answers = reader.together(*(read(f"recovers/{name}") for name in names))
    repos.heal()
    for told in answers:
        assert (told.section, told["config"]["architectures"]) == (SECTION, P3["architectures"])
        assert told["trouble"] is None
        assert told["read_s"] <= 10


def assert_read_with_its_token(told: Told) -> None:
    """The section, by way of one ``get_config`` that had nothing to complain about."""
    assert (told.section, told["trouble"], told.errors, told["environ"]) == (SECTION, None, [], {})
    assert [call["trust_remote_code"] for call in told["get_config"]] == [False]
    assert TOKEN not in told.output


def test_a_private_repo_opens_to_its_owner_s_token(repos: LoopbackHub, reader: Reader) -> None:
    """In the environment or typed: vLLM's listing, which takes no token, gets the typed one all the same."""
    repos.create("owner/environ", {"config.json": config_file()}, private=True, token=TOKEN + "_own")
    repos.create("owner/typed", {"config.json": config_file()}, private=True)
    for told in reader.together(
        read("owner/environ", environ={"HF_TOKEN": TOKEN + "_own"}),
        read("owner/typed", hf_token=TOKEN + "_own"),
    ):
        assert_read_with_its_token(told)


def test_a_private_repo_is_served_with_its_owner_s_token(
    repos: LoopbackHub, reader: Reader, tmp_path: Path
) -> None:
    """A whole configuration with the window of the section."""
    profile = {"max_model_len": 2048, "kv_cache_memory_bytes": 2**25}
    section = {"default_profile": "wide", "profiles": {"wide": profile}}
    spec = CheckpointSpec(section=section, section_key="serving_profiles")
    files = directory_files(build_checkpoint(tmp_path, spec))
    repos.create("served/private", files, private=True, token=TOKEN + "_served")
    told = reader.ask(engine("served/private", environ={"HF_TOKEN": TOKEN + "_served"}))
    assert (told["raised"], told["window"], told.errors) == (None, 2048, [])
    assert TOKEN not in told.output
