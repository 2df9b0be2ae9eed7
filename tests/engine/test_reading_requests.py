"""What reading costs at the Hub: whole configurations, with the plug-in and without it, counted at the loopback hub."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.hub import LoopbackHub, directory_files
from tests.rigs.reading import Reader, Readers, Told, engine, read

pytest_plugins = ("tests.rigs.reading_fixtures",)

WITHOUT_PLUG_IN = {"VLLM_PLUGINS": ""}
MORE_WITHOUT_SECTION = 1
MORE_WITH_SECTION = 1
"""A naive ``get_config`` costs 4. Cold ours takes the place of one of vLLM's look-ups, warm it is one HEAD."""

MIB = 2**20
PROFILES = {
    name: {"max_model_len": window, "requires_free_bytes": mib * MIB, "kv_cache_memory_bytes": mib * MIB // 4}
    for name, window, mib in (("narrow", 1024, 64), ("wide", 2048, 128))
}
SECTION = {"default_profile": "narrow", "profiles": PROFILES}
KINDS = ("plain", "section")
WINDOWS = {"plain": 4096, "section": 2048}

Counted = dict[tuple[str, str, str], tuple[int, Told]]
"""(cold or warm, stock or ours, kind) → requests, and what the launch told."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """A tiny checkpoint without a section and one with."""
    folder = tmp_path_factory.mktemp("checkpoints")
    specs = {
        "plain": CheckpointSpec(),
        "section": CheckpointSpec(section=SECTION, section_key="serving_profiles"),
    }
    return {kind: directory_files(build_checkpoint(folder / kind, spec)) for kind, spec in specs.items()}


@pytest.fixture(scope="module")
def counted(repos: LoopbackHub, reader: Reader, files: dict[str, dict[str, bytes]]) -> Counted:
    """Each launch in a fresh process with a repo that nobody read before, then each of them again."""
    launches = [(whose, kind) for whose in ("stock", "ours") for kind in KINDS]
    orders = []
    for whose, kind in launches:
        repos.create(f"{whose}/{kind}", files[kind])
        orders.append(engine(f"{whose}/{kind}", environ=WITHOUT_PLUG_IN if whose == "stock" else {}))
    found: Counted = {}
    for when in ("cold", "warm"):
        repos.forget_requests()
        for (whose, kind), told in zip(launches, reader.together(*orders), strict=True):
            found[when, whose, kind] = repos.count(path=f"*{whose}/{kind}*"), told
        assert sum(count for (at, *_), (count, _) in found.items() if at == when) == len(repos.requests)
    return found


def test_the_launches_are_what_they_should_be(counted: Counted) -> None:
    """Stock knows no section, ours serves its window; nothing is written at ERROR."""
    for (_, whose, kind), (_, told) in counted.items():
        assert (told["raised"], told.errors) == (None, [])
        assert told["window"] == (4096 if whose == "stock" else WINDOWS[kind])


@pytest.mark.parametrize("when", ["cold", "warm"])
def test_the_hub_is_asked_at_most_once_more(counted: Counted, when: str) -> None:
    """For a repo without a section as for one with."""
    for kind, allowed in (("plain", MORE_WITHOUT_SECTION), ("section", MORE_WITH_SECTION)):
        (stock, _), (ours, _) = counted[when, "stock", kind], counted[when, "ours", kind]
        print(f"requests, {when}, {kind}: stock {stock}, with the plug-in {ours}")
        assert stock > 0
        assert ours <= stock + allowed


@pytest.mark.parametrize("when", ["cold", "warm"])
def test_get_config_is_called_once_where_there_is_a_section(counted: Counted, when: str) -> None:
    """Without the right to run code and with the caller's revision, None being main; else not at all."""
    _, plain = counted[when, "ours", "plain"]
    _, section = counted[when, "ours", "section"]
    assert plain["get_config"] == []
    (call,) = section["get_config"]
    assert (call["model"], call["trust_remote_code"]) == ("ours/section", False)
    assert call["revision"] in (None, "main")


def test_get_config_gets_the_revision_that_was_typed(
    repos: LoopbackHub, reader: Reader, files: dict[str, dict[str, bytes]]
) -> None:
    """A tag and a commit are passed on as they are."""
    commit = repos.create("typed/section", files["section"])
    repos.tag("typed/section", "v1")
    told = reader.together(*(read("typed/section", revision=revision) for revision in ("v1", commit)))
    for one, revision in zip(told, ("v1", commit), strict=True):
        (call,) = one["get_config"]
        assert (call["trust_remote_code"], call["revision"]) == (False, revision)


def test_a_second_launch_needs_no_hub(
    repos: LoopbackHub, readers: Readers, files: dict[str, dict[str, bytes]]
) -> None:
    """``HF_HUB_OFFLINE=1`` after a first run: the same window, the revision's own section, nobody asked."""
    repos.create("again/section", {**files["section"]})
    repos.branch("again/section", "plain")
    repos.commit("again/section", {"config.json": files["plain"]["config.json"]}, revision="plain")
    orders = [engine("again/section"), engine("again/section", revision="plain")]
    first = readers.online.together(*orders)
    repos.forget_requests()
    second = readers.offline.together(*orders)
    assert [told["window"] for told in first] == [told["window"] for told in second] == [2048, 4096]
    assert [Path(told["model"]).parent.name for told in second] == ["snapshots", "snapshots"]
    assert [told["get_config"] for told in second] == [[], []]
    assert repos.requests == []
