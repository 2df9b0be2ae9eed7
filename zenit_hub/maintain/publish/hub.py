"""The one module through which the maintainers' commands talk to the Hub.

Every call has a timeout and raises :class:`~zenit_hub.maintain.publish.outcomes.HubFailure`, nothing else.
Nothing here is tried twice; what to do about a failure is the caller's affair.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from zenit_hub.maintain.publish.outcomes import HubFailure, Trouble
from zenit_hub.maintain.publish.watched import watched
from zenit_hub.text import printable

if TYPE_CHECKING:
    from huggingface_hub import HfApi

T = TypeVar("T")

PATHS_IN_A_REQUEST = 200
SLOW_LINE_BYTES_PER_S = 64 * 2**10
MAX_PULLS = 200
"""Open pull requests of one author that are looked through."""

README_NAME = "README.md"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. ``read_s``, ``send_s``: one request of a call that reads, or that sends; ``total_s``: all
    requests of one call, without what uploading takes."""

    read_s: float = 10.0
    send_s: float = 60.0
    total_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A file at a commit. ``sha256`` of its content, where it stands in LFS; ``blob_id`` is the pointer's then."""

    path: str
    size_bytes: int
    blob_id: str
    sha256: str | None = None

    def holds(self, content: bytes) -> bool:
        """Whether that is what stands there."""
        if self.size_bytes != len(content):
            return False
        if self.sha256 is not None:
            return self.sha256 == hashlib.sha256(content).hexdigest()
        return self.blob_id == blob_id(content)


@dataclass(frozen=True, slots=True)
class Head:
    """The commit that a revision stands for, and the paths of all its files. ``repo``: the name that the repo has
    by now, where it was asked for by an older one."""

    commit: str
    paths: frozenset[str]
    repo: str


