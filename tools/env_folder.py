"""The folder of a virtual environment: its stamp, its log, and repairing what a killed run left in it.

Part of ``setup_env.py``: standard library only, for the system's Python.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

STAMP_NAME = ".zenit_hub_env.json"
LOG_NAME = "setup_env.log"
SHOWN_LOG_LINES = 12
RETRY = "Mend what they name (network, disk, version) and run the same again."


class SetupError(Exception):
    """What went wrong and what to do, as a few lines for a terminal."""


def say(text: str) -> None:
    print(f"env: {text}", flush=True)


def read_stamp(venv: Path) -> dict[str, str] | None:
    """The stamp, ``{}`` for one that is unfinished or damaged, ``None`` where this tool never was."""
    try:
        stamp = json.loads((venv / STAMP_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(venv: Path, stamp: dict[str, str]) -> None:
    """Replace the stamp in one step, so that a reader never sees half of it."""
    draft = venv / f"{STAMP_NAME}.{os.getpid()}"
    draft.write_text(json.dumps(stamp) + "\n", encoding="utf-8")
    os.replace(draft, venv / STAMP_NAME)


def run_logged(venv: Path, command: list[str]) -> tuple[bool, str]:
    """Run a command, its output into the log; whether it succeeded, and the output."""
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        close_fds=False,  # it holds the lock on the folder, too
    )
    # pip says this once a package for every local folder among its indexes.
    noise = re.compile(r"WARNING: Location .* is ignored")
    output = "\n".join(line for line in done.stdout.splitlines() if not noise.match(line))
    with (venv / LOG_NAME).open("a", encoding="utf-8") as log:
        log.write(f"$ {' '.join(command)}\n{output}\n[exit status {done.returncode}]\n")
    return done.returncode == 0, output


def pip_install(venv: Path, arguments: list[str]) -> tuple[bool, str]:
    # Compiling comes at the end, on all cores: pip takes one.
    options = ["--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]
    return run_logged(venv, [str(venv / "bin" / "python"), "-m", "pip", "install", *options, *arguments])


def install(venv: Path, what: str, arguments: list[str]) -> None:
    say(f"installing {what}")
    succeeded, output = pip_install(venv, arguments)
    if not succeeded:
        raise failure(venv, f"pip could not install {what}", output, RETRY)


def compile_modules(venv: Path) -> None:
    """Compile what was installed; a shell may forbid Python to do that when it imports (as images do).

    A few files are written for newer Pythons and cannot be compiled, which is no failure.
    """
    packages = [str(path) for path in venv.glob("lib/python*/site-packages")]
    run_logged(venv, [str(venv / "bin" / "python"), "-m", "compileall", "-q", "-j", "0", *packages])


def failure(venv: Path, what: str, output: str, next_step: str) -> SetupError:
    tail = "\n".join(f"    {line}" for line in output.splitlines()[-SHOWN_LOG_LINES:])
    return SetupError(
        f"{what}. Its last lines (all of them are in {venv / LOG_NAME}):\n{tail}\n"
        f"{next_step} The next run goes on from here."
    )


def make_venv(venv: Path) -> dict[str, str]:
    """Create the virtual environment or complete it; refuse a folder that is somebody else's.

    Returns what of the stamp still holds: nothing, or the engine where that is whole.
    """
    version = found_python(venv)
    wanted = f"{sys.version_info[0]}.{sys.version_info[1]}"
    stamp = read_stamp(venv)
    if any(venv.iterdir()) and stamp is None and version != wanted:
        raise SetupError(
            f"{venv} is neither empty nor a virtual environment of Python {wanted}. "
            "Remove it, or name another folder with --venv (VENV= for make)."
        )
    # An environment of another Python is made anew; the same one is only completed where it lacks something.
    clear = version not in (None, wanted)
    holds = {} if clear or not stamp or "engine" not in stamp else {"engine": stamp["engine"]}
    write_stamp(venv, holds)
    if drop_half_installed(venv):
        holds = {}
        write_stamp(venv, holds)
    command = [sys.executable, "-m", "venv", *(["--clear"] if clear else []), str(venv)]
    succeeded, output = run_logged(venv, command)
    if not succeeded:
        succeeded, output = make_venv_without_ensurepip(venv, command)
    if not succeeded:
        raise failure(venv, "No virtual environment could be made", output, "Install Python's venv module.")
    write_stamp(venv, holds)  # --clear took it away
    return holds


def found_python(venv: Path) -> str | None:
    """``"3.11"``, the Python that an existing environment was made with."""
    config = venv / "pyvenv.cfg"
    found = re.search(r"^version\s*=\s*(\d+\.\d+)", config.read_text(), re.M) if config.exists() else None
    return found[1] if found else None


def make_venv_without_ensurepip(venv: Path, command: list[str]) -> tuple[bool, str]:
    """Debian keeps ensurepip in a package of its own; its pip can fill a bare environment as well."""
    succeeded, output = run_logged(venv, [*command, "--without-pip"])
    if not succeeded:
        return succeeded, output
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]
    return run_logged(venv, [*pip, "install", "pip", "setuptools"])


def drop_half_installed(venv: Path) -> bool:
    """Make pip forget packages that a killed run left incomplete; otherwise it takes them as installed.

    Whether there was one.
    """
    found = False
    for site_packages in venv.glob("lib/python*/site-packages"):
        for leftover in site_packages.glob("~*"):  # pip's own name for a package it was replacing
            shutil.rmtree(leftover, ignore_errors=True)
            found = True
        for dist_info in site_packages.glob("*.dist-info"):
            if not is_complete(dist_info):
                say(f"{dist_info.stem} was left half-installed; it is installed anew")
                shutil.rmtree(dist_info)
                found = True
    return found


def is_complete(dist_info: Path) -> bool:
    """Whether pip came to its end (INSTALLER is among the last it writes) and every file is still there."""
    if not (dist_info / "INSTALLER").is_file() or not (dist_info / "RECORD").is_file():
        return False
    with (dist_info / "RECORD").open(encoding="utf-8", newline="") as record:
        files = [row[0] for row in csv.reader(record) if row]
    return all(file.endswith(".pyc") or os.path.exists(dist_info.parent / file) for file in files)
