"""The loopback hub, proposed to by the real client: pull requests and discussions."""

from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.community import DiscussionComment, DiscussionCommit, DiscussionStatusChange
from huggingface_hub.errors import HfHubHTTPError

from tests.rigs.hub import LoopbackHub, blob_id

pytest_plugins = ("tests.rigs.hub.fixtures",)

REPO = "zenit/altay"
FILES = {"config.json": b"{}\n"}


@pytest.fixture
def api(hub: LoopbackHub) -> HfApi:
    """The owner's client, and the hub with the owner's repo."""
    hub.create(REPO, FILES, token="hf_owner")
    return HfApi(endpoint=hub.url, token="hf_owner")


@pytest.fixture
def stranger(hub: LoopbackHub, api: HfApi) -> HfApi:
    """A client that may write elsewhere, and here only propose."""
    return HfApi(endpoint=hub.url, token=hub.account("ann"))


def put(path: str, content: bytes) -> list[CommitOperationAdd]:
    """One file as the operations of a commit."""
    return [CommitOperationAdd(path, content)]


def status_of(caught: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    """The HTTP status behind a client's error."""
    return caught.value.response.status_code


def test_stranger_proposes_and_owner_merges(hub: LoopbackHub, api: HfApi, stranger: HfApi) -> None:
    """A pull request leaves the branch alone until it is merged, as one commit with its number."""
    head = hub.head(REPO)
    made = stranger.create_commit(
        REPO,
        put("config.json", b"new\n"),
        commit_message="Title",
        commit_description="<!-- m -->",
        create_pr=True,
    )
    assert (made.pr_num, made.pr_revision, hub.head(REPO)) == (1, "refs/pr/1", head)
    assert api.get_paths_info(REPO, "config.json", revision="refs/pr/1")[0].blob_id == blob_id(b"new\n")
    pull = api.get_discussion_details(REPO, 1)
    assert (pull.title, pull.author, pull.status, pull.target_branch) == (
        "Title",
        "ann",
        "open",
        "refs/heads/main",
    )
    assert pull.diff.splitlines()[-2:] == ["-{}", "+new"]
    opening, commit = pull.events
    assert isinstance(opening, DiscussionComment)
    assert opening.content == "<!-- m -->"
    assert isinstance(commit, DiscussionCommit)
    assert commit.oid == made.oid
    with pytest.raises(HfHubHTTPError) as caught:
        stranger.merge_pull_request(REPO, 1)
    assert status_of(caught) == 403
    api.merge_pull_request(REPO, 1, comment="Thanks")
    assert hub.read(REPO, "config.json") == b"new\n"
    assert hub.repository(REPO).resolve("main").summary == "Title (#1)"
    merged = api.get_discussion_details(REPO, 1)
    assert (merged.status, merged.merge_commit_oid) == ("merged", hub.head(REPO))


def test_pull_request_is_updated_in_place(hub: LoopbackHub, api: HfApi, stranger: HfApi) -> None:
    """A further commit to refs/pr/N with the pull request's head as parent; a stale one is 412."""
    first = api.create_commit(REPO, put("config.json", b"1"), commit_message="m", create_pr=True)
    where = {"repo_id": REPO, "revision": "refs/pr/1", "commit_message": "m", "parent_commit": first.oid}
    second = api.create_commit(operations=put("config.json", b"2"), **where)
    assert hub.head(REPO, "refs/pr/1") == second.oid
    assert hub.repository(REPO).resolve("refs/pr/1").parent == first.oid
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_commit(operations=put("config.json", b"3"), **where)
    assert status_of(caught) == 412
    same = api.create_commit(REPO, put("config.json", b"2"), commit_message="m", revision="refs/pr/1")
    assert same.oid == second.oid


def test_pull_request_starts_at_its_parent(hub: LoopbackHub, api: HfApi) -> None:
    """An older parent is no 412 here: what equals main is dropped by the client, so the old file stays."""
    old = hub.head(REPO)
    hub.commit(REPO, {"config.json": b"moved on"})
    operations = [*put("config.json", b"moved on"), *put("receipt.json", b"{}")]
    api.create_commit(REPO, operations, commit_message="m", create_pr=True, parent_commit=old)
    assert hub.read(REPO, "config.json", "refs/pr/1") == FILES["config.json"]
    assert hub.read(REPO, "receipt.json", "refs/pr/1") == b"{}"


def test_conflicting_pull_request_is_409(hub: LoopbackHub, api: HfApi) -> None:
    """Both sides changed the file: the conflict is listed and the merge refused."""
    num = hub.propose(REPO, {"config.json": b"theirs", "new": b"n"}, title="t", author="ann")
    assert api.get_discussion_details(REPO, num).conflicting_files == []
    hub.commit(REPO, {"config.json": b"ours"})
    assert api.get_discussion_details(REPO, num).conflicting_files == ["config.json"]
    with pytest.raises(HfHubHTTPError) as caught:
        api.merge_pull_request(REPO, num)
    assert status_of(caught) == 409
    assert hub.read(REPO, "config.json") == b"ours"


def test_discussions_are_listed_by_page_and_filter(hub: LoopbackHub, api: HfApi, stranger: HfApi) -> None:
    """Newest first over several pages, filtered by type, status and author."""
    for place in range(11):
        hub.propose(REPO, {"config.json": b"%d" % place}, title=f"pull {place}", author="ann")
    api.create_discussion(REPO, "A question")
    stranger.change_discussion_status(REPO, 1, "closed")
    assert [each.num for each in api.get_repo_discussions(REPO)] == list(range(12, 0, -1))
    (question,) = api.get_repo_discussions(REPO, discussion_type="discussion", author="zenit")
    assert (question.title, question.is_pull_request) == ("A question", False)
    pulls = api.get_repo_discussions(REPO, discussion_type="pull_request", discussion_status="open")
    assert [each.num for each in pulls] == list(range(11, 1, -1))


def test_comment_status_and_title(hub: LoopbackHub, api: HfApi, stranger: HfApi) -> None:
    """Everybody comments; closing and renaming is for the author and the owner."""
    draft = api.create_pull_request(REPO, "Draft", description="soon")
    assert draft.status == "draft"
    assert stranger.comment_discussion(REPO, draft.num, "nice").content == "nice"
    changed = api.change_discussion_status(REPO, draft.num, "open")
    assert isinstance(changed, DiscussionStatusChange)
    assert changed.new_status == "open"
    assert api.rename_discussion(REPO, draft.num, "Ready").new_title == "Ready"
    with pytest.raises(HfHubHTTPError) as caught:
        stranger.change_discussion_status(REPO, draft.num, "closed")
    assert status_of(caught) == 403
    assert [each.author for each in hub.pulls(REPO)[0].events[:2]] == ["zenit", "ann"]
    with pytest.raises(HfHubHTTPError) as caught:
        api.get_discussion_details(REPO, 99)
    assert status_of(caught) == 404
