"""Publishers in processes of their own: several at once, and one that is killed."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.measurements import GIB
from tests.rigs.hub import LoopbackHub
from tests.rigs.publishing import COMMITS, REPO, Publisher, measured
from zenit_hub.maintain.measurement import to_json

pytest_plugins = ("tests.rigs.publishing_fixtures",)

ROOT = Path(__file__).parent.parent
EIGHT = tuple(f"p{number}" for number in range(8))
QUICK = {"first_wait_s": 0.05}
TIMEOUT_S = 60.0
REPETITIONS = int(os.environ.get("PUBLISH_REPETITIONS", "1"))
"""Of the eight at once; twenty have been run."""

COMMIT_NUMBER = 9
"""Of the requests of a publication, from 0: access, head, ids, config and card (two each), the card's check, preupload,
commit, reading back."""


class Running:
    """A publisher at work."""

    def __init__(self, pid: int, answer: Path) -> None:
        self._answer = answer
        try:
            self._pidfd: int | None = os.pidfd_open(pid)
        except ProcessLookupError:
            self._pidfd = None  # it has ended already

    def kill(self) -> None:
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def outcome(self) -> dict[str, Any] | None:
        """What came of it when it ended; ``None`` after a kill."""
        if self._pidfd is not None:
            ended, _, _ = select.select([self._pidfd], [], [], TIMEOUT_S)
            os.close(self._pidfd)
            assert ended, "a publisher does not end"
        return json.loads(self._answer.read_text()) if self._answer.exists() else None


class Publishers:
    """Starts publishers as forks of one process that has imported everything."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.publishing_child"],
            cwd=ROOT,
            env={**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "HF_TOKEN": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, hub: LoopbackHub, file: Path, **order: Any) -> Running:
        number = next(self._numbers)
        answer = self._folder / f"{number}.json"
        whole = {
            "url": hub.url,
            "file": str(file),
            "cache": str(self._folder / f"cache-{number}"),
            "answer": str(answer),
            "pace": QUICK,
            **order,
        }
        self._process.stdin.write(json.dumps(whole) + "\n")
        self._process.stdin.flush()
        return Running(int(self._process.stdout.readline()), answer)

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def publishers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publishers]:
    made = Publishers(tmp_path_factory.mktemp("publishers"))
    yield made
    made.close()


def file_of(folder: Path, profile: str, gib: float) -> Path:
    file = folder / f"{profile}.json"
    file.write_text(to_json(measured(profile, gib)))
    return file


@pytest.mark.parametrize("repetition", range(REPETITIONS))
def test_eight_at_once(hub: LoopbackHub, publishers: Publishers, tmp_path: Path, repetition: int) -> None:
    """Each another profile: all figures in the end, a commit each, nobody's other file lost."""
    publisher = Publisher(hub, profiles=EIGHT)
    publisher.somebody_writes("notes.md")
    files = [file_of(tmp_path, name, 10 + number) for number, name in enumerate(EIGHT)]

    running = [publishers.start(hub, file) for file in files]
    outcomes = [one.outcome() for one in running]

    assert [outcome and outcome["outcome"] for outcome in outcomes] == ["published"] * 8, outcomes
    assert publisher.figures() == {name: (10 + number) * GIB for number, name in enumerate(EIGHT)}
    assert len(publisher.ours()) == len(set(publisher.ours())) == 8
    assert hub.read(REPO, "notes.md") == b"notes\n"
    paths = hub.repository(REPO).resolve("main").files
    assert len([path for path in paths if path.startswith("serving_profiles/")]) == 8
    card = hub.read(REPO, "README.md").decode()
    assert all(f"- {name}: {(10 + number) * GIB}\n" in card for number, name in enumerate(EIGHT))


def killed_at(
    hub: LoopbackHub,
    publishers: Publishers,
    file: Path,
    fault: Callable[[Callable[[], None]], object],
    **order: Any,
) -> dict[str, Any] | None:
    """A publisher that is killed when ``fault`` says so."""
    running: list[Running] = []
    started = threading.Event()

    def kill() -> None:
        assert started.wait(TIMEOUT_S)
        running[0].kill()

    fault(kill)
    running.append(publishers.start(hub, file, **order))
    started.set()
    return running[0].outcome()


@pytest.mark.parametrize("number", [0, 4, 8, 9, 10])
def test_killed_at_any_request(hub: LoopbackHub, publishers: Publishers, tmp_path: Path, number: int) -> None:
    """C6: all of it or nothing is on the Hub, the file is kept, and a second run finishes: one commit of ours."""
    publisher = Publisher(hub)
    file = file_of(tmp_path, "m256k", 24)
    before = file.read_bytes()

    ended = killed_at(hub, publishers, file, lambda kill: hub.fail(path="/*", skip=number, meanwhile=kill))

    assert ended is None
    assert publisher.figures() in ({}, {"m256k": 24 * GIB})
    assert bool(publisher.ours()) is bool(publisher.figures())
    assert file.read_bytes() == before
    again = publishers.start(hub, file).outcome()
    assert again is not None
    assert again["outcome"] == ("published" if number < COMMIT_NUMBER else "nothing")
    assert publisher.figures() == {"m256k": 24 * GIB}
    assert len(publisher.ours()) == 1


def test_killed_while_the_commit_is_on_its_way(
    hub: LoopbackHub, publishers: Publishers, tmp_path: Path
) -> None:
    """It never arrived: the Hub is as it was, and the second run sends it."""
    publisher = Publisher(hub)
    file = file_of(tmp_path, "m256k", 24)
    ended = killed_at(
        hub, publishers, file, lambda kill: hub.fail("POST", COMMITS, meanwhile=kill, drop=True)
    )

    assert ended is None
    assert hub.head(REPO) == publisher.first
    again = publishers.start(hub, file).outcome()
    assert again is not None
    assert again["outcome"] == "published"


def test_killed_while_opening_a_pull_request(
    hub: LoopbackHub, publishers: Publishers, tmp_path: Path
) -> None:
    """The second run finds the first one's: no second pull request."""
    publisher = Publisher(hub)
    file = file_of(tmp_path, "m256k", 24)
    ended = killed_at(
        hub, publishers, file, lambda kill: hub.fail("POST", COMMITS, meanwhile=kill), create_pr=True
    )

    assert ended is None
    again = publishers.start(hub, file, create_pr=True).outcome()
    assert again is not None
    assert (again["outcome"], again["pull_request"]) == ("nothing", 1)
    assert len(hub.pulls(REPO)) == 1
    assert len(publisher.ours("refs/pr/1")) == 1
