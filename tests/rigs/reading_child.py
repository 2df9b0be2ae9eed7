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
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

READER = "zenit_hub.engine.config"
"""The module that asks vLLM for a config on our account; vLLM's own calls do not come through it."""

Order = Mapping[str, Any]
Answer = dict[str, Any]


def read(order: Order) -> Answer:
    """What ``read_config`` finds."""
    from zenit_hub.engine.config import Source, read_config

    source = Source.of(engine_args(order))
    client = Client()
    started = time.monotonic()
    with client:
        found, trouble = read_config(source)
    config = found.config
    return {
        "read_s": time.monotonic() - started,
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
    spent_s: list[float] = []
    original = module.read_config

    def read_config(source: Any) -> Any:
        started = time.monotonic()
        found = original(source)
        spent_s.append(time.monotonic() - started)
        return found

    module.read_config = read_config
    made = engine_args(order)
    before = dict(vars(made))
    made.create_engine_config()
    changed = {name: value for name, value in vars(made).items() if value is not before[name]}
    return {"set": changed, "model": made.model, "vllm_goes_on": reached == [made], "read_s": sum(spent_s)}


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


class Client:
    """Counts the calls into the Hub's client, this thread's and those of threads that begin meanwhile."""

    def __init__(self) -> None:
        self.calls = 0

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").partition(".")[0] == "huggingface_hub":
            self.calls += 1

    def __enter__(self) -> None:
        threading.setprofile(self._count)
        sys.setprofile(self._count)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)


@dataclass
class Journal:
    """Of one order: the log records as (logger, level, text), and our calls of vLLM's ``get_config``."""

    records: list[tuple[str, str, str]] = field(default_factory=list)
    get_config: list[Answer] = field(default_factory=list)
    raised: str | None = None

    def __enter__(self) -> Journal:
        make_record = logging.getLogRecordFactory()

        def noted(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = make_record(*args, **kwargs)
            self.records.append((record.name, record.levelname, record.getMessage()))
            return record

        logging.setLogRecordFactory(noted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Whatever it is, the test wants to see it."""
        self.raised = None if error is None else f"{type(error).__name__}: {error}"
        return True


def carried_out(order: Order) -> Answer:
    """The answer with what carrying out the order did to this process."""
    os.environ.update(order["environ"])
    before, modules = dict(os.environ), set(sys.modules)
    answer: Answer = {}
    journal = Journal()
    started = time.monotonic()
    with journal, contextlib.ExitStack() as stack:
        if order["do"] != "cli":
            watch_get_config(journal, loses_section=order.get("get_config_loses_section", False))
        if order.get("connecting_times_out"):
            stack.enter_context(connecting_times_out())
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


def watch_get_config(journal: Journal, *, loses_section: bool) -> None:
    """Note each call that comes through our reader. What older vLLM makes of it may lack the section."""
    from vllm.transformers_utils import config

    original = config.get_config

    def get_config(model: Any, trust_remote_code: Any, revision: Any = None, **more: Any) -> Any:
        ours = is_called_by(READER)
        before = dict(os.environ)
        called = {"model": str(model), "trust_remote_code": trust_remote_code, "revision": revision, **more}
        if ours:
            journal.get_config.append(called)
        answer = original(model, trust_remote_code, revision, **more)
        called["left"] = sorted(name for name in os.environ if os.environ[name] != before.get(name))
        if ours and loses_section:
            del answer.lomonosov_serving_profiles
        return answer

    config.get_config = get_config


def is_called_by(module: str) -> bool:
    """Whether a function of ``module`` is on the stack."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == module:
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def connecting_times_out() -> Iterator[None]:
    """The Hub's client waits for a connection as long as it was told to, in vain."""
    from huggingface_hub import get_session, set_client_factory

    # httpx2 for the client's version 2, httpx for 1.
    library = importlib.import_module(type(get_session()).__module__.partition(".")[0])

    class Nowhere(library.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            time.sleep(request.extensions["timeout"]["connect"])
            raise library.ConnectTimeout("timed out", request=request)

    set_client_factory(lambda: library.Client(transport=Nowhere()))
    yield


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
