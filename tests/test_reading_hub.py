"""``plan`` and ``validate`` of a Hub id: the real client and the loopback hub, each call in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.rigs.hub import LoopbackHub
from tests.rigs.reading import P3, Reader, Told, cli, config_file

pytest_plugins = ("tests.rigs.reading_fixtures",)

TOKEN = "hf_nobody_may_see_this"
MACHINE = {
    "vllm_version": "0.33.0",
    "devices": [{"name": "Card A", "total_bytes": 33683281019, "free_bytes": 33285996544}],
}


@pytest.fixture
def machine(tmp_path: Path) -> str:
    """A card on which P3 gives m256k."""
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(MACHINE))
    return str(file)


def assert_one_clear_error(told: Told, why: str) -> None:
    """Exit 1, the reason in one place, no traceback and no token."""
    assert told["raised"] is None
    assert told["status"] == 1
    text = told["out"] + told["err"]
    assert [why in line for line in text.splitlines()].count(True) == 1
    assert "Traceback" not in told.said
    assert TOKEN not in told.said


def test_a_model_that_is_not_in_the_cache_is_one_line_offline(
    repos: LoopbackHub, environment: dict[str, str], tmp_path: Path
) -> None:
    """``HF_HUB_OFFLINE=1``, a repo that was never downloaded: nobody is asked, exit 1."""
    repos.create("offline/new", {"config.json": config_file()})
    with Reader(tmp_path, {**environment, "HF_HUB_OFFLINE": "1"}) as offline:
        for told in offline.together(cli("plan", "offline/new"), cli("validate", "offline/new")):
            assert_one_clear_error(told, "it is not in the cache")
    assert repos.count(path="*offline/new*") == 0


@pytest.mark.parametrize("name", ["plan", "validate"])
def test_what_the_hub_refuses_is_one_line(repos: LoopbackHub, command: Reader, name: str) -> None:
    """A repo that is not there, private, gated or without that revision, or a token that nobody has."""
    repos.account("ann", role="read", token=TOKEN)
    repos.create(f"{name}/open", {"config.json": config_file()})
    repos.create(f"{name}/private", {"config.json": config_file()}, private=True)
    repos.create(f"{name}/gated", {"config.json": config_file()}, gated="manual")
    ann, nobody, broken = ({"HF_TOKEN": token} for token in (TOKEN, f"{TOKEN}_", f"{TOKEN}\x01é"))
    cases = [
        (cli(name, f"{name}/gone"), "no such repo, or it is private"),
        (cli(name, f"{name}/gone", environ=ann), "no such repo, or it is private"),
        (cli(name, f"{name}/private"), "no such repo, or it is private"),
        (cli(name, f"{name}/private", environ=ann), "no such repo, or it is private"),
        (cli(name, f"{name}/gated"), "access to it is restricted"),
        (cli(name, f"{name}/gated", environ=ann), "access to it is restricted"),
        (cli(name, f"{name}/open", environ=nobody), "the Hub answered 401"),
        (cli(name, f"{name}/open", environ=broken), "client failed with UnicodeEncodeError"),
        (cli(name, f"{name}/open", "--revision", "does-not-exist"), "no revision does-not-exist"),
        (cli(name, f"{name}/open.git"), "client failed with HFValidationError"),
    ]
    for told, (_, why) in zip(command.together(*(order for order, _ in cases)), cases, strict=True):
        assert_one_clear_error(told, why)
        if name == "plan":
            assert told["out"] == ""
            assert len(told["err"].splitlines()) == 1


def test_a_revision_is_read_at_its_commit(repos: LoopbackHub, command: Reader, machine: str) -> None:
    """The branch's own section, and the commit in the answer; without a revision it is main's."""
    main = repos.create("plan-q4/model", {"config.json": config_file()})
    repos.branch("plan-q4/model", "q4")
    q4 = repos.commit(
        "plan-q4/model", {"config.json": config_file(lomonosov_serving_profiles=None)}, revision="q4"
    )
    words = ("plan", "plan-q4/model", "--json", "--machine", machine)
    orders = [cli(*words), cli(*words, "--revision", "q4"), cli(*words, "--", "--revision", "q4")]
    found = [json.loads(told["out"]) for told in command.together(*orders)]
    assert [(one["reason"], one["commit"]) for one in found] == [
        ("widest_fitting", main),
        ("no_section", q4),
        ("no_section", q4),
    ]


def test_a_private_repo_opens_to_a_token(repos: LoopbackHub, command: Reader, machine: str) -> None:
    """From the environment and from vLLM's ``--hf-token``, which is in no line of the answer."""
    repos.create("plan-owner/private", {"config.json": config_file()}, private=True, token=TOKEN + "_own")
    words = ("plan", "plan-owner/private", "--json", "--machine", machine)
    told = command.together(
        cli(*words, environ={"HF_TOKEN": TOKEN + "_own"}), cli(*words, "--", "--hf-token", TOKEN + "_own")
    )
    assert [json.loads(one["out"])["profile"] for one in told] == ["m256k", "m256k"]
    assert not any(TOKEN in one.said for one in told)


def test_figures_of_another_repo_are_void(
    repos: LoopbackHub, command: Reader, machine: str, tmp_path: Path
) -> None:
    """Both ids are named for another Hub id; nothing is said for the same, at a revision, or for a folder."""
    section = {**P3["lomonosov_serving_profiles"], "repo": "plan-base/model"}
    data = config_file(lomonosov_serving_profiles=section)
    (tmp_path / "config.json").write_bytes(data)
    for repo in ("plan-base/model", "plan-other/finetune"):
        repos.create(repo, {"config.json": data})
    words = ("plan", "--json", "--machine", machine)
    finetune, *same = command.together(
        cli(*words, "plan-other/finetune"),
        cli(*words, "plan-base/model"),
        cli(*words, "plan-base/model", "--revision", "main"),
        cli(*words, str(tmp_path)),
    )
    answer = json.loads(finetune["out"])
    assert answer["profile"] == "m256k"
    (void,) = [one["message"] for one in answer["warnings"] if one["code"] == "measurement_void"]
    assert "plan-base/model" in void
    assert "plan-other/finetune" in void
    for told in same:
        assert json.loads(told["out"])["profile"] == "m256k"
        assert "measurement_void" not in told["out"]
