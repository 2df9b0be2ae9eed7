"""In a fork of ``hook_server.py``: launches with vLLM's own parser, argument classes and ``vllm serve`` command.

Two things are not real. The platform, which the CPU build never finds to be CUDA: it is set on vLLM's own
``current_platform`` while a launch runs. And, unless a call says otherwise, the ``create_engine_config``
below the hook: it notes what it was given and ends the launch, as vLLM itself could not go on there.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.rigs.hook import FOLDER_VARIABLE, Launch
from tests.rigs.hook_server import OUTPUT
from tests.rigs.nvml import NvmlRig

_PUBLISHED = re.compile(r"(?!ZENIT_RIG_)(ZENIT_.*|PYTORCH_.*ALLOC_CONF|VLLM_RAY_.*)")
_LINE = re.compile(
    r"^(?:\([^)]*\) )?([A-Z]+) \S+ \S+ \[[^]]*\] (ZENIT_MODEL_OWNED_SERVING_PROFILES_V1 .*)$", re.MULTILINE
)

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Started(Exception):
    """vLLM's own ``create_engine_config`` was reached."""

    def __init__(self, note: Launch) -> None:
        super().__init__("the engine would start now")
        self.note = note


@cache
def rig() -> NvmlRig:
    return NvmlRig(Path(os.environ[FOLDER_VARIABLE]))


def cards(*free_bytes: int, total_bytes: int, **keys: Any) -> None:
    """Equal cards that differ in what is free."""
    card = {"name": "Card A", "compute_capability": "9.0", "total_bytes": total_bytes, **keys}
    rig().put({"devices": [{**card, "free_bytes": free} for free in free_bytes]})


def serve(model: str, *words: str, platform: str = "cuda") -> Launch:
    """``vllm serve MODEL WORDS``, from the command line to the engine's configuration."""
    return launched(lambda: serve_parsed(parsed(model, *words)), platform)


def parsed(model: str, *words: str) -> Any:
    """What vLLM's parser makes of the command line; it loads the plug-ins."""
    args = _parser().parse_args(["serve", model, *words])
    args.port = 0  # any free one: two tests may run at once
    return args


def serve_parsed(args: Any) -> None:
    from vllm.entrypoints.cli.serve import ServeSubcommand

    ServeSubcommand.cmd(args)


@cache
def _parser() -> Any:
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser(prog="vllm")
    ServeSubcommand().subparser_init(parser.add_subparsers(required=False, dest="subparser"))
    return parser


def api_server(frozen_args: str, rank: int, count: int, platform: str = "cuda") -> Launch:
    """An API server of a launch, in its own process: made of the launcher's parsed arguments, pickled."""

    def start() -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs

        args = pickle.loads(base64.b64decode(frozen_args))
        made = AsyncEngineArgs.from_cli_args(args)
        made._api_process_count, made._api_process_rank = count, rank
        made.create_engine_config()

    return launched(start, platform)


def frozen(args: Any) -> str:
    """Parsed arguments on their way to another process, as multiprocessing sends them."""
    return base64.b64encode(pickle.dumps(args)).decode()


def engine(model: str, platform: str = "cuda", **fields: Any) -> Launch:
    """``EngineArgs(model=…, …)`` from Python."""

    def start() -> None:
        from vllm.engine.arg_utils import EngineArgs

        EngineArgs(model=model, **fields).create_engine_config()

    return launched(start, platform)


def llm(model: str, platform: str = "cuda", **fields: Any) -> Launch:
    """``LLM(model, …)`` from Python."""

    def start() -> None:
        from vllm.entrypoints.llm import LLM

        LLM(model, **fields)

    return launched(start, platform)


def apart(function: Callable[..., Any], **arguments: Any) -> Any:
    """What ``function`` returns in a fork, of which nothing stays in this process."""
    _parser()
    answer = Path(os.environ[FOLDER_VARIABLE], "apart.json")
    pid = os.fork()
    if pid == 0:
        answer.write_text(json.dumps(function(**arguments)), encoding="utf-8")
        os._exit(0)
    os.waitpid(pid, 0)
    found = json.loads(answer.read_text(encoding="utf-8"))
    answer.unlink()
    return found


def written() -> str:
    """Everything that this process wrote so far, vLLM's own lines included."""
    sys.stdout.flush()
    return Path(os.environ[FOLDER_VARIABLE], OUTPUT).read_text(encoding="utf-8")


def launched(start: Callable[[], object], platform: str) -> Launch:
    """What became of a launch."""
    output = Path(os.environ[FOLDER_VARIABLE], OUTPUT)
    said_before, asked_before = output.stat().st_size, len(rig().calls())
    nothing: Launch = {"fields": None, "env": None, "raised": None, "headless": None}
    with on(platform):
        try:
            start()
            note = nothing
        except Started as started:
            note = {**nothing, **started.note}
        except (ValueError, AssertionError, SystemExit) as error:
            note = {**nothing, "raised": f"{type(error).__name__}: {error}"}
    sys.stdout.flush()
    text = output.read_bytes()[said_before:].decode()
    return {**note, "lines": _LINE.findall(text), "nvml": rig().calls()[asked_before:]}


_vllms_own: list[Callable[..., Any]] = []


def record() -> None:
    """Put the function that ends a launch where vLLM's own is, before any hook comes on top of it."""
    from vllm.engine.arg_utils import EngineArgs

    _vllms_own.append(EngineArgs.create_engine_config)
    stand_in(_end_of_the_launch)


def stand_in(function: Callable[..., Any]) -> None:
    """Put another function there; only before the hook is in."""
    from vllm.engine.arg_utils import EngineArgs

    if "zenit_hub.engine.hook" in sys.modules:
        raise RuntimeError("a hook is in already, and would be lost")
    EngineArgs.create_engine_config = function


def note_of(engine_args: Any, headless: bool = False) -> Launch:
    return {"fields": fields_of(engine_args), "env": published(os.environ), "headless": headless}


def _end_of_the_launch(self: Any, usage_context: Any = None, headless: bool = False) -> Any:
    raise Started(note_of(self, headless))


def vllm_goes_on() -> None:
    """Let vLLM's own function run after all, on the CPU, the one platform on which it can: ``config_hash``."""
    stand_in(_config_on_the_cpu)


def own_config(engine_args: Any) -> Any:
    """vLLM's own config, past every hook."""
    return _vllms_own[0](engine_args)


def _config_on_the_cpu(self: Any, usage_context: Any = None, headless: bool = False) -> Any:
    note = note_of(self, headless)
    with on("cpu"):
        config = _vllms_own[0](self, usage_context, headless)
    raise Started({**note, "config_hash": config.compute_hash()})


def fields_of(engine_args: Any) -> dict[str, Any]:
    return {
        field.name: plain(getattr(engine_args, field.name, None)) for field in dataclasses.fields(engine_args)
    }


def plain(value: Any) -> Any:
    """A value as JSON. Names that vLLM draws by lot (``KVTransferConfig.engine_id``) are not shown."""
    return (
        value if value is None or isinstance(value, (bool, int, float, str)) else _UUID.sub("…", repr(value))
    )


def published(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a launch may publish, without those of the rig."""
    return {name: value for name, value in environment.items() if _PUBLISHED.fullmatch(name)}


@contextmanager
def on(platform: str) -> Iterator[None]:
    """vLLM's platform, as far as what it says of itself goes."""
    from vllm.platforms import PlatformEnum, current_platform

    own = current_platform._enum
    current_platform._enum = PlatformEnum[platform.upper()]
    try:
        yield
    finally:
        current_platform._enum = own
