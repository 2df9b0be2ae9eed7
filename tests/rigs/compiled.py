"""C libraries of the rigs: compiled once a source, kept in the temporary directory."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_COMPILE = ("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror")


def compiled_library(name: str, source: Path, headers: Sequence[Path], *flags: str) -> Path:
    """``name`` (its soname as well) made of ``source``, from the cache or compiled if it is not there."""
    compile_it = [*_COMPILE, *flags, f"-Wl,-soname,{name}"]
    content = b"\0".join(file.read_bytes() for file in (source, *sorted(headers)))
    key = hashlib.sha256(content + " ".join([platform.machine(), *compile_it]).encode()).hexdigest()[:24]
    folder = Path(tempfile.gettempdir()) / f"zenit-rig-{source.stem}-{os.getuid()}" / key
    library = folder / name
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Several test processes may get here at once: each compiles its own, the last rename wins.
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            built = Path(scratch) / name
            command = [*compile_it, "-o", str(built), str(source)]
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)
            if outcome.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{outcome.stderr}")
            os.replace(built, library)
    return library
