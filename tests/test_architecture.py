"""The directions of imports, what a start must not pay for, and sizes that a person can read."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.stage import config, needs

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "zenit_hub"
FILES = sorted(PACKAGE.rglob("*.py"))
SCRIPTS = sorted((ROOT / "tools").rglob("*.py"))
LINES_IN_A_FILE, LINES_IN_A_FUNCTION = 350, 60

HEAVY = {
    "huggingface_hub",
    "jinja2",
    "jsonschema",
    "numpy",
    "pynvml",
    "requests",
    "resvg_py",
    "rich",
    "torch",
    "transformers",
    "vllm",
    "yaml",
}
"""What is imported within the function that needs it, or not at all."""

LEAVES = {"budget", "compat", "deadline", "env", "errors", "limits", "resources", "text"}
PURE = {
    "answer",
    "apply",
    "budget",
    "candidate",
    "caller",
    "cautions",
    "decide",
    "decision",
    "doubts",
    "env",
    "export",
    "machine",
    "plan",
    "say",
    "section",
    "visible",
}
"""Functions of facts: they look nothing up and change nothing."""

LOOKING = {
    "importlib",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "socket",
    "subprocess",
    "sys",
    "threading",
    "time",
}


@dataclass(frozen=True)
class Import:
    """One imported module. ``late``: within a function."""

    module: str
    late: bool


def name_of(file: Path) -> str:
    """``section``, ``cli.plan``: the module's name below ``zenit_hub``."""
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts)


class _Imports(ast.NodeVisitor):
    """Collects the imports of a file but those for type checkers alone."""

    def __init__(self) -> None:
        self.found: list[Import] = []
        self.depth = 0

    def visit_Import(self, node: ast.Import) -> None:
        self.found += [Import(alias.name, self.depth > 0) for alias in node.names]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.found += [Import(module, self.depth > 0) for module in _from(node)]

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.generic_visit(node)


@cache
def imports(file: Path) -> tuple[Import, ...]:
    """All imports of a file, within functions too."""
    visitor = _Imports()
    visitor.visit(ast.parse(file.read_text(encoding="utf-8")))
    return tuple(visitor.found)


def _from(node: ast.ImportFrom) -> Iterator[str]:
    """``from zenit_hub import env`` is an import of ``zenit_hub.env``."""
    module = node.module or ""
    for alias in node.names:
        whole = f"{module}.{alias.name}"
        place = ROOT / whole.replace(".", "/")
        yield whole if place.is_dir() or place.with_suffix(".py").is_file() else module


def own(file: Path) -> set[str]:
    """The modules of the package that a file imports, late or not."""
    found = {each.module for each in imports(file) if each.module.startswith("zenit_hub.")}
    return {module.removeprefix("zenit_hub.") for module in found}


def below(part: str) -> list[Path]:
    return [file for file in FILES if name_of(file).startswith(f"{part}.")]


def test_imports_point_one_way() -> None:
    """No module needs one that needs it."""
    graph = {
        name_of(file): {
            each.module.removeprefix("zenit_hub.")
            for each in imports(file)
            if each.module.startswith("zenit_hub.") and not each.late
        }
        for file in FILES
    }

    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", sorted(LEAVES))
def test_the_ground_stands_on_nothing(name: str) -> None:
    """Everything may import it, it imports nothing of ours."""
    assert own(PACKAGE / f"{name}.py") == set()


@pytest.mark.parametrize("name", sorted(PURE))
def test_what_decides_looks_nothing_up(name: str) -> None:
    """Facts come in as values: no files, no environment, no clock."""
    modules = {each.module.partition(".")[0] for each in imports(PACKAGE / f"{name}.py")}

    assert not modules & LOOKING


def test_commands_are_imported_by_commands_alone() -> None:
    """Nothing below ``cli`` knows that there is a terminal."""
    outside = [file for file in FILES if not name_of(file).startswith("cli.")]

    assert {name_of(file) for file in outside if any(m.startswith("cli") for m in own(file))} == set()


def test_the_serving_side_knows_nothing_of_the_maintainers() -> None:
    """``maintain`` is imported by ``cli`` and by itself."""
    serving = [file for file in FILES if not name_of(file).startswith(("cli.", "maintain."))]

    assert {name_of(file) for file in serving if any(m.startswith("maintain") for m in own(file))} == set()
    assert {
        name_of(file) for file in serving if any(i.module.startswith("rich") for i in imports(file))
    } == set()


