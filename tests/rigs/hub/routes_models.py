"""Reading a repo's state: who am I, info, refs, trees, permissions."""

from __future__ import annotations

from datetime import datetime, timezone

import yaml

from .objects import Commit, File, tree_id
from .refusals import Kind, Refusal
from .repository import MAIN, Message, Put, Repository
from .routes import Context, route
from .wire import Answer, Call, json_answer
from .world import signed_in

GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


def iso(time_s: int) -> str:
    """A moment as the Hub writes it."""
    return datetime.fromtimestamp(time_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def whoami(context: Context, call: Call) -> Answer:
    account = signed_in(call.reader)
    return json_answer(
        {
            "type": "user",
            "name": account.name,
            "fullname": account.name,
            "orgs": [{"type": "org", "name": name} for name in account.organizations],
            "auth": {
                "type": "access_token",
                "accessToken": {"displayName": "loopback", "role": account.role},
            },
        }
    )


def create(context: Context, call: Call) -> Answer:
    asked = call.json()
    account = signed_in(call.reader)
    owner = asked.get("organization") or account.name
    repo_id = f"{owner}/{asked['name']}"
    url = f"{context.url}/{repo_id}"
    if repo_id in context.world.repos:
        return json_answer({"error": "You already created this model repo", "url": url}, 409)
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    repo = Repository(repo_id, context.world.now_s, private=private)
    if account.role != "write" or not account.owns(repo):
        raise Refusal(Kind.FORBIDDEN, f"No right to create a model under {owner}")
    repo.commit([Put(".gitattributes", File(GIT_ATTRIBUTES))], Message("initial commit", "", account.name))
    context.world.add_repo(repo)
    return json_answer({"url": url, "name": repo_id, "id": repo_id})


def info(context: Context, call: Call, repo: str, revision: str = MAIN) -> Answer:
    found = context.world.readable(repo, call.reader)
    old_head = context.faults.take_stale(repo, revision)
    commit = found.resolve(old_head or revision)
    return json_answer(
        {
            "_id": found.repo_id,
            "id": found.repo_id,
            "modelId": found.repo_id,
            "author": found.owner,
            "sha": commit.oid,
            "private": found.private,
            "gated": found.gated,
            "disabled": False,
            "tags": [],
            "downloads": 0,
            "likes": 0,
            "lastModified": iso(commit.time_s),
            "createdAt": iso(min(each.time_s for each in found.commits.values())),
            "siblings": [
                _sibling(path, file, with_blob=call.flag("blobs")) for path, file in commit.files.items()
            ],
        }
    )


def _sibling(path: str, file: File, *, with_blob: bool) -> dict[str, object]:
    if not with_blob:
        return {"rfilename": path}
    described: dict[str, object] = {"rfilename": path, "size": file.size_bytes, "blobId": file.blob_id}
    if file.is_lfs:
        described["lfs"] = {
            "sha256": file.sha256,
            "size": file.size_bytes,
            "pointerSize": len(file.pointer),
        }
    return described


def refs(context: Context, call: Call, repo: str) -> Answer:
    found = context.world.readable(repo, call.reader)
    listed: dict[str, list[dict[str, str]]] = {
        "branches": [_ref(name, f"refs/heads/{name}", oid) for name, oid in found.branches.items()],
        "tags": [_ref(name, f"refs/tags/{name}", oid) for name, oid in found.tags.items()],
        "converts": [],
    }
    if call.flag("include_prs"):
        listed["pullRequests"] = [
            _ref(f"refs/pr/{num}", f"refs/pr/{num}", oid) for num, oid in found.pulls.items()
        ]
    return json_answer(listed)


def _ref(name: str, ref: str, oid: str) -> dict[str, str]:
    return {"name": name, "ref": ref, "targetCommit": oid}


def commits(context: Context, call: Call, repo: str, revision: str) -> Answer:
    found = context.world.readable(repo, call.reader)
    return json_answer(
        [
            {
                "id": each.oid,
                "title": each.summary,
                "message": each.description,
                "authors": [{"user": each.author}],
                "date": iso(each.time_s),
            }
            for each in found.history(found.resolve(revision))
        ]
    )


def tree(context: Context, call: Call, repo: str, revision: str, path: str = "") -> Answer:
    commit = context.world.readable(repo, call.reader).resolve(revision)
    directories = commit.directories()
    if path and path not in directories:
        head = {"X-Repo-Commit": commit.oid}
        raise Refusal(Kind.NO_ENTRY, f"{path} does not exist on {revision}", headers=head)
    prefix = f"{path}/" if path else ""
    inside = [
        each
        for each in sorted({*directories, *commit.files})
        if each.startswith(prefix) and (call.flag("recursive") or "/" not in each[len(prefix) :])
    ]
    return json_answer([_entry(commit, each) for each in inside])


def paths_info(context: Context, call: Call, repo: str, revision: str) -> Answer:
    commit = context.world.readable(repo, call.reader).resolve(revision)
    known = commit.directories().union(commit.files)
    asked = [path.rstrip("/") for path in call.form("paths")]
    return json_answer([_entry(commit, path) for path in asked if path in known])


def _entry(commit: Commit, path: str) -> dict[str, object]:
    file = commit.files.get(path)
    if file is None:
        return {"type": "directory", "path": path, "size": 0, "oid": tree_id(commit.below(path))}
    entry: dict[str, object] = {"type": "file", "path": path, "size": file.size_bytes, "oid": file.blob_id}
    if file.is_lfs:
        entry["lfs"] = {"oid": file.sha256, "size": file.size_bytes, "pointerSize": len(file.pointer)}
    return entry


def auth_check(context: Context, call: Call, repo: str) -> Answer:
    context.world.fetchable(repo, call.reader)
    return json_answer({})


def auth_check_write(context: Context, call: Call, repo: str) -> Answer:
    context.world.writable(repo, call.reader)
    return json_answer({})


def validate_yaml(context: Context, call: Call) -> Answer:
    """Only what the client stands on: a block that parses, and a warning when there is none."""
    lines = str(call.json().get("content", "")).splitlines()
    if not lines or lines[0].rstrip() != "---" or "---" not in [line.rstrip() for line in lines[1:]]:
        warning = {"message": "empty or missing yaml metadata in repo card"}
        return json_answer({"errors": [], "warnings": [warning]})
    end = [line.rstrip() for line in lines[1:]].index("---") + 1
    try:
        metadata = yaml.safe_load("\n".join(lines[1:end]))
    except yaml.YAMLError as error:
        return json_answer({"errors": [{"message": f"invalid yaml: {error}"}], "warnings": []}, 400)
    if not isinstance(metadata, dict):
        return json_answer({"errors": [{"message": "metadata must be a mapping"}], "warnings": []}, 400)
    return json_answer({"errors": [], "warnings": []})


ROUTES = (
    route("GET", "/api/whoami-v2", whoami),
    route("POST", "/api/repos/create", create),
    route("POST", "/api/validate-yaml", validate_yaml),
    route("GET", "/api/models/{repo}", info),
    route("GET", "/api/models/{repo}/revision/{revision}", info),
    route("GET", "/api/models/{repo}/refs", refs),
    route("GET", "/api/models/{repo}/commits/{revision}", commits),
    route("GET", "/api/models/{repo}/tree/{revision}", tree),
    route("GET", "/api/models/{repo}/tree/{revision}/{path*}", tree),
    route("POST", "/api/models/{repo}/paths-info/{revision}", paths_info),
    route("GET", "/api/models/{repo}/auth-check", auth_check),
    route("GET", "/api/models/{repo}/auth-check/write", auth_check_write),
)
