"""Publishing by pull request: one of ours is open at most, whatever is lost on the way."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import HfApi

from tests.measurements import CARD, GIB
from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import (
    COMMITS,
    OWNER,
    README,
    REPO,
    STRANGER,
    Publisher,
    config_of,
    measured,
    text_of,
)
from zenit_hub.errors import PublicationError
from zenit_hub.maintain.publish.hub import Timeouts
from zenit_hub.maintain.publish.outcomes import Nothing, Previewed, Proposed, PublishingFailed, Trouble

pytest_plugins = ("tests.rigs.publishing_fixtures",)


@pytest.fixture
def stranger(publisher: Publisher) -> Publisher:
    """One who may write nowhere here, and propose."""
    publisher.token = STRANGER
    return publisher


def propose(publisher: Publisher, *measurements: Any, **asked: Any) -> Any:
    return publisher.publish(*measurements, create_pr=True, **asked)


def sent(hub: LoopbackHub) -> int:
    """Commits that were sent, wherever to."""
    return hub.count("POST", COMMITS)


def test_a_stranger_proposes(stranger: Publisher) -> None:
    """C5-04: a pull request with the figure on top of the current head; main is as it was."""
    outcome = propose(stranger)
    hub = stranger.hub

    assert isinstance(outcome, Proposed)
    assert (outcome.pull_request, outcome.updated, outcome.tries) == (1, False, 1)
    assert outcome.url == f"{hub.url}/{REPO}/discussions/1"
    assert outcome.commit == hub.head(REPO, "refs/pr/1")
    assert stranger.figures("refs/pr/1") == {"m256k": 24 * GIB}
    assert hub.repository(REPO).resolve("refs/pr/1").parent == hub.head(REPO) == stranger.first
    (pull,) = hub.pulls(REPO)
    assert (pull.title, pull.author) == (f"Measured: m256k on {CARD}", "stranger")
    assert not [path for path in (one.path for one in hub.requests) if path.endswith("auth-check/write")]


def test_a_second_publication_updates_the_first_ones_pull_request(stranger: Publisher) -> None:
    """C5-07: a commit on ``refs/pr/1`` with its head as parent, and no other pull request."""
    first = propose(stranger)
    second = propose(stranger, measured("s32k", 11))

    assert isinstance(second, Proposed)
    assert (second.pull_request, second.updated) == (1, True)
    assert stranger.hub.repository(REPO).resolve("refs/pr/1").parent == first.commit
    assert stranger.figures("refs/pr/1") == {"s32k": 11 * GIB, "m256k": 24 * GIB}
    assert len(stranger.hub.pulls(REPO)) == 1
    assert not [one.path for one in stranger.hub.requests if "%" in one.path]
    assert [one for one in stranger.hub.requests if one.path == f"/api/models/{REPO}/commit/refs/pr/1"]


def test_the_same_content_again_is_nothing(stranger: Publisher) -> None:
    """No commit, no comment, and the open one is named."""
    first = propose(stranger)
    events = len(stranger.hub.pulls(REPO)[0].events)
    again = propose(stranger)

    assert again == Nothing(first.commit, first.url, 1, 1)
    assert sent(stranger.hub) == 1
    assert len(stranger.hub.pulls(REPO)[0].events) == events


def test_the_owner_can_propose_too(publisher: Publisher) -> None:
    """Also where a commit to main would be allowed."""
    assert isinstance(propose(publisher), Proposed)
    assert publisher.hub.head(REPO) == publisher.first


def test_a_newer_run_in_the_open_one(stranger: Publisher) -> None:
    """The figure in the pull request is replaced: it is ours alone."""
    propose(stranger, measured("m256k", 24))
    outcome = propose(stranger, measured("m256k", 22))

    assert isinstance(outcome, Proposed)
    assert stranger.figures("refs/pr/1") == {"m256k": 22 * GIB}


def test_others_pull_requests_are_not_touched(stranger: Publisher) -> None:
    """Neither one of another author with our marker, nor one of ours that is about something else."""
    hub, body = stranger.hub, "Published by zenit-hub.\n\n<!-- zenit-hub publish -->"
    hub.propose(REPO, {"a": b"a"}, title="theirs", description=body, author="somebody")
    hub.propose(REPO, {"b": b"b"}, title="Fix a typo", author="stranger")
    outcome = propose(stranger)

    assert isinstance(outcome, Proposed)
    assert outcome.pull_request == 3
    assert [hub.repository(REPO).resolve(f"refs/pr/{n}").author for n in (1, 2)] == ["somebody", "stranger"]


@pytest.mark.parametrize("end", ["closed", "merged"])
def test_one_that_is_not_open_any_more_is_left_alone(stranger: Publisher, end: str) -> None:
    """A new one is opened for a new figure; after a merge the same one is nothing."""
    propose(stranger)
    pull = stranger.hub.pulls(REPO)[0]
    if end == "merged":
        stranger.hub.commit(REPO, contents(stranger.hub, "refs/pr/1"))
    pull.change_status("zenit", end, 0)

    if end == "merged":
        assert isinstance(propose(stranger), Nothing)
    outcome = propose(stranger, measured("s32k", 11))
    assert isinstance(outcome, Proposed)
    assert outcome.pull_request == 2


def contents(hub: LoopbackHub, revision: str) -> dict[str, bytes | None]:
    files = hub.repository(REPO).resolve(revision).files
    return {path: file.content for path, file in files.items() if path != "model.safetensors"}


def test_main_has_it_while_ours_is_open(stranger: Publisher) -> None:
    """Somebody took it over by hand: nothing to publish, and that ours is still open is said."""
    propose(stranger)
    stranger.hub.commit(REPO, contents(stranger.hub, "refs/pr/1"))
    outcome = propose(stranger)

    assert isinstance(outcome, Nothing)
    assert outcome.pull_request is None
    assert "Pull request 1 is still open" in stranger.person.said[0]
    assert sent(stranger.hub) == 1


def test_a_pull_request_to_another_branch(stranger: Publisher) -> None:
    """Each branch has one of its own."""
    stranger.hub.branch(REPO, "next")
    assert propose(stranger).pull_request == 1
    assert propose(stranger, branch="next").pull_request == 2
    assert propose(stranger, measured("s32k", 11), branch="next").pull_request == 2
    assert stranger.figures("refs/pr/1") == {"m256k": 24 * GIB}


def test_commits_to_the_pull_request_itself(stranger: Publisher) -> None:
    """``--revision refs/pr/1``: its author needs no right to the branches."""
    propose(stranger)
    outcome = stranger.publish(measured("s32k", 11), branch="refs/pr/1")

    assert outcome.outcome == "published"
    assert stranger.figures("refs/pr/1") == {"s32k": 11 * GIB, "m256k": 24 * GIB}


def test_a_conflict_with_the_branch_is_said(stranger: Publisher) -> None:
    """Only its author can solve it, and how is named."""
    propose(stranger)
    stranger.somebody_publishes("s32k", 11)
    outcome = propose(stranger, measured("m256k", 23))

    assert isinstance(outcome, Proposed)
    (note,) = stranger.person.said
    assert "Pull request 1 is in conflict with main in config.json" in note
    assert "close it" in note


def test_what_the_branch_would_not_take_is_not_proposed(stranger: Publisher) -> None:
    """The profile changed on main, where it would end up; the pull request still has the old one."""
    propose(stranger)
    config = stranger.config()
    config["lomonosov_serving_profiles"]["profiles"]["m256k"]["max_num_seqs"] = 2
    stranger.somebody_writes("config.json", text_of(config))

    with pytest.raises(PublicationError, match="max_num_seqs was 1, is 2"):
        propose(stranger, measured("m256k", 23))
    assert sent(stranger.hub) == 1


def test_a_dry_run_shows_what_the_open_one_would_get(stranger: Publisher) -> None:
    """Its head, and the change on top of it; without a token main is what it goes by."""
    first = propose(stranger)
    shown = propose(stranger, measured("s32k", 11), dry_run=True)
    stranger.token = None
    without = propose(stranger, measured("s32k", 11), dry_run=True)

    assert isinstance(shown, Previewed)
    assert isinstance(without, Previewed)
    assert (shown.commit, without.commit) == (first.commit, stranger.first)
    assert sent(stranger.hub) == 1


# --- faults


LOST: dict[str, dict[str, Any]] = {
    "500": {"status": 500},
    "dropped": {"drop": True},
    "stalled": {"stall_s": 1.0, "drop": True},
}


@pytest.mark.parametrize("fault", LOST.values(), ids=LOST)
@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_the_answer_to_opening_it_is_lost(
    stranger: Publisher, fault: dict[str, Any], after_effect: bool
) -> None:
    """It is looked for before anything is sent again: one pull request, one commit."""
    if "stall_s" in fault:
        stranger.timeouts = Timeouts(read_s=5, send_s=0.4, total_s=20)
    stranger.hub.fail("POST", COMMITS, after_effect=after_effect, **fault)
    outcome = propose(stranger)

    assert isinstance(outcome, Proposed)
    assert (outcome.pull_request, outcome.tries, outcome.updated) == (1, 2, False)
    assert len(outcome.files) == 3
    assert len(stranger.hub.pulls(REPO)) == 1
    assert len(stranger.ours("refs/pr/1")) == 1
    assert sent(stranger.hub) == (1 if after_effect else 2)


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
def test_the_answer_to_updating_it_is_lost(stranger: Publisher, after_effect: bool) -> None:
    """One commit more, in the same one."""
    propose(stranger)
    stranger.hub.fail("POST", COMMITS, status=500, after_effect=after_effect)
    outcome = propose(stranger, measured("s32k", 11))

    assert isinstance(outcome, Proposed)
    assert (outcome.pull_request, outcome.tries, outcome.updated) == (1, 2, True)
    assert len(stranger.ours("refs/pr/1")) == 2
    assert len(stranger.hub.pulls(REPO)) == 1


def test_somebody_commits_to_it_meanwhile(stranger: Publisher) -> None:
    """412 on the pull request: read anew, on top of theirs."""
    propose(stranger)
    hub = stranger.hub
    hub.fail(
        "POST",
        COMMITS,
        meanwhile=lambda: hub.commit(REPO, {"notes.md": b"n"}, revision="refs/pr/1", author="zenit"),
    )
    outcome = propose(stranger, measured("s32k", 11))

    assert isinstance(outcome, Proposed)
    assert outcome.tries == 2
    assert hub.read(REPO, "notes.md", "refs/pr/1") == b"n"
    assert stranger.figures("refs/pr/1") == {"s32k": 11 * GIB, "m256k": 24 * GIB}


def test_main_moves_while_it_is_opened(stranger: Publisher) -> None:
    """What equals main's new head is left out by the client: noticed by reading back, and added."""
    hub = stranger.hub
    new_card = README.replace(b"old", f"- s32k: None\n- m256k: {24 * GIB}".encode())

    def main_gets_the_same_card() -> None:
        hub.commit(REPO, {"README.md": new_card})

    hub.fail("POST", f"/api/models/{REPO}/preupload/*", meanwhile=main_gets_the_same_card)
    outcome = propose(stranger)

    assert isinstance(outcome, Proposed)
    assert (outcome.tries, outcome.updated, len(outcome.files)) == (2, False, 3)
    assert hub.read(REPO, "README.md", "refs/pr/1") == new_card
    assert stranger.figures("refs/pr/1") == {"m256k": 24 * GIB}
    assert len(hub.pulls(REPO)) == 1
    assert "lacks README.md" in stranger.person.said[0]


