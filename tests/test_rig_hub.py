"""The loopback hub, read by the real client."""

from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name

from tests.rigs.hub import LoopbackHub, blob_id
from tests.rigs.hub.objects import File, tree_id

pytest_plugins = ("tests.rigs.hub.fixtures",)

REPO = "zenit/altay"
CONFIG = b'{"model_type": "qwen2"}\n'
FILES = {"config.json": CONFIG, "serving_profiles/wide/h200.json": b"{}", "serving_profiles/README": b""}


@pytest.fixture
def api(hub: LoopbackHub) -> HfApi:
    """A client without token, and the hub with one public repo."""
    hub.create(REPO, FILES)
    return HfApi(endpoint=hub.url)


def test_object_ids_are_those_of_git() -> None:
    """``git hash-object`` and ``git write-tree`` give the same ids, also for a directory among files."""
    assert blob_id(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"
    assert tree_id({}) == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    hello = File(b"hello\n")
    files = {"a.txt": hello, "a/b/c": hello, "a-b": hello}
    assert tree_id(files) == "7ac8fb3f56a6716d82f0a308ed6d1b58ee047744"


def test_whoami_names_the_owner_of_the_token(hub: LoopbackHub) -> None:
    """A token stands for a user with organizations and a role."""
    token = hub.account("ann", role="read", organizations=("zenit",))
    told = HfApi(endpoint=hub.url, token=token).whoami()
    assert (told["name"], told["orgs"][0]["name"]) == ("ann", "zenit")
    assert told["auth"]["accessToken"]["role"] == "read"


def test_unknown_token_is_refused_everywhere(hub: LoopbackHub, api: HfApi) -> None:
    """Even a public repo answers 401 to a token that nobody has, and that is not 'not found'."""
    with pytest.raises(HfHubHTTPError, match="Invalid credentials") as caught:
        api.model_info(REPO, token="hf_nobody")
    assert caught.value.response.status_code == 401
    assert not isinstance(caught.value, RepositoryNotFoundError)


def test_model_info_shows_the_head(hub: LoopbackHub, api: HfApi) -> None:
    """Info gives the commit, the files and, when asked for, their ids."""
    info = api.model_info(REPO, files_metadata=True)
    assert (info.sha, info.private, info.gated) == (hub.head(REPO), False, False)
    assert info.last_modified is not None
    assert {each.rfilename: each.blob_id for each in info.siblings} == {
        path: blob_id(content) for path, content in FILES.items()
    }


def test_every_kind_of_revision_resolves(hub: LoopbackHub, api: HfApi) -> None:
    """Branch, tag, pull request (percent-encoded), full and short commit id."""
    first = hub.head(REPO)
    hub.tag(REPO, "v1")
    hub.branch(REPO, "feature/next")
    moved = hub.commit(REPO, {"config.json": b"{}"}, revision="feature/next")
    num = hub.propose(REPO, {"config.json": b"[]"}, title="t", author="ann")
    for revision in ("main", "refs/heads/main", "v1", first, first[:8]):
        assert api.model_info(REPO, revision=revision).sha == first
    assert api.model_info(REPO, revision="feature/next").sha == moved
    assert api.model_info(REPO, revision=f"refs/pr/{num}").sha == hub.head(REPO, f"refs/pr/{num}")


def test_missing_repo_is_401_without_and_404_with_token(hub: LoopbackHub) -> None:
    """Who is not known learns as little about a missing repo as about a private one."""
    for token, status in ((False, 401), (hub.account("ann"), 404)):
        with pytest.raises(RepositoryNotFoundError) as caught:
            HfApi(endpoint=hub.url, token=token).model_info("zenit/nothing")
        assert caught.value.response.status_code == status


def test_missing_revision_is_told_apart(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """Info, tree and download all say RevisionNotFound."""
    with pytest.raises(RevisionNotFoundError):
        api.model_info(REPO, revision="v9")
    with pytest.raises(RevisionNotFoundError):
        list(api.list_repo_tree(REPO, revision="refs/pr/7"))
    with pytest.raises(RevisionNotFoundError):
        hf_hub_download(REPO, "config.json", revision="v9", endpoint=hub.url, cache_dir=tmp_path)
    assert not api.revision_exists(REPO, "v9")


def test_tree_lists_files_and_directories(api: HfApi) -> None:
    """Flat, recursive and below a directory; an absent directory is an absent entry."""
    flat = {each.path for each in api.list_repo_tree(REPO)}
    assert flat == {"config.json", "serving_profiles"}
    assert set(api.list_repo_files(REPO)) == set(FILES)
    below = {each.path for each in api.list_repo_tree(REPO, "serving_profiles/wide")}
    assert below == {"serving_profiles/wide/h200.json"}
    with pytest.raises(RemoteEntryNotFoundError):
        list(api.list_repo_tree(REPO, "nowhere"))


def test_paths_info_leaves_absent_paths_out(api: HfApi) -> None:
    """Size and blob id of what is there, the tree id of a directory, nothing for the rest."""
    config, folder = api.get_paths_info(REPO, ["config.json", "serving_profiles/wide", "absent"])
    assert (config.size, config.blob_id, config.lfs) == (len(CONFIG), blob_id(CONFIG), None)
    assert folder.tree_id == tree_id({"h200.json": File(b"{}")})


def test_history_lists_newest_first(hub: LoopbackHub, api: HfApi) -> None:
    """The commits of a branch with their messages."""
    head = hub.commit(REPO, {"config.json": None}, message="drop the config", author="ann")
    newest, oldest = api.list_repo_commits(REPO)
    assert (newest.commit_id, newest.title, newest.authors) == (head, "drop the config", ["ann"])
    assert oldest.title == "initial commit"


@pytest.mark.parametrize("redirects", [False, True])
def test_download_costs_what_it_costs_at_the_real_hub(
    quiet_client: None, tmp_path: Path, redirects: bool
) -> None:
    """Cold one HEAD and one GET (and a HEAD per redirect); cached 0 by full commit hash, 1 by branch."""
    with LoopbackHub(redirects=redirects) as hub:
        head = hub.create(REPO, FILES)
        where = {"endpoint": hub.url, "cache_dir": tmp_path}
        path = hf_hub_download(REPO, "config.json", **where)
        assert Path(path).read_bytes() == CONFIG
        assert [each.method for each in hub.requests] == ["HEAD"] * (1 + redirects) + ["GET"]
        hub.forget_requests()
        assert hf_hub_download(REPO, "config.json", revision=head, **where) == path
        assert hub.requests == []
        assert hf_hub_download(REPO, "config.json", **where) == path
        assert hub.count("HEAD") == hub.count() == 1 + redirects


def test_absent_file_is_remembered_by_the_client(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """The 404 names the commit, so that the cache can keep the absence."""
    with pytest.raises(RemoteEntryNotFoundError):
        hf_hub_download(REPO, "generation_config.json", endpoint=hub.url, cache_dir=tmp_path)
    folder = tmp_path / repo_folder_name(repo_id=REPO, repo_type="model")
    assert (folder / ".no_exist" / hub.head(REPO) / "generation_config.json").exists()
    assert not api.file_exists(REPO, "generation_config.json")
    assert api.file_exists(REPO, "config.json")


def test_snapshot_download_brings_every_file(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """The whole repo in parallel, and nothing asked again by commit hash."""
    where = {"endpoint": hub.url, "cache_dir": tmp_path}
    folder = Path(snapshot_download(REPO, **where))
    found = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}
    assert found == set(FILES)
    hub.forget_requests()
    assert Path(snapshot_download(REPO, revision=hub.head(REPO), **where)) == folder
    assert hub.requests == []


def test_lfs_file_shows_its_sha256(hub: LoopbackHub, api: HfApi, tmp_path: Path) -> None:
    """Git sees the pointer; metadata, listing and download see the content."""
    weights = File(bytes(2048), is_lfs=True)
    hub.create("zenit/heavy", {"model.safetensors": weights.content}, lfs=("*.safetensors",))
    seen = get_hf_file_metadata(hf_hub_url("zenit/heavy", "model.safetensors", endpoint=hub.url))
    assert (seen.etag, seen.size) == (weights.sha256, 2048)
    (entry,) = api.get_paths_info("zenit/heavy", "model.safetensors")
    assert (entry.lfs.sha256, entry.lfs.size, entry.size) == (weights.sha256, 2048, 2048)
    assert entry.blob_id == blob_id(weights.pointer)
    path = hf_hub_download("zenit/heavy", "model.safetensors", endpoint=hub.url, cache_dir=tmp_path)
    assert Path(path).read_bytes() == weights.content


def test_private_repo_is_hidden(hub: LoopbackHub, tmp_path: Path) -> None:
    """No token: 401; a stranger: 404; the owner and an invited reader: the file."""
    hub.create("zenit/secret", FILES, private=True, readers=("ann",), token="hf_owner")
    where = {"endpoint": hub.url, "cache_dir": tmp_path}
    for token in (False, hub.account("eve")):
        with pytest.raises(RepositoryNotFoundError):
            hf_hub_download("zenit/secret", "config.json", token=token, **where)
    for token in ("hf_owner", hub.account("ann", role="read")):
        assert hf_hub_download("zenit/secret", "config.json", token=token, force_download=True, **where)
        assert HfApi(endpoint=hub.url, token=token).model_info("zenit/secret").private
    assert [each.authorized for each in hub.requests[:2]] == [False, True]


def test_gated_repo_shows_its_listing_and_keeps_its_files(hub: LoopbackHub, tmp_path: Path) -> None:
    """Info and tree are open; a file and ``auth_check`` are 401 or 403 with GatedRepo."""
    hub.create("zenit/gated", FILES, gated="manual", readers=("ann",))
    where = {"endpoint": hub.url, "cache_dir": tmp_path}
    for token, status in ((False, 401), (hub.account("eve"), 403)):
        api = HfApi(endpoint=hub.url, token=token)
        assert api.model_info("zenit/gated").gated == "manual"
        assert "config.json" in api.list_repo_files("zenit/gated")
        with pytest.raises(GatedRepoError) as caught:
            hf_hub_download("zenit/gated", "config.json", token=token, **where)
        assert caught.value.response.status_code == status
        with pytest.raises(GatedRepoError):
            api.auth_check("zenit/gated")
    assert hf_hub_download("zenit/gated", "config.json", token=hub.account("ann"), **where)
