"""Ctrl-C, TERM and KILL of `zenit-hub measure`: nothing is left behind, what was written stays, --resume finishes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.rigs.measuring import GIB, MIB, Lab, a_profile, short_folder
from tests.rigs.stub_engine import Stub

pytestmark = pytest.mark.engine

FREE_BYTES = 15 * GIB
Event = dict[str, object]


@pytest.fixture
def lab() -> Iterator[Lab]:
    folder = short_folder()
    stub = Stub(pace_s=0.12, answer_s=0.1, shared_bytes=8 * MIB)
    yield Lab(folder, {"a": a_profile(), "b": a_profile(2048)}, stub)
    shutil.rmtree(folder, ignore_errors=True)


def in_b(phase: str, kind: str = "cold") -> Callable[[list[Event]], bool]:
    """Whether profile b has come to ``phase`` of its boot of that kind."""

    def come(events: list[Event]) -> bool:
        since = [i for i, event in enumerate(events) if event.get("profile") == "b"]
        boots = (
            [event.get("kind") for event in events[since[0] :] if event["event"] == "boot"] if since else []
        )
        return bool(boots) and boots[-1] == kind and events[-1].get("phase") == phase

    return come


def begun(events: list[Event]) -> bool:
    return events[-1]["event"] == "run"


MOMENTS = {
    "at the start": begun,
    "loading": in_b("loading"),
    "a request": in_b("workload"),
    "the card made small": in_b("loading", "verification"),
}


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("at the start", signal.SIGKILL),
        ("loading", signal.SIGKILL),
        ("loading", signal.SIGTERM),
        ("a request", signal.SIGINT),
        ("a request", signal.SIGKILL),
        ("the card made small", signal.SIGKILL),
        ("the card made small", signal.SIGTERM),
    ],
    ids=lambda value: value.name if isinstance(value, signal.Signals) else value.replace(" ", "-"),
)
def test_whenever_it_ends_nothing_stays_behind(lab: Lab, moment: str, number: signal.Signals) -> None:
    """No process, no memory on the card, no shared memory, no temporary folder; profile a's result is kept."""
    verify = "--verify" if moment == "the card made small" else "--no-verify"
    with lab.start("--all", "--json", "--boots", "1", verify) as tool:
        assert tool.stdout is not None
        events: list[Event] = []
        for line in tool.stdout:
            events.append(json.loads(line))
            if MOMENTS[moment](events):
                break
        os.kill(tool.pid, number)
        tool.stdout.read()
    expected = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}

    assert tool.returncode == expected[number]
    assert lab.leftovers() == []
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("psm_stub_")]
    assert lab.files() == ([] if moment == "at the start" else ["a.json"])
    assert _card_is_free(lab)


def test_resume_finishes_what_was_interrupted(lab: Lab) -> None:
    """Profile a is not measured again."""
    with lab.start("--all", "--json", "--no-verify", "--boots", "1") as tool:
        assert tool.stdout is not None
        events: list[Event] = []
        for line in tool.stdout:
            events.append(json.loads(line))
            if in_b("loading")(events):
                os.kill(tool.pid, signal.SIGKILL)
    first = lab.measurement("a")
    assert lab.leftovers() == []

    resumed = lab.run("--all", "--no-verify", "--boots", "1", "--resume")

    assert resumed.returncode == 0, resumed.stderr
    assert lab.files() == ["a.json", "b.json"]
    assert lab.measurement("a") == first
    assert resumed.stderr.count("cold boot") == 1


def test_an_interrupt_is_one_line(lab: Lab) -> None:
    """With what to type; no traceback."""
    with lab.start("--all") as tool:
        assert tool.stdout is not None
        said = []
        for line in tool.stdout:
            said.append(line)
            if "loading" in line:
                os.kill(tool.pid, signal.SIGINT)
                break
        said += tool.stdout.readlines()

    assert tool.returncode == 130
    assert said[-1].startswith("Error: interrupted; ")
    assert "--resume" in said[-1]
    assert "Traceback" not in "".join(said)


def _card_is_free(lab: Lab, deadline_s: float = 5) -> bool:
    """What the card says to a process of its own."""
    code = (
        "import pynvml as n; n.nvmlInit();"
        "print(n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).free)"
    )
    until_s = time.monotonic() + deadline_s
    while time.monotonic() < until_s:
        free_bytes = int(_python(lab, code))
        if free_bytes == FREE_BYTES:
            return True
        time.sleep(0.2)
    return False


def _python(lab: Lab, code: str) -> str:
    import subprocess
    import sys

    child = subprocess.run(
        [sys.executable, "-c", code], env=lab.environment, capture_output=True, text=True, check=True
    )
    return child.stdout


def test_the_tool_that_dies_leaves_no_half_written_file(lab: Lab) -> None:
    """Only whole measurements stand in the output folder."""
    with lab.start("--all", "--json", "--no-verify", "--boots", "1") as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if json.loads(line)["event"] == "profile_end":
                os.kill(tool.pid, signal.SIGKILL)
                break

    assert [path.name for path in sorted(lab.output.iterdir()) if path.suffix not in (".svg", ".png")] == [
        "a.json"
    ]
    assert lab.measurement("a").verdict == "measured"
    assert lab.leftovers() == []


def test_the_scratch_folder_is_gone_when_the_tool_ends_by_itself(lab: Lab) -> None:
    """Also after an error."""
    lab.run("--profile", "a", "--no-verify", "--boots", "1")

    assert list(Path(lab.temporary).iterdir()) == []
