"""A run's temporary folder, which goes away with the run, also when the run is killed."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_SWEEP = """
import os, shutil, sys, time
sys.stdin.read()
# The engine may still be ending, and write: until its guard is done nothing stays removed.
for _ in range(600):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    time.sleep(0.2)
    if not os.path.exists(sys.argv[1]):
        break
"""
"""Runs in a process of its own: a pipe that closes is all that a killed process can still say."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for logs and caches of engines. Removed at the end, by a process of its own after SIGKILL."""
    with tempfile.TemporaryDirectory(prefix="zenit-measure-", ignore_cleanup_errors=True) as name:
        sweeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _SWEEP, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield Path(name)
        finally:
            shutil.rmtree(name, ignore_errors=True)
            sweeper.communicate()
