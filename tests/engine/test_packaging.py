"""The wheel in an environment of its own, with what it asks for and nothing of this repo.

No engine is needed; it takes as long as one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.rigs.model_repo import GOOD, ROOT, make_model_repo
from tests.test_packaging import build

DOWNSTREAM = """
from collections.abc import Mapping
from zenit_hub import CONFIG_KEY, device_memory, memory_budget, select_profile

def widest(config: Mapping[str, Mapping[str, object]]) -> str | None:
    found = select_profile(config[CONFIG_KEY], None, device_memory())
    return None if found is None else found[0]

budget: int = memory_budget(1, 2, None)
"""


class Places(venv.EnvBuilder):
    """Where an environment has its commands, which the platform decides."""

    places: SimpleNamespace

    def post_setup(self, context: SimpleNamespace) -> None:
        self.places = context


@dataclass(frozen=True)
class Installed:
    """An environment, and a folder without any source of ours in which its commands run."""

    python: Path
    folder: Path

    def run(self, *words: str | Path, program: str = "zenit-hub") -> subprocess.CompletedProcess[str]:
        command = [str(self.python.with_name(program)), *map(str, words)]
        return subprocess.run(
            command,
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, code: str) -> str:
        told = self.run("-c", code, program=self.python.name)
        assert told.returncode == 0, told.stderr
        return told.stdout.strip()

    def install(self, *what: str) -> None:
        subprocess.run(
            [str(self.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what],
            check=True,
            capture_output=True,
        )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("clean")
    build(ROOT, folder / "dist", "--wheel")
    builder = Places(with_pip=True)
    builder.create(folder / "venv")
    made = Installed(Path(builder.places.env_exe), folder / "work")
    made.folder.mkdir()
    made.install(str(next((folder / "dist").glob("*.whl"))))
    return made


@pytest.fixture(scope="module")
def model(installed: Installed) -> Path:
    return make_model_repo(installed.folder / "model")


def test_it_is_the_wheel_that_runs(installed: Installed) -> None:
    """And not this repo."""
    where = installed.ask("import zenit_hub; print(zenit_hub.__file__)")

    assert Path(where).is_relative_to(installed.python.parents[1])
    assert installed.run("--version").stdout.startswith("zenit-hub 0.")


def test_validate_plan_and_init(installed: Installed, model: Path) -> None:
    """Each reads the schema that the wheel carries."""
    machine = installed.folder / "machine.json"
    machine.write_text("{}")
    bare = installed.folder / "bare"
    bare.mkdir()
    (bare / "config.json").write_text(
        json.dumps({key: value for key, value in GOOD.items() if "profiles" not in key})
    )

    told = installed.run("validate", model)
    assert (told.returncode, told.stdout) == (0, f"{model}/config.json: valid\n")
    told = installed.run("plan", model, "--machine", machine, "--json")
    assert json.loads(told.stdout)["reason"] == "no_default", told.stderr
    told = installed.run("init", bare, "--dry-run", "--window", "4096")
    assert told.returncode == 0, told.stderr
    assert '"serving_profiles": {' in told.stdout


def test_what_prints_its_own_data(installed: Installed) -> None:
    """The schemas, the scripts for shells."""
    assert json.loads(installed.run("schema").stdout)["title"]
    assert "complete -o bashdefault" in installed.run("completion", "bash").stdout


def test_the_card_says_what_it_lacks_and_then_is_made(installed: Installed, model: Path) -> None:
    """The renderer comes with the extra for maintainers."""
    told = installed.run("card", model)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        "Error: rendering a model card needs jinja2, which is not installed. "
        "Type `pip install 'zenit-hub[tools]'`.\n"
    )

    installed.install("jinja2>=3.1")
    told = installed.run("card", model)
    assert told.returncode == 0, told.stderr
    assert "vllm serve org/model" in told.stdout


def test_the_plug_in_is_registered_under_its_name(installed: Installed) -> None:
    """And does no harm where there is no vLLM."""
    code = """
from importlib.metadata import entry_points
(point,) = entry_points(group="vllm.general_plugins", name="zenit_hub")
point.load()()
print(point.value)
"""
    assert installed.ask(code) == "zenit_hub.plugin:register"


def test_its_types_are_seen_by_who_imports_it(installed: Installed) -> None:
    """mypy in strict mode, from outside: right use passes, wrong use does not."""
    good, bad = installed.folder / "good.py", installed.folder / "bad.py"
    good.write_text(DOWNSTREAM)
    bad.write_text('from zenit_hub import memory_budget\nbudget: str = memory_budget("1", 2, None)\n')

    def mypy(file: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                sys.executable,
                "-m",
                "mypy",
                "--strict",
                "--python-executable",
                str(installed.python),
                file.name,
            ],
            cwd=installed.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    told = mypy(good)
    assert (told.returncode, told.stdout) == (0, "Success: no issues found in 1 source file\n")
    told = mypy(bad)
    assert told.returncode == 1
    assert "[arg-type]" in told.stdout
    assert "[assignment]" in told.stdout