def test_the_maintainers_side_does_not_touch_the_engines_inside() -> None:
    """Nothing flows back from serving."""
    assert {name_of(f) for f in below("maintain") if any(m.startswith("engine") for m in own(f))} == set()


def test_vllm_is_imported_by_one_package_and_late() -> None:
    """``engine`` alone, each time within a function; its users import it late as well."""
    users = {name_of(file) for file in FILES if any(i.module.split(".")[0] == "vllm" for i in imports(file))}
    early = {
        name_of(file)
        for file in FILES
        for each in imports(file)
        if each.module.startswith("zenit_hub.engine") and not each.late
    }

    assert users
    assert all(name.startswith("engine.") for name in users | early)


@pytest.mark.parametrize("file", FILES, ids=name_of)
def test_nothing_heavy_is_imported_with_a_module(file: Path) -> None:
    """A server's start pays only for what it uses."""
    early = {each.module.partition(".")[0] for each in imports(file) if not each.late}

    assert not early & HEAVY


@pytest.mark.parametrize("file", [f for f in FILES if not name_of(f).startswith("cli.")], ids=name_of)
def test_nothing_below_the_commands_prints_or_ends_the_process(file: Path) -> None:
    """Data goes through one sink, errors are exceptions."""
    calls = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }

    assert not calls & {
        "print",
        "exit",
        "quit",
        "sys.exit",
        "os._exit",
        "sys.stdout.write",
        "sys.stderr.write",
    }


@pytest.mark.parametrize("file", [*FILES, *SCRIPTS], ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_is_read_in_one_sitting_and_a_function_in_one_look(file: Path) -> None:
    """Hard limits; the usual file has 250 lines, the usual function 40."""
    text = file.read_text(encoding="utf-8")
    functions = [
        n for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    long = {f.name for f in functions if (f.end_lineno or 0) - f.lineno >= LINES_IN_A_FUNCTION}

    assert len(text.splitlines()) <= LINES_IN_A_FILE
    assert long == set()


@pytest.mark.parametrize("file", [*FILES, *SCRIPTS], ids=lambda file: str(file.relative_to(ROOT)))
def test_nothing_is_left_undone_or_waved_through(file: Path) -> None:
    """No marks for later, no silenced checker."""
    text = file.read_text(encoding="utf-8")

    assert not [
        mark for mark in ("TODO", "FIXME", "# noqa", "# type: ignore", "pragma: no cover") if mark in text
    ]


# --- what a process has imported


def loaded(code: str, *words: str) -> set[str]:
    """The top-level modules of a fresh interpreter after ``code``."""
    whole = (
        f"{code}\nimport json, sys\nprint(json.dumps(sorted({{n.partition('.')[0] for n in sys.modules}})))"
    )
    child = subprocess.run([sys.executable, "-c", whole, *words], capture_output=True, text=True, check=True)
    return set(json.loads(child.stdout.splitlines()[-1]))


RUN = """
import sys
from zenit_hub.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with a section and a machine to plan for."""
    (tmp_path / "config.json").write_text(json.dumps(config({"p": needs(1)})))
    (tmp_path / "machine.json").write_text("{}")
    return tmp_path


def test_importing_the_package_costs_nothing() -> None:
    """No engine, no Hub, no schema library, no driver."""
    assert not loaded("import zenit_hub") & HEAVY
    assert (
        not loaded("import zenit_hub; zenit_hub.CONFIG_KEY, zenit_hub.ENV_PROFILE, zenit_hub.REPAIR_ID")
        & HEAVY
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        ["plan", "--help"],
        ["doctor", "--help"],
        ["validate", "--help"],
        ["init", "--help"],
    ],
)
def test_help_costs_nothing(words: list[str]) -> None:
    """It is typed to look something up."""
    assert not loaded(RUN, *words) & HEAVY


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_validate_and_plan_load_the_schema_library_and_nothing_heavier(model: Path, words: list[str]) -> None:
    """No engine, no model library, no Hub for a file; no driver for a described machine."""
    validate = loaded(RUN, "validate", str(model / "config.json"), *words)
    plan = loaded(RUN, "plan", str(model), "--machine", str(model / "machine.json"), *words)

    assert (validate | plan) & HEAVY == {"jsonschema"}


def test_importing_the_hook_imports_no_engine() -> None:
    """vLLM's own import comes first, in vLLM's own time."""
    code = "import zenit_hub.plugin, zenit_hub.engine.hook, zenit_hub.engine.config, zenit_hub.api"

    assert not loaded(code) & HEAVY
