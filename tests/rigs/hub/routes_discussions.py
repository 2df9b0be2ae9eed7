"""Discussions and pull requests over HTTP."""

from __future__ import annotations

import hashlib
from typing import Any

from .discussions import Discussion, Event
from .pulls import conflicts, diff, merge, open_discussion, open_pull
from .refusals import Kind, Refusal
from .repository import Message, Repository
from .routes import Context, route
from .routes_models import iso
from .wire import Answer, Call, json_answer
from .world import Account

PAGE_LENGTH = 10


def list_all(context: Context, call: Call, repo: str) -> Answer:
    """One page, newest first."""
    found = context.world.readable(repo, call.reader)
    chosen = [each for each in reversed(found.discussions.values()) if _is_asked_for(call, each)]
    start = int(call.query("p", "0")) * PAGE_LENGTH
    return json_answer(
        {
            "discussions": [_summary(found, each) for each in chosen[start : start + PAGE_LENGTH]],
            "count": len(chosen),
            "start": start,
        }
    )


def _is_asked_for(call: Call, discussion: Discussion) -> bool:
    kind, status, author = call.query("type", "all"), call.query("status", "all"), call.query("author")
    is_open = discussion.status in {"open", "draft"}
    return (
        (kind == "all" or (kind == "pull_request") == discussion.is_pull_request)
        and (status == "all" or (status == "open") == is_open)
        and author in ("", discussion.author)
    )


def _summary(repo: Repository, discussion: Discussion) -> dict[str, Any]:
    return {
        "num": discussion.num,
        "title": discussion.title,
        "status": discussion.status,
        "author": _author(discussion.author),
        "isPullRequest": discussion.is_pull_request,
        "createdAt": iso(discussion.time_s),
        "repo": {"name": repo.repo_id, "type": "model"},
    }


def _author(name: str) -> dict[str, str]:
    return {"name": name, "type": "user"}


def details(context: Context, call: Call, repo: str, num: str) -> Answer:
    found = context.world.readable(repo, call.reader)
    discussion = _find(found, num)
    told = {
        **_summary(found, discussion),
        "events": [_event(discussion, each) for each in discussion.events],
    }
    if discussion.is_pull_request:
        told["changes"] = {"base": f"refs/heads/{discussion.target_branch}"}
        if discussion.merge_commit:
            told["changes"]["mergeCommitId"] = discussion.merge_commit
        told["filesWithConflicts"] = conflicts(found, discussion) if discussion.status == "open" else []
        if call.flag("diff"):
            told["diff"] = diff(found, discussion)
    return json_answer(told)


def _find(repo: Repository, num: str) -> Discussion:
    if not num.isdecimal() or int(num) not in repo.discussions:
        raise Refusal(Kind.NO_PAGE, f"Discussion {num} does not exist")
    return repo.discussions[int(num)]


def _event(discussion: Discussion, event: Event) -> dict[str, Any]:
    place = discussion.events.index(event)
    data = event.data
    if event.kind == "comment":
        latest = {
            "raw": data["raw"],
            "html": "",
            "updatedAt": iso(event.time_s),
            "author": _author(event.author),
        }
        data = {"edited": False, "hidden": False, "numEdits": 0, "latest": latest, "history": [latest]}
    return {
        "id": hashlib.sha256(f"{discussion.num} {place}".encode()).hexdigest()[:24],
        "type": event.kind,
        "createdAt": iso(event.time_s),
        "author": _author(event.author),
        "data": data,
    }


def open_one(context: Context, call: Call, repo: str) -> Answer:
    """A discussion, or a pull request that waits for its first commit and is a draft till it is opened."""
    found, account = context.world.proposable(repo, call.reader)
    asked = call.json()
    title, description = str(asked["title"]), str(asked.get("description", ""))
    if asked.get("pullRequest"):
        made = open_pull(found, Message(title, description, account.name))
        made.status = "draft"
    else:
        made = open_discussion(found, title, description, account.name)
    return json_answer({**_summary(found, made), "pullRequest": made.is_pull_request})


def comment(context: Context, call: Call, repo: str, num: str) -> Answer:
    found, account = context.world.proposable(repo, call.reader)
    discussion = _find(found, num)
    made = discussion.add_comment(account.name, str(call.json()["comment"]), found.now_s())
    return json_answer({"newMessage": _event(discussion, made)})


def change_status(context: Context, call: Call, repo: str, num: str) -> Answer:
    found, account, discussion = _own(context, call, repo, num)
    asked = call.json()
    if discussion.status == "merged" or asked.get("status") not in {"open", "closed"}:
        raise Refusal(Kind.INVALID, f"No way from {discussion.status} to {asked.get('status')}")
    if asked.get("comment"):
        discussion.add_comment(account.name, asked["comment"], found.now_s())
    made = discussion.change_status(account.name, asked["status"], found.now_s())
    return json_answer({"newStatus": _event(discussion, made)})


def change_title(context: Context, call: Call, repo: str, num: str) -> Answer:
    found, account, discussion = _own(context, call, repo, num)
    made = discussion.change_title(account.name, str(call.json()["title"]), found.now_s())
    return json_answer({"newTitle": _event(discussion, made)})


def _own(context: Context, call: Call, repo: str, num: str) -> tuple[Repository, Account, Discussion]:
    """A discussion that this account may close or rename: its own, or any in its own repo."""
    found, account = context.world.proposable(repo, call.reader)
    discussion = _find(found, num)
    if discussion.author != account.name:
        context.world.writable(repo, call.reader)
    return found, account, discussion


def merge_one(context: Context, call: Call, repo: str, num: str) -> Answer:
    found, account = context.world.writable(repo, call.reader)
    discussion = _find(found, num)
    made = merge(found, discussion, account.name)
    if call.body and (text := call.json().get("comment")):
        discussion.add_comment(account.name, text, found.now_s())
    return json_answer({"mergeCommitId": made.oid, "newStatus": "merged"})


ROUTES = (
    route("GET", "/api/models/{repo}/discussions", list_all),
    route("POST", "/api/models/{repo}/discussions", open_one),
    route("GET", "/api/models/{repo}/discussions/{num}", details),
    route("POST", "/api/models/{repo}/discussions/{num}/comment", comment),
    route("POST", "/api/models/{repo}/discussions/{num}/status", change_status),
    route("POST", "/api/models/{repo}/discussions/{num}/title", change_title),
    route("POST", "/api/models/{repo}/discussions/{num}/merge", merge_one),
)
