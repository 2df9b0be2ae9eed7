"""A process with vLLM imported and nothing else done: each request runs in a fork of it, as in a new interpreter.

Importing vLLM takes eight seconds, a fork takes none, and what one request did to vLLM's classes, to
``os.environ`` or to the modules of ``zenit_hub`` is not there for the next. Run by ``hook.py``, which sends
on stdin one line a request, a list of calls ``{"function": "module:name", "arguments": {…}, "environment": {…},
"folder": …}`` that run at the same time; the answer is one line, a list of ``{"answer": …}`` or
``{"failure": "<traceback>"}``.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

OUTPUT = "output.log"
"""In a call's folder: everything that it wrote, vLLM's own logging included."""

ANSWER = "answer.json"

# What `vllm serve` and `LLM` import; no plug-in is loaded by that.
IMPORTED = ("vllm.engine.arg_utils", "vllm.entrypoints.cli.serve", "vllm.entrypoints.llm", "pytest")


def main() -> None:
    # Whatever is written from here on is not an answer: before 0.31 vLLM logs while it is imported.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in IMPORTED:
        importlib.import_module(name)
    if any(name.partition(".")[0] == "zenit_hub" for name in sys.modules):
        sys.exit("zenit_hub was imported before anybody asked for it")
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        calls = json.loads(line)
        running = [forked(call) for call in calls]
        print(json.dumps([outcome(pid, folder) for pid, folder in running]), file=answers, flush=True)
    os._exit(0)  # to take vLLM apart in order would take two seconds


def forked(call: dict[str, Any]) -> tuple[int, Path]:
    """Carry the call out in a process of its own."""
    folder = Path(call["folder"])
    pid = os.fork()
    if pid:
        return pid, folder
    text = ""
    try:
        output = os.open(folder / OUTPUT, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(call["environment"])
        importlib.import_module("tests.rigs.hook_child").record()
        module, _, name = call["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        text = json.dumps({"answer": function(**call["arguments"])})
    finally:
        # Whatever came out, it must not get into the server's own loop.
        (folder / ANSWER).write_text(
            text or json.dumps({"failure": traceback.format_exc()}), encoding="utf-8"
        )
        os._exit(0)


def outcome(pid: int, folder: Path) -> dict[str, Any]:
    """Wait for the call and read what it left."""
    _, status = os.waitpid(pid, 0)
    try:
        answer: dict[str, Any] = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"failure": f"the process ended with wait status {status} and left no answer"}
    return answer


if __name__ == "__main__":
    main()
