"""Run by test_arguments_parity.py in a process of its own: vLLM's own parser on many command lines.

On stdin: [{"words": […], "values": {…} or null}, …], what zenit_hub read (null: it refused). On stdout, last line:
for each, "" where vLLM reads the same, else what it has otherwise. Importing vLLM takes ten seconds, parsing
nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

import yaml

VLLM_ENDS_WITH = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    yaml.YAMLError,
)
"""The tracebacks that malformed command lines and files end in, in vLLM."""


def serve_parser() -> Any:
    """The parser of the ``vllm`` command with ``serve`` in it, as ``vllm.entrypoints.cli.main`` builds it."""
    os.environ.update(
        VLLM_PLUGINS="", VLLM_LOGGING_LEVEL="ERROR", VLLM_TARGET_DEVICE="cpu", VLLM_NO_USAGE_STATS="1"
    )
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    parser.add_argument("-v", "--version", action="version", version="")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    return parser


def parsed(parser: Any, words: list[str]) -> dict[str, Any] | str:
    """The namespace, or why vLLM does not start."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            return vars(parser.parse_args(["serve", "MODEL", *words]))
    except SystemExit:
        return f"refused: {errors.getvalue().strip().splitlines()[-1:]}"
    except VLLM_ENDS_WITH as error:
        return f"refused: {type(error).__name__}: {error}"


def difference(
    theirs: dict[str, Any] | str, ours: dict[str, Any] | None, defaults: dict[str, Any], types: Any
) -> str:
    if isinstance(theirs, str) or ours is None:
        return "" if isinstance(theirs, str) and ours is None else f"vLLM: {theirs}; we: {ours}"
    expected = {**defaults, **{dest: as_vllm(value, types.get(dest)) for dest, value in ours.items()}}
    return "; ".join(
        f"{dest}: vLLM {theirs.get(dest)!r}, we {expected.get(dest)!r}"
        for dest in sorted(expected.keys() | theirs.keys())
        if theirs.get(dest) != expected.get(dest) or type(theirs.get(dest)) is not type(expected.get(dest))
    )


def as_vllm(value: Any, read: Any) -> Any:
    """A ``dict`` as the config class that vLLM makes of it."""
    return read(json.dumps(value)) if isinstance(value, dict) and read else value


def main() -> None:
    parser = serve_parser()
    serve = parser._subparsers._group_actions[0].choices["serve"]
    types = {action.dest: action.type for action in serve._actions}
    types["lora_modules"] = None
    defaults = parsed(parser, [])
    answers = [
        difference(parsed(parser, line["words"]), line["values"], dict(defaults), types)
        for line in json.load(sys.stdin)
    ]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
