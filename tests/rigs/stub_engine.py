"""An engine without a model: started, asked and ended like ``vllm serve MODEL``, and short of memory like it.

    order = (sys.executable, str(STUB_ENGINE))          # in the place of ("vllm", "serve")
    environment = Stub(weights_bytes=512 * MIB, fail="hang").environment()

It is two kinds of process, as vLLM is: this one answers HTTP, ``stub_worker.py`` (one a rank) holds the memory: on
the cards of the CUDA rig, or of the host. Its log has vLLM's words. The values of the profile that
``ZENIT_SERVING_PROFILE`` names are read from the model folder's ``config.json``; the command line comes before them.
Standard library only, so that a start takes a tenth of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, fields, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MIB = 2**20
STUB_ENGINE = Path(__file__)
VARIABLE = "ZENIT_RIG_STUB_ENGINE"
REPORT_VARIABLE = "ZENIT_MEASURE_REPORT"
SECTION_KEYS = ("lomonosov_serving_profiles", "serving_profiles")
ORDERLY_END_S = 0.5
RANKS = (("tensor_parallel_size", 1), ("pipeline_parallel_size", 1))


@dataclass(frozen=True)
class Stub:
    """What it takes and how it fails. Bytes are a rank's.

    ``memory``: ``cuda`` (the rig's libcuda.so.1) or ``host``. ``needed_kv_bytes``: one request of the whole window.
    ``peak_bytes``: taken while profiling and kept, as by an allocator that caches. ``cold_bytes``: more of it where
    the cache under ``VLLM_CACHE_ROOT`` is empty. ``request_bytes``: on top while a request runs that fills half
    the window. ``shared_bytes``: a file in ``/dev/shm`` that the workers map and that an orderly end removes.

    ``fail``: ``hang`` (silent, in ``fail_phase``), ``die`` (a traceback), ``kill`` (SIGKILL, as the kernel does when
    memory is out), ``oom``, ``disturbed``, ``kv_cache_too_small``, ``no_kv_cache_memory``, ``too_few_state_blocks``,
    ``short`` (answers with a token too few). ``fail_phase``: ``start``, ``loading``, ``profiling``, ``kv_cache``,
    ``graphs``, ``workload``. ``fail_boots``: only that many starts of each profile fail, counted in ``counter``, a
    folder; ``None``: all. ``ignore_term``: TERM is not heard. ``orphans``: workers hear neither TERM nor their
    parent's end. ``profiles``: other values for the profile of that name.
    """

    memory: str = "cuda"
    weights_bytes: int = 256 * MIB
    needed_kv_bytes: int = 128 * MIB
    peak_bytes: int = 64 * MIB
    cold_bytes: int = 0
    graphs_bytes: int = 16 * MIB
    request_bytes: int = 32 * MIB
    shared_bytes: int = 0
    pace_s: float = 0.05
    start_s: float = 0.0
    answer_s: float = 0.02
    fail: str | None = None
    fail_phase: str | None = None
    fail_boots: int | None = None
    counter: str | None = None
    ignore_term: bool = False
    orphans: bool = False
    version: str = "0.32.0"
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """What to merge into the engine's environment."""
        return {VARIABLE: json.dumps(asdict(self))}

    def for_profile(self, name: str) -> Stub:
        return replace(self, **self.profiles.get(name, {}))

    def of_this_boot(self, profile: str) -> Stub:
        """This one, or one that does not fail, if enough starts have failed."""
        if self.fail is None or self.fail_boots is None or self.counter is None:
            return self
        with (Path(self.counter) / f"boots-{profile or 'none'}").open("ab") as marks:
            marks.write(b".")
            marks.flush()
            return self if marks.tell() <= self.fail_boots else replace(self, fail=None)


def from_environment() -> Stub:
    known = {each.name for each in fields(Stub)}
    given = json.loads(os.environ.get(VARIABLE) or "{}")
    return Stub(**{name: value for name, value in given.items() if name in known})


def log(text: str, who: str = "APIServer", level: str = "INFO") -> None:
    """A line as vLLM's logger writes it."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    for line in text.splitlines():
        sys.stderr.write(f"({who} pid={os.getpid()}) {level} {stamp} [stub_engine.py:1] {line}\n")
    sys.stderr.flush()


def gib(size_bytes: float) -> str:
    """As vLLM's ``format_gib``."""
    return str(round(size_bytes / 2**30, 2))


class WorkerDied(Exception):
    """A worker ended; the number is its exit status."""


class Workers:
    """The ranks, asked all together."""

    def __init__(self, setup: dict[str, Any], ranks: int) -> None:
        self._lock = threading.Lock()
        script = str(STUB_ENGINE.with_name("stub_worker.py"))
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.processes = [
            subprocess.Popen([sys.executable, "-S", script, json.dumps({**setup, "rank": rank})], **pipes)
            for rank in range(ranks)
        ]

    def do(self, what: str, **values: Any) -> list[dict[str, Any]]:
        with self._lock:
            for process in self.processes:
                assert process.stdin is not None
                try:
                    process.stdin.write(json.dumps({"do": what, **values}) + "\n")
                    process.stdin.flush()
                except BrokenPipeError:
                    raise WorkerDied(process.wait()) from None
            return [self._answer(process) for process in self.processes]

    @staticmethod
    def _answer(process: subprocess.Popen[str]) -> dict[str, Any]:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise WorkerDied(process.wait())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self, *, wait: bool) -> None:
        """In order: told, then terminated. Who hears neither keeps this process waiting."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes if wait else ():
            try:
                process.wait(ORDERLY_END_S)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()


def profile_values(model: str, name: str) -> dict[str, Any]:
    """The forced profile's values, from the folder's config, or from the last one of a Hub repo in the cache."""
    cache = Path(os.environ.get("HF_HUB_CACHE", ""), f"models--{model.replace('/', '--')}", "snapshots")
    cached = sorted(cache.glob("*/config.json"), key=lambda file: file.lstat().st_mtime)
    try:
        file = cached[-1] if cached else Path(model, "config.json")
        config = json.loads(file.read_text(encoding="utf-8"))
        section = next(config[key] for key in SECTION_KEYS if key in config)
        values: dict[str, Any] = section["profiles"][name]
    except (OSError, ValueError, KeyError, StopIteration):
        return {}
    return values


def launch_values(words: list[str]) -> dict[str, Any]:
    """What the launch is: command line before profile before vLLM's defaults."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    for name, kind in (
        ("kv-cache-memory-bytes", int), ("max-model-len", int), ("max-num-seqs", int),
        ("max-num-batched-tokens", int), ("gpu-memory-utilization", float), ("served-model-name", str),
        ("tensor-parallel-size", int), ("pipeline-parallel-size", int),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind)
    typed, _ = parser.parse_known_args(words[1:] if words[:1] == ["serve"] else words)
    values = {name: value for name, value in vars(typed).items() if value is not None}
    declared = profile_values(typed.model, os.environ.get("ZENIT_SERVING_PROFILE", ""))
    return {"max_model_len": 2048, "max_num_seqs": 256, **declared, **values}


