"""Code of the tests inside the processes of a real launch: vLLM plug-ins and start-up code by PYTHONPATH."""

from __future__ import annotations

import os
from pathlib import Path


def plugin_folder(folder: Path, name: str, source: str) -> Path:
    """A folder that, on ``PYTHONPATH``, is an installed vLLM plug-in: ``source`` defines ``register()``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(source, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{name} = {name}:register\n", encoding="utf-8"
    )
    return folder


def startup_folder(folder: Path, source: str) -> Path:
    """A folder whose code every Python that has it on ``PYTHONPATH`` runs when it starts."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(source, encoding="utf-8")
    return folder


def python_path(*folders: Path) -> dict[str, str]:
    """The variable that puts ``folders`` before everything else."""
    before = [str(folder) for folder in folders]
    return {"PYTHONPATH": os.pathsep.join([*before, *filter(None, [os.environ.get("PYTHONPATH")])])}
