"""The script for a machine with a card: its table and its exit status, against the rigs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cuda import cuda_environment
from tests.rigs.nvml import NvmlRig

MIB, GIB = 2**20, 2**30
ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tools" / "gpu_smoke.sh"
FAKE_TORCH = Path(__file__).parent / "rigs" / "fake_torch"


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    made = NvmlRig(tmp_path / "card")
    card = {
        "total_bytes": 16 * GIB,
        "free_bytes": 15 * GIB,
        "reserved_bytes": 500 * MIB,
        "context_bytes": 300 * MIB,
    }
    made.put({"devices": [{"name": "NVIDIA Rig", "compute_capability": "9.0", **card}]})
    return made


LENIENT = """
import sys
from tools import gpu_smoke
# Whether this machine is busy is not what is tested here.
gpu_smoke.LOWEST_HZ, gpu_smoke.HIGHEST_COST = 1.0, 1.0
raise SystemExit(gpu_smoke.main(sys.argv[1:]))
"""


def run(rig: NvmlRig, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, **cuda_environment(rig), "PYTHON": sys.executable}
    return subprocess.run(
        [*(command or (sys.executable, "-c", LENIENT)), "--seconds", "0.3"],
        env={**own, "PYTHONPATH": f"{FAKE_TORCH}:{ROOT}", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def verdicts(output: str) -> dict[str, bool]:
    """Check → fine; the lines between the heading and the sum."""
    lines = output.splitlines()[2:-1]
    return {line.partition("  ")[0]: line.endswith(" ok") for line in lines}


def test_a_card_that_is_as_it_should_be(rig: NvmlRig) -> None:
    """A row a check, all of them fine, status 0; nothing stays on the card."""
    done = run(rig)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    fine = verdicts(done.stdout)
    assert set(fine.values()) == {True}
    assert list(fine) == [
        "probe: total, beside torch's",
        "probe: free, beside torch's",
        "NVML sampling",
        "its cost, of one core",
        "moved by others meanwhile",
        "fall while torch takes 1024 MiB",
        "ballast: left, by NVML",
        "ballast: left, by torch",
        "torch asks for -64 MiB of that",
        "torch asks for +64 MiB of that",
        "ballast: free again",
    ]
    assert done.stdout.splitlines()[-1] == "11 checks, all within limits"


def test_a_deviation_is_named_and_ends_with_1(rig: NvmlRig) -> None:
    """Here torch says that more is free than NVML does."""
    done = run(rig, ZENIT_RIG_TORCH_LIES_BYTES=str(65 * MIB))
    fine = verdicts(done.stdout)
    assert done.returncode == 1
    assert [what for what in fine if not fine[what]] == [
        "probe: free, beside torch's",
        "ballast: left, by torch",
    ]
    assert done.stdout.splitlines()[-1] == "11 checks, 2 deviate"


def test_what_cannot_be_checked_deviates(rig: NvmlRig) -> None:
    """With why, in its row; the other checks are made all the same."""
    rig.put({"devices": [{"total_bytes": 16 * GIB, "free_bytes": 700 * MIB, "context_bytes": 300 * MIB}]})
    done = run(rig)
    fine = verdicts(done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    assert "1073741824 bytes of uint8" in next(
        line for line in done.stdout.splitlines() if line.startswith("fall ")
    )
    assert "cannot be made small" in next(
        line for line in done.stdout.splitlines() if line.startswith("ballast ")
    )
    assert [what for what in fine if not fine[what]] == ["fall", "ballast"]


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({"devices": []}, "torch sees no CUDA device here"),
        ({"driver_error": "DriverNotLoaded", "devices": [{}]}, "the NVIDIA driver is not loaded"),
        ({"devices": [{"memory_error": "NoPermission"}]}, "the memory of the first card cannot be read"),
    ],
)
def test_a_machine_without_a_card_is_one_line_and_2(
    rig: NvmlRig, machine: dict[str, Any], words: str
) -> None:
    """No table, no traceback."""
    rig.put(machine)
    done = run(rig, str(SCRIPT))
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_script_says_the_same(rig: NvmlRig) -> None:
    """From any folder; its status is that of the table."""
    done = run(rig, "env", "-C", "/", str(SCRIPT))
    assert (done.returncode, done.stderr) == (0 if all(verdicts(done.stdout).values()) else 1, "")
    assert len(verdicts(done.stdout)) == 11