class Server:
    """The front end: starts the workers, answers HTTP, ends them."""

    def __init__(self, words: list[str]) -> None:
        self.values = launch_values(words)
        profile = os.environ.get("ZENIT_SERVING_PROFILE", "")
        self.stub = from_environment().for_profile(profile).of_this_boot(profile)
        self.window = int(self.values["max_model_len"])
        self.workers: Workers | None = None

    def serve(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN if self.stub.ignore_term else self._leave)
        try:
            self._start()
            return self._answer()
        except WorkerDied as died:
            log(
                "RuntimeError: Engine core initialization failed. See root cause above. "
                f"Failed core proc(s): {{'EngineCore': {died}}}",
                level="ERROR",
            )
            return 1
        except SystemExit:
            log("Shutting down")
            return 0
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            if self.workers:
                self.workers.end(wait=not self.stub.orphans)

    @staticmethod
    def _leave(_number: int, _frame: object) -> None:
        raise SystemExit

    def _start(self) -> None:
        log(f"vLLM API server version {self.stub.version}")
        log(
            f"Initializing a V1 LLM engine (v{self.stub.version}) with config: model='{self.values['model']}'"
        )
        time.sleep(self.stub.start_s)
        ranks = 1
        for name, default in RANKS:
            ranks *= int(self.values.get(name, default))
        setup = {
            "stub": asdict(self.stub),
            "values": self.values,
            "forced": "ZENIT_SERVING_PROFILE" in os.environ,
        }
        self.workers = Workers(setup, ranks)
        for step in ("start", "loading", "profiling", "kv_cache", "graphs"):
            self.workers.do(step)
            time.sleep(self.stub.pace_s)

    def _answer(self) -> int:
        address = (self.values["host"], self.values["port"])
        server = ThreadingHTTPServer(address, _handler(self))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        log(f"Starting vLLM server on http://{address[0]}:{address[1]}")
        log("Application startup complete.")
        while True:
            for process in self.workers.processes if self.workers else []:
                if process.poll() is not None:
                    log(
                        "EngineDeadError: EngineCore encountered an issue. See stack trace for the root cause."
                    )
                    return 1
            time.sleep(0.05)

    # ---- what is asked

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/health":
            return 200, None
        if path == "/version":
            return 200, {"version": self.stub.version}
        if path == "/v1/models":
            name = self.values.get("served_model_name") or self.values["model"]
            return 200, {"object": "list", "data": [{"id": name, "max_model_len": self.window}]}
        return 404, {"detail": "Not Found"}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        if self.workers is None:
            return 503, None
        if path == "/collective_rpc":
            return 200, {"results": self.workers.do("report", method=body.get("method"))}
        if path == "/v1/completions":
            return self._complete(body)
        return 404, {"detail": "Not Found"}

    def _complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        prompts = body.get("prompt", "")
        if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
            prompts = [prompts]
        asked = int(body.get("max_tokens", 16))
        sizes = [len(prompt) for prompt in prompts]
        if max(sizes) + asked > self.window:
            message = f"This model's maximum context length is {self.window} tokens. However, you requested {asked} "
            message += f"output tokens and your prompt contains at least {max(sizes)} input tokens."
            return 400, {"error": {"message": message, "type": "BadRequestError", "code": 400}}
        try:
            self.workers and self.workers.do("workload", tokens=max(sizes) + asked)
        except WorkerDied:
            return 500, {"error": {"message": "EngineCore encountered an issue.", "code": 500}}
        time.sleep(self.stub.answer_s)
        given = asked - (self.stub.fail == "short")
        usage = {"prompt_tokens": sum(sizes), "completion_tokens": given * len(sizes)}
        usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
        choices = [{"index": i, "text": " a" * given, "finish_reason": "length"} for i in range(len(sizes))]
        return 200, {"object": "text_completion", "choices": choices, "usage": usage}


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*server.get(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self._send(*server.post(self.path, json.loads(body or b"{}")))

        def _send(self, status: int, answer: Any) -> None:
            data = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing: the log is the engine's."""

    return Handler


if __name__ == "__main__":
    raise SystemExit(Server(sys.argv[1:]).serve())