def test_too_many_requests_while_looking_for_it(stranger: Publisher) -> None:
    """Nothing is opened because looking failed."""
    propose(stranger)
    stranger.hub.fail("GET", f"/api/models/{REPO}/discussions", retry_after_s=7)
    outcome = propose(stranger, measured("s32k", 11))

    assert isinstance(outcome, Proposed)
    assert outcome.pull_request == 1
    assert len(stranger.hub.pulls(REPO)) == 1


def test_a_token_that_nobody_has(publisher: Publisher) -> None:
    """401 before anything is read."""
    publisher.token = "hf_wrong"
    with pytest.raises(PublishingFailed) as caught:
        propose(publisher)
    assert caught.value.trouble is Trouble.UNAUTHORIZED
    assert publisher.hub.pulls(REPO) == []


def test_a_branch_that_is_not_there(publisher: Publisher) -> None:
    """Said, and no pull request to main instead."""
    publisher.token = OWNER
    with pytest.raises(PublishingFailed, match="has no branch nowhere"):
        propose(publisher, branch="nowhere")
    assert publisher.hub.pulls(REPO) == []


def test_twelve_profiles_are_one_pull_request(stranger: Publisher) -> None:
    """Named by their number."""
    names = tuple(f"p{number}" for number in range(12))
    stranger.hub.commit(REPO, {"config.json": text_of(config_of(*names))})
    outcome = propose(stranger, *(measured(name, 20) for name in names))

    assert isinstance(outcome, Proposed)
    assert stranger.hub.pulls(REPO)[0].title == f"Measured: 12 profiles on {CARD}"


