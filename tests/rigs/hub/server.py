"""The hub itself: a server, a memory, what it was asked, and what it is told to do wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from . import routes_commits, routes_discussions, routes_files, routes_models
from .discussions import Discussion
from .environment import client_environment
from .faults import Fault, Faults, StaleInfo, limit_headers
from .journal import Journal, Request
from .objects import File
from .pulls import propose
from .refusals import Refusal
from .repository import MAIN, Delete, Edit, Message, Put, Repository
from .routes import Context, dispatch
from .wire import Answer, Call, Server, error_answer, refusal_answer
from .world import Account, World

ROUTES = (*routes_models.ROUTES, *routes_commits.ROUTES, *routes_files.ROUTES, *routes_discussions.ROUTES)


class LoopbackHub:
    """A Hugging Face hub in memory, on 127.0.0.1. With ``redirects`` files are behind a relative 307."""

    def __init__(self, *, port: int = 0, redirects: bool = False) -> None:
        self.faults = Faults()
        self._world = World()
        self._effects = threading.RLock()
        self._journal = Journal()
        self._closing = threading.Event()
        self._server = Server(port, self._respond)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._context = Context(self._world, self.faults, self.url, redirects)

    def __enter__(self) -> LoopbackHub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up and end every thread. A bug of the rig must not pass for a fault, so it is raised here."""
        if self._closing.is_set():
            return
        self._closing.set()
        self.faults.heal()
        self._server.stop()
        if self._server.crashes:
            raise RuntimeError("the loopback hub itself failed:\n" + "\n".join(self._server.crashes))

    # Accounts and contents, past HTTP: nothing here is recorded, refused or befallen by a fault.

    def account(
        self, name: str, *, role: str = "write", organizations: tuple[str, ...] = (), token: str | None = None
    ) -> str:
        """A token of ``name``. A ``read`` token changes nothing; a ``write`` one moves its own repos'
        branches and proposes pull requests anywhere."""
        with self._effects:
            made = token or f"hf_{name}_{role}_{len(self._world.tokens)}"
            self._world.tokens[made] = Account(name, role, organizations)
        return made

    def create(
        self,
        repo_id: str,
        files: Mapping[str, bytes] | None = None,
        *,
        private: bool = False,
        gated: str | bool = False,
        readers: tuple[str, ...] = (),
        lfs: tuple[str, ...] = (),
        token: str | None = None,
    ) -> str:
        """A repo with one commit, whose id is returned. ``readers`` are let into a private or gated one,
        ``lfs`` are patterns of paths kept in LFS, ``token`` becomes a write token of the owner."""
        with self._effects:
            repo = Repository(repo_id, self._world.now_s, private, gated, frozenset(readers), tuple(lfs))
            self._world.add_repo(repo)
            if token is not None:
                self._world.tokens[token] = Account(repo.owner)
            return repo.commit(_edits(repo, files or {}), Message("initial commit", "", repo.owner)).oid

    def commit(
        self,
        repo_id: str,
        files: Mapping[str, bytes | None],
        *,
        revision: str = MAIN,
        message: str = "another commit",
        author: str = "somebody",
    ) -> str:
        """What somebody else commits meanwhile; None deletes. Returns the new head."""
        with self._effects:
            repo = self.repository(repo_id)
            return repo.commit(_edits(repo, files), Message(message, "", author), revision=revision).oid

    def propose(
        self,
        repo_id: str,
        files: Mapping[str, bytes | None],
        *,
        title: str,
        description: str = "",
        author: str,
    ) -> int:
        """What somebody else proposes: the number of the new pull request."""
        with self._effects:
            repo = self.repository(repo_id)
            return propose(repo, _edits(repo, files), Message(title, description, author))[0].num

    def branch(self, repo_id: str, name: str, start: str = MAIN) -> None:
        with self._effects:
            self.repository(repo_id).branch(name, start)

    def rename(self, repo_id: str, name: str) -> None:
        """Give a repo another id; by its old one it is found all the same."""
        with self._effects:
            repo = self._world.repos[name] = self.repository(repo_id)
            repo.repo_id = name

    def tag(self, repo_id: str, name: str, revision: str = MAIN) -> None:
        with self._effects:
            self.repository(repo_id).tag(name, revision)

    def head(self, repo_id: str, revision: str = MAIN) -> str:
        """The commit id that a revision stands for."""
        with self._effects:
            return self.repository(repo_id).resolve(revision).oid

    def read(self, repo_id: str, path: str, revision: str = MAIN) -> bytes:
        """A file's bytes."""
        with self._effects:
            repo = self.repository(repo_id)
            return repo.entry(repo.resolve(revision), path).content

    def pulls(self, repo_id: str) -> list[Discussion]:
        """The pull requests, oldest first, whatever their status."""
        with self._effects:
            return [each for each in self.repository(repo_id).discussions.values() if each.is_pull_request]

    def repository(self, repo_id: str) -> Repository:
        """The repo's whole state, to look at or to bend."""
        return self._world.repos[repo_id]

    # What was asked.

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in the order of arrival."""
        return self._journal.all()

    def count(self, method: str = "*", path: str = "*") -> int:
        """How many requests match both shell patterns."""
        return self._journal.count(method, path)

    def forget_requests(self) -> None:
        """Count from zero again."""
        self._journal.forget()

    # What goes wrong.

    def fail(
        self,
        method: str = "*",
        path: str = "*",
        *,
        times: int | None = 1,
        skip: int = 0,
        status: int | None = None,
        retry_after_s: int | None = None,
        rate_limit_reset_s: int | None = None,
        drop: bool = False,
        stall_s: float = 0.0,
        after_effect: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> Fault:
        """Arm a fault (see ``Fault``). A wait in either header means 429 unless ``status`` says otherwise;
        ``meanwhile`` is called just before the request has its effect, to let somebody else be first."""
        headers = limit_headers(retry_after_s, rate_limit_reset_s)
        return self.faults.arm(
            Fault(
                method,
                path,
                times=times,
                skip=skip,
                status=429 if headers and status is None else status,
                headers=headers,
                drop=drop,
                stall_s=stall_s,
                after_effect=after_effect,
                meanwhile=meanwhile,
            )
        )

    def down(self, status: int = 503) -> Fault:
        """Answer everything with ``status`` until ``heal()``."""
        return self.fail(times=None, status=status)

    def stall(self, seconds: float = 3600.0) -> Fault:
        """Keep everybody waiting, until ``heal()`` at the latest."""
        return self.fail(times=None, stall_s=seconds)

    def stale_info(self, repo_id: str, *, times: int = 1, revision: str = MAIN, commit: str = "") -> None:
        """Let model info show ``commit`` (today's head by default) ``times`` more times, whatever comes."""
        oid = commit or self.head(repo_id, revision)
        self.faults.arm_stale(StaleInfo(repo_id, revision, oid, times))

    def heal(self) -> None:
        """No faults from here on; whoever was kept waiting is answered."""
        self.faults.heal()

    def environment(self, *, home: Path | str | None = None, token: str = "") -> dict[str, str]:
        """What a child process needs to take this hub for the real one, and to talk to nobody else."""
        return client_environment(self.url, home, token)

    # Answering.

    def _respond(self, call: Call) -> Answer | None:
        record = self._journal.add(call)
        fault = self.faults.take(call.method, call.path)
        answer = self._act(call) if fault is None else self._misbehave(fault, call)
        record.status = answer.status if answer else None
        return answer

    def _misbehave(self, fault: Fault, call: Call) -> Answer | None:
        if fault.meanwhile is not None:
            fault.meanwhile()
        answer = self._act(call) if fault.after_effect else None
        if fault.stall_s:
            fault.healed.wait(fault.stall_s)
        if fault.drop or self._closing.is_set():
            return None
        if fault.status is not None:
            return error_answer(fault.status, fault.message, headers=fault.headers)
        return answer or self._act(call)

    def _act(self, call: Call) -> Answer:
        try:
            with self._effects:
                call.reader = self._world.account(call.token)
                return dispatch(ROUTES, self._context, call)
        except Refusal as refusal:
            return refusal_answer(refusal, call.reader)


def _edits(repo: Repository, files: Mapping[str, bytes | None]) -> list[Edit]:
    return [
        Delete(path) if content is None else Put(path, File(content, repo.is_lfs_path(path)))
        for path, content in files.items()
    ]
