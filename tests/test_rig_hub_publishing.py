"""The loopback hub, written to by the real client: repos, commits, permissions, refs, LFS."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi
from huggingface_hub.errors import BadRequestError, HfHubHTTPError, RemoteEntryNotFoundError

from tests.rigs.hub import LoopbackHub

pytest_plugins = ("tests.rigs.hub.fixtures",)

REPO = "zenit/altay"
FILES = {"config.json": b"{}\n", "README.md": b"---\nlicense: mit\n---\n", "weights.bin": b"\0" * 64}


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


def test_create_repo_and_fill_it(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """A new repo has a first commit; creating it again is 409 unless that is fine; a folder goes up whole."""
    assert api.create_repo("zenit/new", private=True).repo_id == "zenit/new"
    assert hub.repository("zenit/new").private
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_repo("zenit/new")
    assert status_of(caught) == 409
    assert api.create_repo("zenit/new", exist_ok=True).url == f"{hub.url}/zenit/new"
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_text("a")
    api.upload_folder(repo_id="zenit/new", folder_path=tmp_path)
    assert api.list_repo_files("zenit/new") == [".gitattributes", "deep/a.txt"]
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_repo("ann/new")
    assert status_of(caught) == 403


def test_upload_file_moves_the_branch(hub: LoopbackHub, api: HfApi) -> None:
    """The commit's id, parent, message and author arrive, and every other file stays."""
    before = hub.head(REPO)
    made = api.upload_file(
        path_or_fileobj=b"{1}", path_in_repo="config.json", repo_id=REPO, commit_message="one"
    )
    commit = hub.repository(REPO).resolve("main")
    assert (commit.oid, commit.parent, commit.summary, commit.author) == (made.oid, before, "one", "zenit")
    assert {path: file.content for path, file in commit.files.items()} == {**FILES, "config.json": b"{1}"}
    assert made.commit_url == f"{hub.url}/{REPO}/commit/{made.oid}"


def test_stale_parent_is_412_and_changes_nothing(hub: LoopbackHub, api: HfApi) -> None:
    """The head as parent is taken, an older commit is refused."""
    old = hub.head(REPO)
    new = api.create_commit(REPO, put("config.json", b"1"), commit_message="m", parent_commit=old).oid
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_commit(REPO, put("config.json", b"2"), commit_message="m", parent_commit=old)
    assert status_of(caught) == 412
    assert hub.head(REPO) == new


def test_equal_content_sends_no_commit(hub: LoopbackHub, api: HfApi) -> None:
    """Preupload gives the ids that let the client drop what has not changed."""
    made = api.create_commit(REPO, put("config.json", FILES["config.json"]), commit_message="m")
    assert made.oid == hub.head(REPO)
    assert hub.count("POST", "*/commit/*") == 0


def test_deletions_and_copies(hub: LoopbackHub, api: HfApi) -> None:
    """A file or a folder goes, a copy comes, and what is not there cannot be deleted."""
    hub.commit(REPO, {"old/a": b"a", "old/b": b"b"})
    operations = [
        CommitOperationCopy("config.json", "backup.json"),
        CommitOperationDelete("weights.bin"),
        CommitOperationDelete("old/"),
    ]
    api.create_commit(REPO, operations, commit_message="tidy")
    assert api.list_repo_files(REPO) == ["README.md", "backup.json", "config.json"]
    with pytest.raises(RemoteEntryNotFoundError, match="A file with this name doesn't exist"):
        api.delete_file("absent.txt", REPO)


def test_card_is_validated_before_the_commit(hub: LoopbackHub, api: HfApi) -> None:
    """A card without metadata is a warning, one that does not parse is an error and no commit."""
    before = hub.head(REPO)
    with pytest.warns(UserWarning, match="empty or missing yaml metadata"):
        api.create_commit(REPO, put("README.md", b"# Altay\n"), commit_message="m")
    assert hub.head(REPO) != before
    with pytest.raises(ValueError, match="Invalid metadata in README"):
        api.create_commit(REPO, put("README.md", b"---\na: [\n---\n"), commit_message="m")


