"""The generated reference: in step with the program, and complete."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tools import reference
from zenit_hub import env
from zenit_hub.cli.parser import COMMANDS
from zenit_hub.decision import CAUTIONS
from zenit_hub.resources import schema

ROOT = Path(__file__).parent.parent


def page(name: str) -> str:
    return (reference.FOLDER / name).read_text(encoding="utf-8")


def test_it_has_not_drifted() -> None:
    """If it has: ``python -m tools.reference``."""
    assert "\n".join(reference.drift(reference.FOLDER)) == ""


def test_drift_is_shown_and_mended(tmp_path: Path) -> None:
    """A line of another text, a page that is not there, a page that nobody makes."""
    reference.write(tmp_path)
    assert reference.drift(tmp_path) == []

    warnings = tmp_path / "warnings.md"
    warnings.write_text(warnings.read_text().replace("| `yaml_false` |", "| `yaml_true` |"))
    (tmp_path / "cli.md").unlink()
    (tmp_path / "old.md").write_text("old\n")
    found = reference.drift(tmp_path)
    assert [line for line in found if line.startswith("-| `yaml_true` |")]
    assert [line for line in found if line.startswith("+# Command line")]
    assert "-old" in found
    reference.write(tmp_path)
    assert reference.drift(tmp_path) == []


def test_the_check_is_a_command_for_ci() -> None:
    """Exit 0 and nothing said."""
    told = subprocess.run(
        [sys.executable, "-m", "tools.reference", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "", "")


def test_every_command_key_variable_and_code_is_there() -> None:
    assert [name for name in COMMANDS if f"## `zenit-hub {name}`" not in page("cli.md")] == []
    keys = [*schema()["properties"], *schema()["$defs"]["profile"]["properties"]]
    assert [key for key in keys if f"| `{key}`" not in page("profile-keys.md")] == []
    assert [code for code in CAUTIONS if f"| `{code}` |" not in page("warnings.md")] == []
    variables = [value for name, value in vars(env).items() if name.isupper() and is_variable(value)]
    assert len(variables) > 20
    assert [name for name in variables if f"| `{name}` |" not in page("environment.md")] == []


def is_variable(value: object) -> bool:
    return isinstance(value, str) and value.isupper() and value != env.BUS_ORDER


def codes(file: Path) -> set[str]:
    """The codes that stand in calls of ``Caution``, also in either branch of a choice."""
    text = file.read_text("utf-8")
    tree = ast.parse(text if "Caution(" in text else "")
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    first = (call.args[0] for call in calls if ast.unparse(call.func) == "Caution" and call.args)
    return {
        each.value
        for argument in first
        for branch in ([argument.body, argument.orelse] if isinstance(argument, ast.IfExp) else [argument])
        for each in ast.walk(branch)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }


def test_the_codes_that_are_used_are_those_that_are_declared() -> None:
    """One table says what each means; the contract lists the same."""
    used = set().union(*(codes(file) for file in (ROOT / "zenit_hub").rglob("*.py")))

    assert used == set(CAUTIONS)
    assert list(CAUTIONS) == sorted(CAUTIONS)


@pytest.mark.parametrize("sentence", [*CAUTIONS.values()])
def test_a_meaning_is_one_sentence(sentence: str) -> None:
    assert sentence.endswith(".")
    assert sentence[0].isupper() or sentence[0] in "gv"
    assert ". " not in sentence
