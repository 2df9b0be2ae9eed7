"""A few lines that are started like ``vllm serve MODEL``, for the tests of launching.

What it does besides serving stands in its variable ``SMALL_ENGINE``, as words:

``shared``          makes a file in /dev/shm and maps it
``child``           has a child in another session that does not hear SIGTERM
``stubborn``        does not hear SIGTERM itself
``hang``, ``die``, ``kill``    while loading: says no more, raises, is killed
``short``           answers a completion with a token less than was asked for

A POST gets what its path says:
``/hang``, ``/die``, ``/fail_and_die``, ``/refuse``, ``/fail``, ``/trickle``, ``/no_json``.

Each line of its log that begins with ``made`` names something that must be gone in the end.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VARIABLE = "SMALL_ENGINE"
WINDOW = 64
DOES = os.environ.get(VARIABLE, "").split()
STUBBORN_CHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
NO_ROOM = (
    "ValueError: To serve at least one request with the model's max seq len (132000), 20.14 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (9.97 GiB)."
)


def say(line: str) -> None:
    sys.stderr.write(f"(EngineCore pid={os.getpid()}) INFO 12-01 12:00:00 [small.py:1] {line}\n")
    sys.stderr.flush()


def made(kind: str, name: object) -> None:
    sys.stderr.write(f"made {kind} {name}\n")
    sys.stderr.flush()


def left_behind(log: str) -> list[str]:
    """What of all that engines said to have made is still there."""
    places = {"process": "/proc/", "folder": "", "shared": "/dev/shm/"}
    words = [line.split() for line in log.splitlines() if line.startswith("made ")]
    names = [places[kind] + name for _, kind, name, *_ in words if kind in places]
    return [name for name in names if os.path.exists(name)]


def main() -> None:
    made("process", os.getpid())
    made("folder", os.environ["TMPDIR"])
    if "stubborn" in DOES:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in DOES:
        child = subprocess.Popen([sys.executable, "-c", STUBBORN_CHILD], start_new_session=True)
        made("process", child.pid)
    if "shared" in DOES:
        share()
    say("Starting to load model m...")
    if "hang" in DOES:
        time.sleep(600)
    if "die" in DOES:
        raise SystemExit(NO_ROOM)
    if "kill" in DOES:
        os.kill(os.getpid(), signal.SIGKILL)
    say("GPU KV cache size: 131,072 tokens, Maximum concurrency for 64 tokens per request: 9.00x")
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def share() -> None:
    name = f"zenit_small_{os.getpid()}"
    with open(f"/dev/shm/{name}", "w+b") as file:
        file.truncate(mmap.PAGESIZE)
        globals()["held"] = mmap.mmap(file.fileno(), mmap.PAGESIZE)
    made("shared", name)
    time.sleep(0.15)  # the guard looks twenty times a second


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer({"data": [{"id": sys.argv[1], "max_model_len": WINDOW}]})
        else:
            self.answer(None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/v1/completions":
            self.complete(body)
        elif self.path == "/hang":
            time.sleep(600)
        elif self.path in ("/die", "/fail_and_die"):
            if self.path == "/fail_and_die":
                self.answer({"error": {"message": "no such thing"}}, 500)
                time.sleep(0.1)
            sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory.\n")
            sys.stderr.flush()
            os._exit(1)
        elif self.path == "/trickle":
            self.trickle()
        elif self.path == "/no_json":
            self.send(b"<html>", 200)
        else:
            self.answer({"error": {"message": "no such thing"}}, 500 if self.path == "/fail" else 400)

    def complete(self, body: dict[str, object]) -> None:
        prompts, each = body["prompt"], body["max_tokens"]
        assert isinstance(prompts, list)
        assert isinstance(each, int)
        made("request", json.dumps({**body, "prompt": [prompt[:10] for prompt in prompts]}))
        made("lengths", json.dumps([len(prompt) for prompt in prompts]))
        generated = each * len(prompts) - ("short" in DOES)
        usage = {"prompt_tokens": sum(map(len, prompts)), "completion_tokens": generated}
        self.answer({"choices": [{"index": n} for n in range(len(prompts))], "usage": usage})

    def trickle(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        for _ in range(1000):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.02)

    def answer(self, document: object, status: int = 200) -> None:
        self.send(b"" if document is None else json.dumps(document).encode(), status)

    def send(self, text: bytes, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words: object) -> None:
        """Nothing: the log is the engine's."""


if __name__ == "__main__":
    main()