@pytest.mark.parametrize("end", ["merged", "closed"])
def test_one_that_is_merged_or_closed_while_it_is_updated(stranger: Publisher, end: str) -> None:
    """The commit in it goes nowhere any more: another one is opened, on top of what the branch holds by now."""
    propose(stranger)
    hub = stranger.hub

    def meanwhile() -> None:
        api = HfApi(hub.url, token=OWNER)
        if end == "merged":
            api.merge_pull_request(REPO, 1)
        else:
            api.change_discussion_status(REPO, 1, "closed")

    hub.fail("POST", COMMITS, meanwhile=meanwhile)
    outcome = propose(stranger, measured("m256k", 25))

    assert isinstance(outcome, Proposed)
    assert (outcome.pull_request, outcome.updated) == (2, False)
    assert stranger.person.said[0] == "Pull request 1 was merged or closed meanwhile."
    assert stranger.figures("refs/pr/2") == {"m256k": 25 * GIB}
    assert stranger.figures() == ({"m256k": 24 * GIB} if end == "merged" else {})
    assert [pull.status for pull in hub.pulls(REPO)] == [end, "open"]


def test_a_branch_by_its_whole_name_is_the_same_branch(stranger: Publisher) -> None:
    """``refs/heads/main`` opens no second one."""
    propose(stranger)
    assert propose(stranger, measured("s32k", 11), branch="refs/heads/main").pull_request == 1


def test_what_a_pull_request_says_is_no_markdown(stranger: Publisher) -> None:
    """A device's name is shown as it is: no picture, no link, nobody called."""
    name = "![x](https://example.org/x) ``` @owner <!-- zenit-hub publish -->"
    propose(stranger, measured("m256k", device=name))

    (pull,) = stranger.hub.pulls(REPO)
    first, *lines = pull.description.splitlines()
    assert first == "```text"
    assert [line for line in lines if name in line] == [lines[0]]
    assert [number for number, line in enumerate(lines) if line.startswith("```")] == [lines.index("```")]
    assert lines.index("```") > 0
    assert propose(stranger, measured("s32k", 11)).pull_request == 1
