"""File contents: resolve, its cached twin, and the LFS batch upload."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from .objects import File
from .refusals import Kind, Refusal
from .routes import Context, route
from .wire import Answer, Call, json_answer


def resolve(context: Context, call: Call, repo: str, revision: str, path: str) -> Answer:
    """The file, or the relative redirect to the address that names its commit."""
    found = context.world.fetchable(repo, call.reader)
    commit = found.resolve(revision)
    file = found.entry(commit, path)
    if not context.redirects:
        return _content(call, file, commit.oid)
    return Answer(
        307,
        {
            **_metadata(file, commit.oid),
            "Location": f"/api/resolve-cache/models/{repo}/{commit.oid}/{quote(path)}?etag={file.etag}",
        },
    )


def resolve_cache(context: Context, call: Call, repo: str, revision: str, path: str) -> Answer:
    found = context.world.fetchable(repo, call.reader)
    commit = found.resolve(revision)
    return _content(call, found.entry(commit, path), commit.oid)


def _metadata(file: File, oid: str) -> dict[str, str]:
    head = {"X-Repo-Commit": oid, "ETag": f'"{file.etag}"'}
    if file.is_lfs:
        head |= {"X-Linked-Etag": f'"{file.sha256}"', "X-Linked-Size": str(file.size_bytes)}
    return head


def _content(call: Call, file: File, oid: str) -> Answer:
    head = {
        **_metadata(file, oid),
        "Content-Type": "application/octet-stream",
        "Accept-Ranges": "bytes",
    }
    asked = re.fullmatch(r"bytes=(\d*)-(\d*)", call.headers.get("Range", ""))
    if asked is None or not any(asked.groups()):
        return Answer(200, head, file.content)
    start, end = _bounds(file.size_bytes, *asked.groups())
    head["Content-Range"] = f"bytes {start}-{end - 1}/{file.size_bytes}"
    return Answer(206, head, file.content[start:end])


def _bounds(size_bytes: int, first: str, last: str) -> tuple[int, int]:
    """The half-open interval that a range means; ``-n`` is the last n bytes."""
    if first:
        start, end = int(first), min(int(last) + 1 if last else size_bytes, size_bytes)
    else:
        start, end = max(size_bytes - int(last), 0), size_bytes
    if start >= end:
        whole = {"Content-Range": f"bytes */{size_bytes}"}
        raise Refusal(Kind.RANGE, "Range Not Satisfiable", headers=whole)
    return start, end


def lfs_batch(context: Context, call: Call, repo: str) -> Answer:
    """Where to put each object; one that is there already gets no action."""
    found, _ = context.world.proposable(repo, call.reader)
    objects = []
    for asked in call.json().get("objects", []):
        told: dict[str, object] = {"oid": asked["oid"], "size": asked["size"], "authenticated": True}
        if asked["oid"] not in found.lfs_objects:
            target = f"{context.url}/{repo}.git/info/lfs/objects/{asked['oid']}"
            told["actions"] = {"upload": {"href": target}, "verify": {"href": f"{target}/verify"}}
        objects.append(told)
    return json_answer({"transfer": "basic", "objects": objects})


def lfs_upload(context: Context, call: Call, repo: str, oid: str) -> Answer:
    """Like the signed address of a store: the URL itself is the permission, no token comes along."""
    if hashlib.sha256(call.body).hexdigest() != oid:
        raise Refusal(Kind.INVALID, f"The content does not have the sha256 {oid}")
    context.world.repos[repo].lfs_objects[oid] = call.body
    return Answer(200, {"ETag": f'"{oid}"'})


def lfs_verify(context: Context, call: Call, repo: str, oid: str) -> Answer:
    found, _ = context.world.proposable(repo, call.reader)
    stored = found.lfs_objects.get(oid)
    if stored is None or len(stored) != call.json().get("size"):
        raise Refusal(Kind.NO_PAGE, f"LFS object {oid} is not there")
    return json_answer({})


ROUTES = (
    route("GET", "/{repo}/resolve/{revision}/{path*}", resolve),
    route("GET", "/api/resolve-cache/models/{repo}/{revision}/{path*}", resolve_cache),
    route("POST", "/{repo}.git/info/lfs/objects/batch", lfs_batch),
    route("PUT", "/{repo}.git/info/lfs/objects/{oid}", lfs_upload),
    route("POST", "/{repo}.git/info/lfs/objects/{oid}/verify", lfs_verify),
)
