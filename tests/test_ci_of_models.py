"""What model repos call in their CI: the hooks' own words and the action's own script, in a real checkout."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rigs.github import Action, log_commands, names
from tests.rigs.model_repo import GOOD, ROOT, git, make_model_repo
from zenit_hub.cli.main import main

HOOKS: dict[str, dict[str, Any]] = {
    hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
}
ACTION = Action(ROOT / "action.yml")
BAD = {**GOOD, "serving_profiles": {"profiles": {"p": {"max_model_len": 0}}}}

pytestmark = pytest.mark.usefixtures("quiet_environment")


@pytest.fixture
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where these tests run in a workflow themselves."""
    for name in ("GITHUB_ACTIONS", "GITHUB_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)


# --- pre-commit


def run_hook(name: str, checkout: Path) -> int:
    """The hook's entry with the files that its pattern takes, as pre-commit calls it in a checkout.

    The real one: ``tests/engine/test_ci_of_models.py``.
    """
    hook = HOOKS[name]
    files = [file for file in git(checkout, "ls-files").splitlines() if takes(hook, file)]
    entry = shlex.split(hook["entry"])
    assert entry[0] == "zenit-hub"
    words = [*entry[1:], *hook.get("args", []), *(files if hook.get("pass_filenames", True) else [])]
    return main(words)


def takes(hook: dict[str, Any], file: str) -> bool:
    excluded = "exclude" in hook and re.search(hook["exclude"], file)
    return bool(re.search(hook["files"], file)) and not excluded


def test_the_hooks_pass_a_good_repo_and_stop_a_bad_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """validate finds the line; card finds a block that config.json does not make."""
    good = make_model_repo(tmp_path / "good")
    bad = make_model_repo(tmp_path / "bad", BAD)

    monkeypatch.chdir(bad)
    assert run_hook("zenit-hub-validate", bad) == 1
    assert capsys.readouterr().out.startswith("config.json:8: error: ")
    monkeypatch.chdir(good)
    assert run_hook("zenit-hub-validate", good) == 0
    assert run_hook("zenit-hub-card", good) == 1
    assert "README.md:4: the card is out of date" in capsys.readouterr().err
    main(["card", ".", "--write"])
    assert run_hook("zenit-hub-card", good) == 0


@pytest.mark.parametrize(
    ("file", "hooks"),
    [
        ("config.json", {"validate", "card"}),
        ("model/config.json", {"validate", "card"}),
        ("model_card/serving_profiles.json", {"validate"}),
        ("my-serving_profiles-2.json", {"validate"}),
        ("serving_profiles/million/card-0123456789ab.json", {"validate", "card"}),
        ("serving_profiles/million/card-0123456789ab.svg", {"card"}),
        ("README.md", {"card"}),
        ("schema/serving_profiles.schema.json", set()),
        ("generation_config.json", set()),
        ("tokenizer_config.json", set()),
        ("config.json.bak", set()),
        ("MYREADME.md", set()),
    ],
)
def test_which_files_a_hook_is_for(file: str, hooks: set[str]) -> None:
    assert {name.removeprefix("zenit-hub-") for name, hook in HOOKS.items() if takes(hook, file)} == hooks


def test_both_hooks_share_one_environment() -> None:
    """pre-commit makes one for each list of dependencies."""
    assert len({(hook["language"], *hook["additional_dependencies"]) for hook in HOOKS.values()}) == 1


def test_pre_commit_takes_the_manifest() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", ".pre-commit-hooks.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout


# --- the action


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The runner's folder in which the install step would have put the command."""
    command = tmp_path / "temp" / "zenit-hub" / "bin" / "zenit-hub"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from zenit_hub.cli.main import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return tmp_path / "temp"


def check(place: Path, checkout: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    return ACTION.run("Check", checkout, {"runner.temp": str(place)}, inputs)


def test_the_action_annotates_a_bad_config(tmp_path: Path, place: Path) -> None:
    """At its line, and the step fails; the card of what is not valid is not looked at."""
    told = check(place, make_model_repo(tmp_path / "repo", BAD))

    assert told.returncode == 1
    (command,) = log_commands(told.stdout + told.stderr)
    assert (command.name, command.properties) == ("error", {"file": "config.json", "line": "8"})


def test_the_action_annotates_a_card_and_then_passes(tmp_path: Path, place: Path) -> None:
    """Once the card is written there is nothing to annotate."""
    checkout = make_model_repo(tmp_path / "repo")

    told = check(place, checkout)
    assert told.returncode == 1
    assert [each.properties["file"] for each in log_commands(told.stdout + told.stderr)] == ["README.md"]
    assert check(place, checkout, card="false").returncode == 0
    main(["card", str(checkout), "--write"])
    told = check(place, checkout)
    assert (told.returncode, log_commands(told.stdout + told.stderr)) == (0, [])


def test_the_action_takes_several_paths_and_a_repo(tmp_path: Path, place: Path) -> None:
    """One a line, spaces and dashes in them; another repo's figures are an error."""
    checkout = make_model_repo(tmp_path / "repo")
    for name in ("with space", "-dash"):
        make_model_repo(checkout / name, BAD)

    told = check(place, checkout, path="with space\n\n-dash\nconfig.json", repo="other/model")
    assert told.returncode == 1
    assert [each.properties["file"] for each in log_commands(told.stdout + told.stderr)] == [
        "with space/config.json",
        "-dash/config.json",
        "config.json",
    ]


@pytest.mark.parametrize("evil", ["$(touch ran)`touch ran`; touch ran", "x\n::set-output name=a::b"])
def test_an_input_is_never_run(tmp_path: Path, place: Path, evil: str) -> None:
    """Neither by the shell nor by the runner."""
    checkout = make_model_repo(tmp_path / "repo")

    told = check(place, checkout, path=evil, repo=evil)
    assert not (checkout / "ran").exists()
    assert set(names(log_commands(told.stdout + told.stderr))) <= {"error", "warning"}


def test_nothing_of_the_model_repo_is_imported(tmp_path: Path, place: Path) -> None:
    """A module of a name that we import lies in the checkout."""
    checkout = make_model_repo(tmp_path / "repo")
    for name in ("json", "argparse", "zenit_hub", "sitecustomize", "jinja2"):
        (checkout / f"{name}.py").write_text("open('ran', 'w').close()\n")
    main(["card", str(checkout), "--write"])

    assert check(place, checkout).returncode == 0
    assert not (checkout / "ran").exists()


def test_scripts_of_the_action_hold_no_expressions() -> None:
    """They come through the environment: an expression in a script is text that becomes code."""
    assert [name for name, step in ACTION.steps.items() if "${{" in step.script] == []
    assert ACTION.document["runs"]["using"] == "composite"
    assert all("description" in each and "default" in each for each in ACTION.document["inputs"].values())


def test_the_action_is_what_its_schema_says() -> None:
    """The one that check-jsonschema carries."""
    told = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions", "action.yml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout


def test_the_good_config_has_nothing_to_complain_of(tmp_path: Path) -> None:
    """Else the tests above would prove less."""
    checkout = make_model_repo(tmp_path / "repo")

    assert json.loads((checkout / "config.json").read_text()) == GOOD
    assert main(["validate", str(checkout)]) == 0
