"""``tools/speed.py``: its verdicts, and the goals themselves with a few runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools import speed

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(("validate_s", "plan_s", "status"), [(1.0, 1.5, 0), (1.01, 1.0, 1), (0.5, 1.51, 1)])
def test_a_missed_goal_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    validate_s: float,
    plan_s: float,
    status: int,
) -> None:
    """The goals are multiples of check-jsonschema's time, inclusive."""
    times = {speed.BASE: 1.0, "validate": validate_s, "plan": plan_s, "--help": 9.0}
    timed = {name: lambda took_s=took_s: took_s for name, took_s in times.items()}
    monkeypatch.setattr(speed, "timed_commands", lambda folder: timed)

    assert speed.commands(Path(), 3) == status
    assert capsys.readouterr().out.count("missed") == status


def test_the_first_run_of_each_does_not_count() -> None:
    """It warms the disk's cache."""
    ran: list[str] = []
    timed = {name: lambda name=name: float(ran.append(name) or len(ran)) for name in ("a", "b")}

    assert speed.in_turns(timed, 2) == {"a": [3.0, 5.0], "b": [4.0, 6.0]}
    assert ran == ["a", "b"] * 3


def test_validate_and_plan_are_as_fast_as_they_should_be() -> None:
    """Side by side with check-jsonschema, whole processes."""
    child = subprocess.run(
        [sys.executable, "-m", "tools.speed", "--runs", "3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert child.returncode == 0, child.stdout + child.stderr
    assert child.stdout.count("met") == 2
