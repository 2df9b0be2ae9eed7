"""The hook in the real vLLM, in processes of its own: what a test does with them from outside.

def two_launches(model: str) -> list[Launch]:  # runs in the child, with tests.rigs.hook_child
    cards(33285996544, total_bytes=33683281019)
    return [serve(model), serve(model, "--max-num-seqs", "2")]

first, second = hook.run(two_launches, model=config_folder(tmp_path, P3))
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rigs.engine import NOT_INHERITED, QUIET
from tests.rigs.hook_server import OUTPUT
from tests.rigs.nvml import LOG_VARIABLE, STATE_VARIABLE, compiled_library

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 180.0
CALL_TIMEOUT_S = 120.0
FOLDER_VARIABLE = "ZENIT_RIG_HOOK_FOLDER"
"""Of one call: where it may write, where the state of its cards and its output are."""
SWITCH_VARIABLE = "ZENIT_RIG_HOOK_SWITCH"
"""A folder in which an empty file of the library's name takes the library away, for as long as it is there."""

CARD_VARIABLES = ("CUDA_", "NVIDIA_", "HIP_", "HF_", "LD_LIBRARY_PATH", "RAY_")
FIELD_CASES = ROOT / "tests" / "data" / "field-cases.jsonl"

Launch = dict[str, Any]
"""``fields``: of the ``EngineArgs`` that vLLM's own function got, None where it was not reached; ``env``: the
variables about serving as that function met them; ``lines``: the hook's, ``[level, text]``; ``raised``: what came
out, None where vLLM's function was reached; ``nvml``: the library's functions that were called; ``headless``."""


class CallFailed(AssertionError):
    """The function raised, or its process died; the message is its traceback and what was written."""


class HookServer:
    """A process with vLLM imported, and forks of it: each call meets a vLLM into which nothing was loaded yet.

    NVML's library is the rig's; a call puts its cards in place itself. ``platform`` is CPU until it says
    otherwise: of a machine, the platform is the one thing that the CPU build cannot be given from outside.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = 0
        switch = folder / "switch"
        switch.mkdir(parents=True)
        hidden = (*NOT_INHERITED, *CARD_VARIABLES)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self._errors = (folder / "server.log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.hook_server"],
            cwd=ROOT,
            env={
                **inherited,
                **QUIET,
                # vLLM then asks no card which platform this is; a CPU build ends with CPU in any case.
                "VLLM_TARGET_DEVICE": "cpu",
                "HF_HOME": str(folder / "hub"),
                "LD_LIBRARY_PATH": f"{switch}:{compiled_library().parent}",
                SWITCH_VARIABLE: str(switch),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        self._read(START_TIMEOUT_S)

    def __enter__(self) -> HookServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # a call that hangs with it
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def run(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """What ``function`` returns in a process of its own. Arguments and answer are JSON."""
        return self.together((function, arguments))[0]

    def together(self, *calls: tuple[Callable[..., Any], Mapping[str, Any]]) -> list[Any]:
        """The same of several processes that run at the same time, and end before this returns."""
        requests = [self._request(function, arguments) for function, arguments in calls]
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        outcomes = self._read(CALL_TIMEOUT_S)
        for request, outcome in zip(requests, outcomes, strict=True):
            if "failure" in outcome:
                output = Path(request["folder"]) / OUTPUT
                raise CallFailed(f"{outcome['failure']}\n{output.read_text(encoding='utf-8')[-4000:]}")
        return [outcome["answer"] for outcome in outcomes]

    def _request(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        self._calls += 1
        folder = self._folder / f"call-{self._calls}"
        folder.mkdir()
        return {
            "function": f"{function.__module__}:{function.__qualname__}",
            "arguments": arguments,
            "folder": str(folder),
            "environment": {
                FOLDER_VARIABLE: str(folder),
                STATE_VARIABLE: str(folder / "nvml.state"),
                LOG_VARIABLE: str(folder / "nvml.log"),
            },
        }

    def _read(self, timeout_s: float) -> Any:
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._errors.seek(0)
            raise CallFailed(f"no answer in {timeout_s:g} s:\n{self._errors.read().decode()[-4000:]}")
        return json.loads(line)


def field_config(case: str) -> dict[str, Any]:
    """The ``config.json`` of a field case; that of ``C1-03a`` holds the profiles s32k, m256k and l1m."""
    lines = FIELD_CASES.read_text(encoding="utf-8").splitlines()
    config: dict[str, Any] = next(found["config"] for found in map(json.loads, lines) if found["id"] == case)
    return config


def config_folder(folder: Path, config: Mapping[str, Any]) -> str:
    """A model's folder, as a launch names it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


def codes(launch: Launch) -> list[str]:
    """The codes of the warnings, in the order in which they were said."""
    return re.findall(r"\[(\w+)\]$", "\n".join(line for _, line in launch["lines"]), re.MULTILINE)


def choice(launch: Launch) -> tuple[str, str] | None:
    """``(profile, reason)`` as the log has it; None where no profile is spoken of."""
    found = re.search(r" profile (\S+) \((\w+)\): window", said(launch))
    return (found[1], found[2]) if found else None


def said(launch: Launch) -> str:
    """All lines of the hook, one below the other."""
    return "\n".join(line for _, line in launch["lines"])


def taken(launch: Launch, *names: str) -> list[Any]:
    """These fields, as the engine gets them."""
    return [launch["fields"][name] for name in names]
