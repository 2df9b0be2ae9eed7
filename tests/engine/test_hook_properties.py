"""What holds of the hook for any section, any machine and any arguments (issue 2, acceptance 8)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_no_exception_leaves_the_hook_and_it_keeps_to_the_list(tmp_path: Path) -> None:
    """In a process with the engine's real classes: what ``prepare`` does to any arguments and environment."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.rigs.prepare_child", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert child.returncode == 0, child.stdout[-4000:] + child.stderr[-4000:]
    assert child.stdout.splitlines()[-1] == "held"
