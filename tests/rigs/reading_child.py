"""Reads models, each order in a fork: ``python -m tests.rigs.reading_child FOLDER [MODULE …]``.

The modules are imported once, before the first fork; what an order does to its process is not there for the
next. A line on stdin is a list of orders that run at the same time, ``{"do": …, "environ": {…}, "log": PATH}``
and arguments; the line that answers it is a list of answers. What else is written goes to the order's log.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.rigs.reading_watch import Answer, Client, Journal, Timed, connecting_times_out, watch_get_config

Order = Mapping[str, Any]


def read(order: Order) -> Answer:
    """What ``read_config`` finds."""
    from zenit_hub.engine.config import Source, read_config

    source = Source.of(engine_args(order))
    timed, client = Timed(read_config), Client()
    with client:
        found, trouble = timed(source)
    config = found.config
    return {
        "read_s": timed.spent_s,
        "client_calls": client.calls,
        "config": dict(config) if isinstance(config, Mapping) else None,
        "why": getattr(config, "why", None),
        "repo": found.repo,
        "commit": found.commit,
        "trouble": trouble,
    }


def hook(order: Order) -> Answer:
    """What the hook makes of ``EngineArgs``; vLLM's own function below it has nothing to do."""
    from vllm.engine.arg_utils import EngineArgs

    from zenit_hub.engine import hook as module

    reached: list[Any] = []
    EngineArgs.create_engine_config = lambda self, *_, **__: reached.append(self)
    module.read_config = timed = Timed(module.read_config)
    made = engine_args(order)
    before = dict(vars(made))
    made.create_engine_config()
    changed = {name: value for name, value in vars(made).items() if value is not before[name]}
    return {"set": changed, "model": made.model, "vllm_goes_on": reached == [made], "read_s": timed.spent_s}


def engine(order: Order) -> Answer:
    """A launch as far as its whole configuration, by whatever plug-ins there are."""
    made = engine_args(order).create_engine_config()
    return {"window": made.model_config.max_model_len, "model": made.model_config.model}


def engine_args(order: Order) -> Any:
    """``EngineArgs`` as the order has it; the plug-ins are loaded by making it."""
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs(**order["arguments"])


def cli(order: Order) -> Answer:
    """One call of ``zenit-hub``."""
    from zenit_hub.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(order["words"])
    return {"status": status, "out": out.getvalue(), "err": err.getvalue()}


ORDERS: Mapping[str, Callable[[Order], Answer]] = {"read": read, "hook": hook, "engine": engine, "cli": cli}


def carried_out(order: Order) -> Answer:
    """The answer with what carrying out the order did to this process."""
    os.environ.update(order["environ"])
    before, modules = dict(os.environ), set(sys.modules)
    answer: Answer = {}
    journal = Journal()
    started = time.monotonic()
    with journal:
        if order["do"] != "cli":
            watch_get_config(journal, loses_section=order.get("get_config_loses_section", False))
        if order.get("connecting_times_out"):
            connecting_times_out()
        answer = ORDERS[order["do"]](order)
    after = dict(os.environ)
    names = before.keys() | after.keys()
    return {
        **answer,
        "seconds": time.monotonic() - started,
        "raised": journal.raised,
        "records": journal.records,
        "get_config": journal.get_config,
        "environ": {name: after.get(name) for name in names if before.get(name) != after.get(name)},
        "modules": sorted(set(sys.modules) - modules),
    }


def forked(order: Order, answer: Path) -> int:
    """Carry the order out in a process of its own, whose number is returned."""
    pid = os.fork()
    if pid:
        return pid
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    answer.write_text(json.dumps(carried_out(order), default=str), encoding="utf-8")
    os._exit(0)


def main() -> None:
    folder = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for name in sys.argv[2:]:
        importlib.import_module(name)
    for line in sys.stdin:
        orders = json.loads(line)
        files = [folder / f"answer-{number}.json" for number in range(len(orders))]
        for pid in [forked(order, file) for order, file in zip(orders, files, strict=True)]:
            os.waitpid(pid, 0)
        told = [json.loads(file.read_text(encoding="utf-8")) if file.exists() else None for file in files]
        for file in files:
            file.unlink(missing_ok=True)
        answers.write(json.dumps(told) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
