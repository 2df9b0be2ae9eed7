"""The hooks and the action for real: environments are built from a clone of this tree, by pre-commit and by pip.

No engine is needed; they take as long as one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.rigs.github import Action, log_commands
from tests.rigs.model_repo import GOOD, ROOT, copy_project, git, make_model_repo
from zenit_hub.cli.main import main

BAD = {**GOOD, "serving_profiles": {"profiles": {"p": {"max_model_len": 0}}}}

CONFIG = """repos:
- repo: {repo}
  rev: {commit}
  hooks:
  - id: zenit-hub-validate
  - id: zenit-hub-card
"""


def test_pre_commit_runs_the_hooks_in_a_model_repo(tmp_path: Path) -> None:
    """A good repo passes once its card is written; a bad line stops a commit."""
    commit = copy_project(tmp_path / "project")
    checkout = make_model_repo(tmp_path / "model")
    (checkout / ".pre-commit-config.yaml").write_text(CONFIG.format(repo=tmp_path / "project", commit=commit))
    git(checkout, "add", "--all")

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"],
            cwd=checkout,
            env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            check=False,
        )

    first = run()
    assert first.returncode == 1, first.stdout + first.stderr
    assert "zenit-hub validate" in first.stdout
    assert verdicts(first.stdout) == ["Passed", "Failed"]
    assert "README.md:4: the card is out of date" in first.stdout

    main(["card", str(checkout), "--write"])
    git(checkout, "add", "--all")
    assert verdicts(run().stdout) == ["Passed", "Passed"]

    (checkout / "config.json").write_text((checkout / "config.json").read_text().replace("9000", '"many"'))
    git(checkout, "add", "--all")
    assert re.search(r"^config\.json:\d+: error: .*max_model_len", run().stdout, re.MULTILINE)


def verdicts(output: str) -> list[str]:
    """Of each hook, in their order."""
    lines = [line for line in output.splitlines() if line.startswith("zenit-hub ") and "..." in line]
    return [line.rpartition(".")[2] for line in lines]


def test_the_action_installs_from_its_own_checkout_and_checks(tmp_path: Path) -> None:
    """Both of its steps, one after the other, with nothing of this environment but its Python."""
    copy_project(tmp_path / "action")
    (tmp_path / "temp").mkdir()
    action = Action(tmp_path / "action" / "action.yml")
    context = {
        "runner.temp": str(tmp_path / "temp"),
        "github.action_path": str(tmp_path / "action"),
        "steps.python.outputs.python-path": sys.executable,
    }
    checkout = make_model_repo(tmp_path / "model", BAD)
    (checkout / "pip.py").write_text("open('ran', 'w').close()\n")

    installed = action.run("Install zenit-hub", checkout, context)
    assert installed.returncode == 0, installed.stderr
    told = action.run("Check", checkout, context)

    assert told.returncode == 1
    (command,) = log_commands(told.stdout + told.stderr)
    assert command.properties == {"file": "config.json", "line": "8"}
    assert sorted(path.name for path in checkout.iterdir()) == [".git", "README.md", "config.json", "pip.py"]
    assert (tmp_path / "temp" / "zenit-hub" / "zenit_hub" / "schema").is_dir()
    assert git(tmp_path / "action", "status", "--porcelain") == "", "the install leaves the checkout alone"


def test_the_copy_is_this_tree(tmp_path: Path) -> None:
    """What is ignored here does not travel."""
    copy_project(tmp_path / "project")

    assert (tmp_path / "project" / "action.yml").read_bytes() == (ROOT / "action.yml").read_bytes()
    assert not list((tmp_path / "project").rglob("__pycache__"))
