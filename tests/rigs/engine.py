"""A real engine for tests and the demo: started, waited for, asked, and ended without a trace.

    with ServedModel([str(folder), "--max-model-len", "2048"], env={}, log=tmp_path / "engine.log") as served:
        served.complete("Once", max_tokens=8)

One engine runs at a time on a machine, across processes: the others wait for their turn.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from zenit_hub.maintain.measure import guard

GUARD = Path(guard.__file__)
LOCK_FILE = Path(tempfile.gettempdir()) / f"zenit_hub_engine.{os.getuid()}.lock"
QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# What a caller's shell says about serving is not what the test says.
NOT_INHERITED = ("VLLM_", "ZENIT_", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
GRACE_S = 20.0
POLL_INTERVAL_S = 0.2
SHOWN_LOG_LINES = 30


class EngineFailed(Exception):
    """The engine ended or did not answer in time; the message ends with the last lines of its log."""


class ServedModel:
    """``vllm serve ARGUMENTS`` from the environment of this Python, ready to answer inside the ``with``.

    ``arguments`` begin with the model; ``env`` comes on top of this process's environment (without what is
    said there about serving); everything that the engine writes goes to ``log``.
    """

    def __init__(
        self,
        arguments: list[str],
        env: Mapping[str, str],
        log: Path,
        timeout_s: float = 300,
        *,
        bin_folder: Path = Path(sys.executable).parent,
        turn_timeout_s: float = 3000,
    ) -> None:
        self.log = log
        self.port = 0
        self.process_group = 0
        self.started_after_s = 0.0
        self._command = [str(bin_folder / "vllm"), "serve", *arguments]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED)}
        self._env = {**inherited, **QUIET, **env}
        self._timeout_s = timeout_s
        self._turn_timeout_s = turn_timeout_s
        self._guard: subprocess.Popen[bytes] | None = None
        # Loopback is never behind a proxy, whatever the environment says.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> ServedModel:
        try:
            self._start()
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the engine: SIGTERM, ``GRACE_S`` later SIGKILL to all of it. Harmless when it has ended."""
        guard, self._guard = self._guard, None
        if guard is None or guard.stdin is None or guard.stdout is None:
            return
        guard.stdin.close()  # the guard's sign
        try:
            guard.wait(GRACE_S + 15)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
            if group_is_alive(self.process_group):
                os.killpg(self.process_group, signal.SIGKILL)
        guard.stdout.close()

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def models(self) -> dict[str, Any]:
        """The answer of ``GET /v1/models``."""
        answer: dict[str, Any] = self.request("/v1/models")
        return answer

    @property
    def window(self) -> int:
        """The window that the front end announces, in tokens."""
        return int(self.models()["data"][0]["max_model_len"])

    def complete(self, prompt: str, max_tokens: int = 16) -> str:
        """The same prompt gives the same text: greedy, and always ``max_tokens`` long."""
        body = self._sampling(prompt=prompt, max_tokens=max_tokens)
        return str(self.request("/v1/completions", body)["choices"][0]["text"])

    def chat(self, message: str, max_tokens: int = 16) -> str:
        """The answer to one message, through the checkpoint's chat template."""
        messages = [{"role": "user", "content": message}]
        body = self._sampling(messages=messages, max_tokens=max_tokens)
        return str(self.request("/v1/chat/completions", body)["choices"][0]["message"]["content"])

    def request(self, path: str, body: Mapping[str, object] | None = None, timeout_s: float = 120) -> Any:
        """GET, or POST with a body; the JSON of the answer (``urllib.error.HTTPError`` for a refusal)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data=data, headers={"Content-Type": "application/json"}
        )
        with self._opener.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read() or b"null")

    def _sampling(self, **fields: object) -> dict[str, object]:
        return {"model": self.models()["data"][0]["id"], "temperature": 0, "ignore_eos": True, **fields}

    def _start(self) -> None:
        with turn(self._turn_timeout_s) as lock, self.log.open("wb") as log:
            self.port = free_port()
            engine = [*self._command, "--host", "127.0.0.1", "--port", str(self.port)]
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(GRACE_S), *engine],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._env,
                start_new_session=True,  # Ctrl-C reaches this process alone, which then ends the engine
                pass_fds=[lock.fileno()],  # the turn lasts until the guard has cleaned up
            )
        if self._guard.stdout is not None:
            self.process_group = int(self._guard.stdout.readline() or 0)

    def _wait_until_healthy(self) -> None:
        began_s = time.monotonic()
        while not self._is_healthy():
            if self._guard is None or self._guard.poll() is not None:
                raise EngineFailed(f"The engine ended before it answered.\n{self._log_tail()}")
            if time.monotonic() - began_s > self._timeout_s:
                raise EngineFailed(f"No answer within {self._timeout_s:.0f} s.\n{self._log_tail()}")
            time.sleep(POLL_INTERVAL_S)
        self.started_after_s = time.monotonic() - began_s

    def _is_healthy(self) -> bool:
        try:
            self.request("/health", timeout_s=5)
        except urllib.error.HTTPError as not_yet:
            not_yet.close()
            return False
        except OSError:  # refused or timed out
            return False
        return True

    def _log_tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-SHOWN_LOG_LINES:])


def turn(timeout_s: float) -> IO[bytes]:
    """The file whose exclusive lock is the right to run an engine; whoever inherits it holds it too."""
    lock = LOCK_FILE.open("ab")
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                lock.close()
                raise EngineFailed(f"Another engine kept {LOCK_FILE} for {timeout_s:.0f} s.") from None
            time.sleep(POLL_INTERVAL_S)
        else:
            return lock


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def group_is_alive(process_group: int) -> bool:
    try:
        os.killpg(process_group, 0)
    except ProcessLookupError:
        return False
    return True
