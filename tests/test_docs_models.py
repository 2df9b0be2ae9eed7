"""The pages for those who publish models: what stands in their code blocks is run, or held against what it names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from huggingface_hub import CommitOperationAdd, HfApi

from tests import pages
from tests.rigs.hub import LoopbackHub
from tests.rigs.model_repo import GOOD, ROOT, make_model_repo
from zenit_hub.cli.main import main

REPO = "org/model"
BAD = {**GOOD, "serving_profiles": {"profiles": {"p": {"max_model_len": 0, "`@everyone`": 1}}}}


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    return [block.text for block in pages.blocks(f".docs/{page}", language)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A model repo that has nothing to complain of."""
    made = make_model_repo(tmp_path / "model")
    main(["card", str(made), "--write"])
    return made


@pytest.fixture
def hub(checkout: Path) -> Iterator[LoopbackHub]:
    """The same repo on a hub, with two pull requests: the first is bad, the second good."""
    with LoopbackHub() as made:
        token = made.account("org")
        files = {name: (checkout / name).read_bytes() for name in ("config.json", "README.md")}
        made.create(REPO, files)
        api = HfApi(endpoint=made.url, token=token)
        for content in (BAD, {**GOOD, "bos_token_id": 1}):
            add = CommitOperationAdd("config.json", json.dumps(content, indent=2).encode())
            api.create_commit(REPO, [add], commit_message="A change", create_pr=True)
        yield made


def bash(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """With the commands of this environment in front."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        env={"PATH": path, "HOME": str(folder), "HF_HUB_DISABLE_TELEMETRY": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def on(hub: LoopbackHub, folder: Path) -> dict[str, str]:
    """The variables with which commands reach the hub as its owner."""
    return hub.environment(home=folder / "home", token=hub.account("org"))


def test_the_two_commands(checkout: Path) -> None:
    told = bash(blocks("ci.md", "bash")[0], checkout)

    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout == "config.json: valid\nREADME.md: the card is up to date\n"


def test_the_hooks_that_it_names_are_there() -> None:
    """And so are the words in their arguments."""
    (repo,) = yaml.safe_load(blocks("ci.md", "yaml")[0])["repos"]
    there = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))}

    assert {hook["id"] for hook in repo["hooks"]} == there


def test_the_inputs_of_the_action_are_there() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    _, step = yaml.safe_load(blocks("ci.md", "yaml")[1])["jobs"]["zenit-hub"]["steps"]

    assert set(step["with"]) <= set(action["inputs"])


@pytest.mark.engine  # a second for each command that imports the Hub's client
def test_pull_requests_on_the_hub(hub: LoopbackHub, tmp_path: Path) -> None:
    """The first line finds what is wrong, and the second one has nothing to make a card of."""
    validate, card = blocks("ci.md", "bash")[1].splitlines()

    assert bash(validate, tmp_path, **on(hub, tmp_path)).returncode == 1
    assert bash(card, tmp_path, **on(hub, tmp_path)).returncode == 1
    for line in (validate, card):
        told = bash(line.replace("refs/pr/1", "refs/pr/2"), tmp_path, **on(hub, tmp_path))
        assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.engine  # a second for each command that imports the Hub's client
def test_all_open_pull_requests(hub: LoopbackHub, tmp_path: Path) -> None:
    told = bash(blocks("ci.md", "bash")[2], tmp_path, **on(hub, tmp_path))

    assert told.returncode == 0, told.stderr
    assert "pull request 1 is not valid" in told.stdout
    assert "pull request 2" not in told.stdout


@pytest.mark.engine  # a second for each command that imports the Hub's client
def test_the_job_comments_on_what_is_wrong(hub: LoopbackHub, tmp_path: Path) -> None:
    """Once, in the pull request that the event is about, as text that is no Markdown; main is none of its business."""
    refs = ["refs/heads/main", "refs/pr/1", "refs/pr/2", "refs/pr/1; touch ran"]
    payload = {"updatedRefs": [{"ref": ref, "oldSha": None, "newSha": "0" * 40} for ref in refs]}
    told = bash(
        blocks("ci.md", "bash")[3],
        tmp_path,
        **on(hub, tmp_path),
        WEBHOOK_REPO_ID=REPO,
        WEBHOOK_PAYLOAD=json.dumps(payload),
    )

    assert told.returncode == 0, told.stderr
    assert "refs/pr/2: nothing to complain of" in told.stdout
    comments = {
        number: [event.data["raw"] for event in discussion.events if event.kind == "comment"][1:]
        for number, discussion in hub.repository(REPO).discussions.items()
    }
    assert comments[2] == []
    (comment,) = comments[1]
    first, empty, *lines = comment.rstrip("\n").split("\n")
    assert (first, empty) == ("zenit-hub found:", "")
    assert all(line.startswith("    ") for line in lines)
    assert "`max_model_len` is 0" in comment
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("payload", [{}, {"updatedRefs": None}, {"updatedRefs": []}])
def test_the_job_has_nothing_to_do_for_other_events(payload: dict[str, object], tmp_path: Path) -> None:
    """The run that is only the pattern for the others has no payload at all."""
    for variables in ({}, {"WEBHOOK_PAYLOAD": json.dumps(payload), "WEBHOOK_REPO_ID": REPO}):
        told = bash(f"set -u\n{blocks('ci.md', 'bash')[3]}", tmp_path, **variables)
        assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_the_schemas_for_editors(checkout: Path) -> None:
    """Both blocks; the second one is another program's verdict."""
    for block in blocks("editors.md", "bash"):
        told = bash(block, checkout)
        assert told.returncode == 0, told.stdout + told.stderr

    assert {json.loads(file.read_text())["title"] for file in checkout.glob("*.schema.json")} != set()
    (checkout / "config.json").write_text(json.dumps(BAD))
    assert bash(blocks("editors.md", "bash")[1], checkout).returncode == 1


def test_the_settings_for_an_editor_are_json() -> None:
    (settings,) = blocks("editors.md", "json")

    assert json.loads(settings)["json.schemas"][0]["fileMatch"] == ["config.json"]
