"""A child process that asks the rig's cards through the real ``pynvml``, as the code under test will."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.rigs.nvml import NvmlRig

MIB = 1 << 20
CHILD_TIMEOUT_S = 30

# What every child starts with: `say` answers the test, `outcome` is a value or an NVML error's name.
PRELUDE = """
import json, sys
import pynvml
from pynvml import *

def say(value):
    print(json.dumps(value), flush=True)

def outcome(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except NVMLError as error:
        return type(error).__name__.removeprefix("NVMLError_")

def figures(handle, version=None):
    memory = outcome(nvmlDeviceGetMemoryInfo, handle, version=version)
    if isinstance(memory, str):
        return memory
    return {name: getattr(memory, name) for name, _ in memory._fields_ if name != "version"}
"""
CARD_0 = "nvmlInit(); card = nvmlDeviceGetHandleByIndex(0)\n"


@contextmanager
def started(
    rig: NvmlRig, code: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The child, with pipes, waited for at the end; ``environment`` is merged in after the rig's own."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PRELUDE + code],
        env={**os.environ, **rig.environment(), **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            yield child
        except BaseException:
            child.kill()  # else a test that fails while the child hangs would wait for it
            raise


def ask(rig: NvmlRig, code: str, environment: Mapping[str, str] | None = None) -> Any:
    """What the child said, one value or a list of them."""
    with started(rig, code, environment) as child:
        out, err = child.communicate(timeout=CHILD_TIMEOUT_S)
    assert (child.returncode, err) == (0, "")
    said = [json.loads(line) for line in out.splitlines()]
    return said[0] if len(said) == 1 else said


def a_card(**keys: Any) -> dict[str, Any]:
    """A device of a machine file, with the figures of case C2-17."""
    figures = {"total_bytes": 40960 * MIB, "free_bytes": 40048 * MIB, "reserved_bytes": 904 * MIB}
    return {"uuid": "GPU-aaaa", "name": "Card A", "compute_capability": "9.0", **figures, **keys}
