"""``tools/speed.py --hook``: what the hook costs a start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_hook_adds_less_than_50_ms_to_a_local_checkpoint() -> None:
    """Median of 20, in one process, against vLLM's own function."""
    child = subprocess.run(
        [sys.executable, "-m", "tools.speed", "--hook"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert child.returncode == 0, child.stdout + child.stderr
    assert "goal ≤ 50 ms: met" in child.stdout
