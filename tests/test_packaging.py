"""What is built from this tree: a wheel with all that runs, a source archive that makes the same wheel.

Installed for real, into an environment of its own: ``tests/engine/test_packaging.py``.
"""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def build(source: Path, into: Path, *words: str) -> None:
    """With the build backend that is installed here; nothing is written into ``source``."""
    told = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into), *words, str(source)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both archives."""
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "--wheel", "--sdist")
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    return next(built.glob("*.tar.gz"))


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_package_and_its_data(wheel: Path) -> None:
    """Every module; the schemas and the template, of which the only copies stand elsewhere in the tree."""
    held = contents(wheel)
    modules = {str(file.relative_to(ROOT)): file for file in (ROOT / "zenit_hub").rglob("*.py")}
    data = {f"zenit_hub/schema/{file.name}": file for file in (ROOT / "schema").glob("*.json")}
    data["zenit_hub/model_card/block.md.jinja"] = ROOT / "model_card" / "block.md.jinja"
    for name in ("py.typed", "serve_options.json"):
        data[f"zenit_hub/{name}"] = ROOT / "zenit_hub" / name

    assert len(data) >= 6
    assert {name: held[name] for name in {*modules, *data}} == {
        name: file.read_bytes() for name, file in {**modules, **data}.items()
    }


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    """No tests, no tools, no bytecode."""
    names = {name.partition("/")[0] for name in contents(wheel)}

    assert {re.sub(r"-[\d.]+\.dist-info", ".dist-info", name) for name in names} == {
        "zenit_hub",
        "zenit_hub.dist-info",
    }
    assert not [name for name in contents(wheel) if name.endswith((".pyc", ".log"))]


def test_what_an_index_reads(wheel: Path) -> None:
    """Name, licence, and that a server gets neither vLLM nor torch nor a renderer with it."""
    held = contents(wheel)
    (metadata,) = (body for name, body in held.items() if name.endswith("METADATA"))
    told = email.message_from_bytes(metadata)
    needed = {
        re.split(r"[<>=;\[ ]", line)[0]
        for line in told.get_all("Requires-Dist", [])
        if "extra ==" not in line
    }

    assert (told["Name"], told["License-Expression"]) == ("zenit-hub", "Apache-2.0")
    assert needed == {"huggingface-hub", "jsonschema", "nvidia-ml-py"}
    (points,) = (body.decode() for name, body in held.items() if name.endswith("entry_points.txt"))
    assert "zenit-hub = zenit_hub.cli.main:main" in points
    assert "[vllm.general_plugins]\nzenit_hub = zenit_hub.plugin:register" in points


def test_twine_has_nothing_to_complain_of(built: Path) -> None:
    """The description renders, too."""
    told = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr


def test_the_source_archive_makes_the_same_wheel(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    """Byte for byte, from a folder that has nothing else."""
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    build(next(tmp_path.iterdir()), tmp_path / "dist", "--wheel")

    again = contents(next((tmp_path / "dist").glob("*.whl")))
    assert again == contents(wheel)


def test_the_source_archive_has_what_a_packager_needs(sdist: Path) -> None:
    """Tests and their rigs, schemas, tools, the licence."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = ("LICENSE", "README.md", "pyproject.toml", "Makefile", "tools/demo.py", "tests/rigs/nvml/nvml.c")
    assert [name for name in (*wanted, ".pre-commit-hooks.yaml", "action.yml") if name not in names] == []