def test_who_may_write(hub: LoopbackHub, api: HfApi, stranger: HfApi) -> None:
    """The owner and members of the organization; a stranger, a read token and nobody may not."""
    reader = HfApi(endpoint=hub.url, token=hub.account("zenit", role="read"))
    member = HfApi(endpoint=hub.url, token=hub.account("bo", organizations=("zenit",)))
    for able in (api, member):
        able.auth_check(REPO, write=True)
    for unable, status in ((stranger, 403), (reader, 403), (HfApi(endpoint=hub.url, token=False), 401)):
        unable.auth_check(REPO)
        with pytest.raises(HfHubHTTPError) as caught:
            unable.auth_check(REPO, write=True)
        assert status_of(caught) == status
        with pytest.raises(HfHubHTTPError) as caught:
            unable.create_commit(REPO, put("config.json", b"x"), commit_message="m")
        assert status_of(caught) == status
    with pytest.raises(HfHubHTTPError, match="read role"):
        reader.create_commit(REPO, put("config.json", b"x"), commit_message="m", create_pr=True)


def test_branches_and_tags(hub: LoopbackHub, api: HfApi) -> None:
    """They are made, committed to, listed and dropped; a second one of the name is 409."""
    head = hub.head(REPO)
    api.create_branch(REPO, branch="work/next")
    api.create_tag(REPO, tag="v1", tag_message="first")
    moved = api.create_commit(REPO, put("a", b"a"), commit_message="m", revision="work/next").oid
    hub.propose(REPO, {"b": b"b"}, title="t", author="ann")
    refs = api.list_repo_refs(REPO, include_pull_requests=True)
    assert {each.ref: each.target_commit for each in refs.branches} == {
        "refs/heads/main": head,
        "refs/heads/work/next": moved,
    }
    assert [(each.name, each.target_commit) for each in refs.tags] == [("v1", head)]
    assert [each.ref for each in refs.pull_requests] == ["refs/pr/1"]
    with pytest.raises(HfHubHTTPError) as caught:
        api.create_tag(REPO, tag="v1")
    assert status_of(caught) == 409
    api.create_branch(REPO, branch="work/next", exist_ok=True)
    api.delete_branch(REPO, branch="work/next")
    api.delete_tag(REPO, tag="v1")
    assert [each.name for each in api.list_repo_refs(REPO).branches] == ["main"]
    assert api.list_repo_refs(REPO).tags == []


# The client's own call of its HTTP library is what the library warns of.
@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_lfs_upload_goes_through_the_batch_api(hub: LoopbackHub, api: HfApi) -> None:
    """The content is put once without the token, committed by its sha256, and not put again."""
    hub.repository(REPO).lfs_paths = ("*.safetensors",)
    weights = bytes(range(256)) * 8
    api.create_commit(REPO, put("model.safetensors", weights), commit_message="m")
    assert hub.read(REPO, "model.safetensors") == weights
    assert [each.authorized for each in hub.requests if each.method == "PUT"] == [False]
    api.create_commit(REPO, put("copy.safetensors", weights), commit_message="m")
    assert hub.count("PUT") == 1
    assert api.get_paths_info(REPO, "copy.safetensors")[0].lfs.size == len(weights)


def test_lfs_file_that_was_never_put_is_refused(hub: LoopbackHub, api: HfApi) -> None:
    """A commit cannot name an object that the hub does not have."""
    hub.repository(REPO).lfs_paths = ("*.bin",)
    operation = CommitOperationAdd("other.bin", b"other")
    operation._upload_mode, operation._is_uploaded = "lfs", True
    with pytest.raises(BadRequestError, match="never uploaded"):
        api.create_commit(REPO, [operation], commit_message="m")