@dataclass(frozen=True, slots=True)
class Message:
    """What a commit or a pull request says. ``title``: one line."""

    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Sent:
    """An acknowledged commit. ``pull_request``: the number of the one that was opened for it. ``remarks``: what
    the Hub says of the card's metadata."""

    commit: str
    pull_request: int | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request. ``branch``: where it goes; ``body``: its first comment; ``conflicts``: paths;
    ``is_open``: neither merged nor closed."""

    number: int
    branch: str
    body: str
    conflicts: tuple[str, ...]
    is_open: bool = True

    @property
    def revision(self) -> str:
        """Where its commits stand; the client encodes it itself."""
        return f"refs/pr/{self.number}"


def blob_id(content: bytes) -> str:
    """The id under which git stores a file, and by which the Hub names it."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def offline() -> bool:
    """Whether the client may not use the network (``HF_HUB_OFFLINE``)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


class Hub:
    """One model repo on the Hub. ``token``: ``None`` is the client's own (``HF_TOKEN``, ``hf auth login``)."""

    def __init__(
        self,
        repo: str,
        token: str | None = None,
        *,
        endpoint: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.repo = repo
        self._token = token
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._contents: dict[str, bytes] = {}

    @cached_property
    def _api(self) -> HfApi:
        from huggingface_hub import HfApi

        return HfApi(endpoint=self._endpoint, token=self._token, library_name="zenit-hub")

    @property
    def page(self) -> str:
        """The repo's address."""
        return f"{self._api.endpoint}/{self.repo}"

    @property
    def has_token(self) -> bool:
        from huggingface_hub import constants, get_token

        return bool(self._token or (not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN and get_token()))

    def check_access(self, *, write: bool) -> None:
        """Whether the token may write to the repo's branches, or at least read its files."""

        def ask() -> None:
            # The client's first versions cannot ask about writing: there the commit will say it.
            can_ask = "write" in signature(self._api.auth_check).parameters
            if write and can_ask:
                self._api.auth_check(self.repo, write=True)
            else:
                self._api.auth_check(self.repo)

        self._reading(ask)

    def user(self) -> str:
        """The name of the token's account."""
        return self._reading(lambda: str(self._api.whoami()["name"]))

    def head(self, revision: str) -> Head:
        def ask() -> Head:
            info = self._api.model_info(self.repo, revision=revision, timeout=self._timeouts.read_s)
            if info.sha is None:
                raise HubFailure(Trouble.UNKNOWN, said="an answer without a commit")
            paths = frozenset(file.rfilename for file in info.siblings or ())
            return Head(info.sha, paths, info.id or self.repo)

        return self._reading(ask)

    def entries(self, commit: str, paths: Iterable[str]) -> dict[str, Entry]:
        """Those of ``paths`` that are files at ``commit``."""
        wanted = iter(sorted(set(paths)))
        found: dict[str, Entry] = {}
        while some := list(islice(wanted, PATHS_IN_A_REQUEST)):
            found |= self._reading(partial(self._some_entries, commit, some))
        return found

    def _some_entries(self, commit: str, paths: list[str]) -> dict[str, Entry]:
        from huggingface_hub.hf_api import RepoFile

        return {
            file.path: Entry(file.path, file.size, file.blob_id, file.lfs.sha256 if file.lfs else None)
            for file in self._api.get_paths_info(self.repo, paths, revision=commit)
            if isinstance(file, RepoFile)
        }

    def content(self, commit: str, entry: Entry) -> bytes:
        """The file's bytes, from the client's cache or the Hub, checked against its id."""
        if entry.blob_id in self._contents:  # at another commit, in an earlier try
            return self._contents[entry.blob_id]
        for again in (False, True):
            data = self._reading(partial(self._downloaded, commit, entry.path, again))
            if entry.holds(data):
                return self._contents.setdefault(entry.blob_id, data)
        raise HubFailure(Trouble.UNKNOWN, said=f"what came for {printable(entry.path)} is another file")

    def _downloaded(self, commit: str, path: str, again: bool) -> bytes:
        # By commit: by branch the cache would give the old file without a word while the Hub is down.
        file = self._api.hf_hub_download(
            self.repo, path, revision=commit, force_download=again, etag_timeout=self._timeouts.read_s
        )
        return Path(file).read_bytes()

    def commit(
        self, files: Mapping[str, bytes], message: Message, *, revision: str, parent: str, create_pr: bool
    ) -> Sent:
        """One commit with ``files`` on top of ``parent``; with ``create_pr`` in a new pull request to ``revision``."""

        def send() -> Sent:
            from huggingface_hub import CommitOperationAdd

            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                made = self._api.create_commit(
                    self.repo,
                    # Made here: an operation can be sent once only.
                    [CommitOperationAdd(path, content) for path, content in files.items()],
                    commit_message=message.title,
                    commit_description=message.body,
                    revision=revision,
                    parent_commit=parent,
                    create_pr=create_pr,
                )
            remarks = tuple(
                printable(" ".join(str(each.message).split()))
                for each in heard
                if issubclass(each.category, UserWarning)
            )
            return Sent(made.oid, made.pr_num, remarks)

        # A slow line gets the time that it needs; a request that stalls ends sooner, by its own timeout.
        upload_s = sum(map(len, files.values())) / SLOW_LINE_BYTES_PER_S
        return self._ask(send, self._timeouts.send_s, self._timeouts.total_s + upload_s)

    def open_pulls(self, author: str) -> list[int]:
        """The numbers of the author's open pull requests, newest first."""

        def ask() -> list[int]:
            found = self._api.get_repo_discussions(
                self.repo, author=author, discussion_type="pull_request", discussion_status="open"
            )
            return [each.num for each in islice(found, MAX_PULLS)]

        return self._reading(ask)

    def pull(self, number: int) -> Pull:
        def ask() -> Pull:
            found = self._api.get_discussion_details(self.repo, number)
            comments = [event for event in found.events if event.type == "comment"]
            return Pull(
                number,
                (found.target_branch or "").removeprefix("refs/heads/"),
                str(getattr(comments[0], "content", "")) if comments else "",
                _conflicts(found.conflicting_files),
                found.status not in ("closed", "merged"),
            )

        return self._reading(ask)

    def cached(self, commit: str, path: str) -> bytes | None:
        """A file of that commit from this machine's cache, without the network."""
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(self.repo, path, revision=commit)
        return Path(found).read_bytes() if isinstance(found, str) else None

    def _reading(self, work: Callable[[], T]) -> T:
        return self._ask(work, self._timeouts.read_s, self._timeouts.total_s)

    def _ask(self, work: Callable[[], T], request_s: float, total_s: float) -> T:
        try:
            return watched(work, request_s=request_s, total_s=total_s)
        except HubFailure as failure:
            said = printable(self._without_token(failure.said))
            raise HubFailure(
                failure.trouble, status=failure.status, said=said, wait_s=failure.wait_s
            ) from None

    def _without_token(self, text: str) -> str:
        from huggingface_hub import get_token

        for token in (self._token, get_token()):
            text = text.replace(token, "…") if token else text
        return text


def _conflicts(told: list[str] | bool | None) -> tuple[str, ...]:
    """The Hub names the files, or says only that there are some."""
    return tuple(told) if isinstance(told, list) else ("some files",) if told else ()
