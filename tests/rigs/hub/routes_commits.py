"""Changing a repo: preupload, commit, branches and tags."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from .objects import File
from .pulls import propose
from .refusals import Kind, Refusal
from .repository import MAIN, Delete, Edit, Message, Put, Repository
from .routes import Context, route
from .wire import Answer, Call, json_answer
from .world import Account


def preupload(context: Context, call: Call, repo: str, revision: str) -> Answer:
    """How each file is to be sent, and the id of the one that it replaces (the client drops equal ones)."""
    found, _ = _mover(context, call, repo, revision)
    commit = found.resolve(revision)
    files = []
    for asked in call.json().get("files", []):
        old = commit.files.get(asked["path"])
        is_lfs = found.is_lfs_path(asked["path"])
        told = {"path": asked["path"], "uploadMode": "lfs" if is_lfs else "regular", "shouldIgnore": False}
        files.append({**told, "oid": old.etag} if old else told)
    return json_answer({"files": files, "commitOid": commit.oid})


def _mover(context: Context, call: Call, repo: str, revision: str) -> tuple[Repository, Account]:
    """Who may do that: anybody a new pull request, its author commits to it, others need a right to write."""
    found, account = context.world.proposable(repo, call.reader)
    number = re.fullmatch(r"refs/pr/(\d+)", revision)
    pull = found.discussions.get(int(number[1])) if number else None
    if call.flag("create_pr") or (pull and pull.author == account.name):
        return found, account
    return context.world.writable(repo, call.reader)


def commit(context: Context, call: Call, repo: str, revision: str) -> Answer:
    """One commit on a branch or a pull request, or with ``create_pr`` a new pull request that holds it."""
    creates_pull = call.flag("create_pr")
    found, account = _mover(context, call, repo, revision)
    header, edits = _payload(found, call.body)
    message = Message(str(header.get("summary", "")), str(header.get("description", "")), account.name)
    parent = header.get("parentCommit")
    page = f"{context.url}/{found.repo_id}"
    if not creates_pull:
        made = found.commit(edits, message, revision=revision, parent=parent)
        return _committed(page, made.oid)
    pull, made = propose(found, edits, message, branch=revision, parent=parent)
    return _committed(page, made.oid, pullRequestUrl=f"{page}/discussions/{pull.num}")


def _committed(page: str, oid: str, **more: str) -> Answer:
    return json_answer(
        {"success": True, "commitOid": oid, "commitUrl": f"{page}/commit/{oid}", "hookOutput": "", **more}
    )


def _payload(repo: Repository, body: bytes) -> tuple[dict[str, Any], list[Edit]]:
    """The header and the edits of an NDJSON body."""
    try:
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
    except ValueError as error:
        raise Refusal(Kind.INVALID, f"A line of the commit is not JSON: {error}") from error
    if not lines or lines[0].get("key") != "header":
        raise Refusal(Kind.INVALID, "A commit starts with its header")
    edits: list[Edit] = []
    for line in lines[1:]:
        if line.get("key") not in _EDITS:
            raise Refusal(Kind.INVALID, f"Unknown operation {line.get('key')!r}")
        edits.append(_EDITS[line["key"]](repo, line["value"]))
    return lines[0]["value"], edits


def _put(repo: Repository, value: dict[str, Any]) -> Edit:
    content = value["content"]
    is_base64 = value.get("encoding") == "base64"
    return Put(value["path"], File(base64.b64decode(content) if is_base64 else content.encode()))


def _put_lfs(repo: Repository, value: dict[str, Any]) -> Edit:
    if value["oid"] not in repo.lfs_objects:
        raise Refusal(Kind.INVALID, f"LFS object {value['oid']} of {value['path']} was never uploaded")
    return Put(value["path"], File(repo.lfs_objects[value["oid"]], is_lfs=True))


_EDITS: dict[str, Callable[[Repository, dict[str, Any]], Edit]] = {
    "file": _put,
    "lfsFile": _put_lfs,
    "deletedFile": lambda repo, value: Delete(value["path"]),
    "deletedFolder": lambda repo, value: Delete(value["path"], is_folder=True),
}


def add_branch(context: Context, call: Call, repo: str, name: str) -> Answer:
    found, _ = context.world.writable(repo, call.reader)
    found.branch(name, call.json().get("startingPoint", MAIN))
    return json_answer({}, 201)


def drop_branch(context: Context, call: Call, repo: str, name: str) -> Answer:
    found, _ = context.world.writable(repo, call.reader)
    if name == MAIN:
        raise Refusal(Kind.FORBIDDEN, "The default branch stays")
    return _dropped(found.branches, name)


def add_tag(context: Context, call: Call, repo: str, name: str) -> Answer:
    """Here the address holds the revision, and the body the tag's name."""
    found, _ = context.world.writable(repo, call.reader)
    found.tag(call.json()["tag"], name)
    return json_answer({}, 201)


def drop_tag(context: Context, call: Call, repo: str, name: str) -> Answer:
    found, _ = context.world.writable(repo, call.reader)
    return _dropped(found.tags, name)


def _dropped(references: dict[str, str], name: str) -> Answer:
    if references.pop(name, None) is None:
        raise Refusal(Kind.NO_REVISION, f"Invalid rev id: {name}")
    return Answer(204)


ROUTES = (
    route("POST", "/api/models/{repo}/preupload/{revision}", preupload),
    route("POST", "/api/models/{repo}/commit/{revision}", commit),
    route("POST", "/api/models/{repo}/branch/{name}", add_branch),
    route("DELETE", "/api/models/{repo}/branch/{name}", drop_branch),
    route("POST", "/api/models/{repo}/tag/{name}", add_tag),
    route("DELETE", "/api/models/{repo}/tag/{name}", drop_tag),
)
