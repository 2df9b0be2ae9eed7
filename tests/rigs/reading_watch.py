"""What an order of ``reading_child.py`` does to its process, and what it is made to meet there."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

READER = "zenit_hub.engine.config"
"""The module that asks vLLM for a config on our account; vLLM's own calls do not come through it."""

Answer = dict[str, Any]


class Timed:
    """A function that notes how long its calls took."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.spent_s = 0.0

    def __call__(self, *args: Any) -> Any:
        started = time.monotonic()
        answer = self._function(*args)
        self.spent_s += time.monotonic() - started
        return answer


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


def connecting_times_out() -> None:
    """The Hub's client waits for a connection as long as it was told to, in vain."""
    from huggingface_hub import get_session, set_client_factory

    # httpx2 for the client's version 2, httpx for 1.
    library = importlib.import_module(type(get_session()).__module__.partition(".")[0])

    class Nowhere(library.BaseTransport):
        def handle_request(self, request: Any) -> Any:
            time.sleep(request.extensions["timeout"]["connect"])
            raise library.ConnectTimeout("timed out", request=request)

    set_client_factory(lambda: library.Client(transport=Nowhere()))
