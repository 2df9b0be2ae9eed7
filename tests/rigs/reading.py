"""Reading models in processes of their own: fresh ones for each order, which begin with vLLM imported.

    with Reader(folder, hub.environment(home=folder), ENGINE) as reader:
        told = reader.ask(read("org/model", revision="q4"))
    assert told.section["default_profile"] == "m256k"

What one order leaves in its process (caches, ``os.environ``, modules) is not there for the next.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rigs.engine import NOT_INHERITED, QUIET
from tests.rigs.reading_child import Order

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ("vllm.engine.arg_utils", "vllm.transformers_utils.config", "vllm.v1.executor.abstract")
"""What a launch imports until its configuration is made; it takes ten seconds."""

COMMANDS = (
    "zenit_hub.cli.plan",
    "zenit_hub.cli.validate",
    "zenit_hub.maintain.validate",
    "huggingface_hub.file_download",
)
"""What ``zenit-hub`` imports until it asks the Hub."""

LOGGER = "vllm.zenit_hub"
TIMEOUT_S = 180.0

_CASES = ROOT / "tests" / "data" / "field-cases.jsonl"
P3: dict[str, Any] = next(
    json.loads(line)["config"]
    for line in _CASES.read_text(encoding="utf-8").splitlines()
    if '"id": "C1-03a"' in line
)
"""A config with three rated profiles: s32k (the default), m256k and l1m."""

SECTION: dict[str, Any] = P3["lomonosov_serving_profiles"]


def config_file(**changes: Any) -> bytes:
    """P3 as a ``config.json``, with changes at its top level; ``None`` leaves a key out."""
    config = {**P3, **changes}
    return json.dumps({key: value for key, value in config.items() if value is not None}).encode()


@dataclass(frozen=True, slots=True)
class Told:
    """What one order brought. ``output`` is all that its process wrote."""

    answer: Mapping[str, Any]
    output: str

    def __getitem__(self, key: str) -> Any:
        return self.answer[key]

    @property
    def section(self) -> Any:
        """The section of the config that was found; ``None`` where there is none."""
        config = self["config"] or {}
        return config.get("lomonosov_serving_profiles") or config.get("serving_profiles")

    @property
    def lines(self) -> list[str]:
        """Our lines, without the level."""
        return [text for name, _, text in self["records"] if name == LOGGER]

    @property
    def warnings(self) -> list[str]:
        return [text for name, level, text in self["records"] if name == LOGGER and level == "WARNING"]

    @property
    def errors(self) -> list[str]:
        """The lines at ERROR or above, whoever wrote them."""
        return [text for _, level, text in self["records"] if level in ("ERROR", "CRITICAL")]

    @property
    def said(self) -> str:
        """Everything that anybody could read of it, the answer included."""
        return json.dumps(self.answer, default=str, ensure_ascii=False) + self.output


def read(model: str, **arguments: Any) -> Order:
    """``zenit_hub.engine.config.read_config`` for ``EngineArgs(model, …)``."""
    return _with_arguments("read", model, arguments)


def hook(model: str, **arguments: Any) -> Order:
    """``EngineArgs(model, …).create_engine_config()`` without vLLM's own part of it."""
    return _with_arguments("hook", model, arguments)


def engine(model: str, **arguments: Any) -> Order:
    """``EngineArgs(model, …).create_engine_config()``."""
    return _with_arguments("engine", model, arguments)


def _with_arguments(do: str, model: str, arguments: dict[str, Any]) -> Order:
    environ = arguments.pop("environ", {})
    return {"do": do, "arguments": {"model": model, **arguments}, "environ": environ}


def cli(*words: str, environ: Mapping[str, str] | None = None) -> Order:
    """``zenit-hub WORDS``."""
    return {"do": "cli", "words": words, "environ": environ or {}}


class Reader:
    """A process that reads on order. ``environment`` comes on top of this one's, without what serves here."""

    def __init__(self, folder: Path, environment: Mapping[str, str], modules: tuple[str, ...] = ()) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._orders = 0
        hidden = (*NOT_INHERITED, "HF_", "HUGGING")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        self._errors = (folder / "reader.log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.rigs.reading_child", str(folder), *modules],
            cwd=ROOT,
            env={**inherited, **QUIET, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, order: Order) -> Told:
        return self.together(order)[0]

    def together(self, *orders: Order) -> list[Told]:
        """The same for several orders at the same time."""
        return self.begin(*orders)()

    def begin(self, *orders: Order) -> Callable[[], list[Told]]:
        """Have the orders carried out; what they brought comes when it is asked for."""
        logs = [self._folder / f"order-{self._orders + number}.log" for number in range(len(orders))]
        self._orders += len(orders)
        sent = [{**order, "log": str(log)} for order, log in zip(orders, logs, strict=True)]
        self._process.stdin.write(json.dumps(sent) + "\n")
        self._process.stdin.flush()

        def told() -> list[Told]:
            return [self._told(*one) for one in zip(orders, self._answers(), logs, strict=True)]

        return told

    def _answers(self) -> list[Any]:
        ready, _, _ = select.select([self._process.stdout], [], [], TIMEOUT_S)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"no answer:\n{self._errors.read().decode()[-4000:]}")
        answers: list[Any] = json.loads(line)
        return answers

    @staticmethod
    def _told(order: Order, answer: Any, log: Path) -> Told:
        output = log.read_text(encoding="utf-8", errors="replace")
        assert answer is not None, f"{order} ended its process:\n{output[-4000:]}"
        return Told(answer, output)


@dataclass(frozen=True, slots=True)
class Readers:
    """With vLLM: one as usual, and one with ``HF_HUB_OFFLINE=1``."""

    online: Reader
    offline: Reader
