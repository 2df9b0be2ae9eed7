"""The HTTP side: a request as a value, an answer as a value, and the server that carries them."""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message as Headers
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from .refusals import Kind, Refusal
from .world import Reader

JOIN_TIMEOUT_S = 5.0
# How often the accepting thread looks whether it should end; closing a hub takes that long at most.
POLL_INTERVAL_S = 0.02


@dataclass
class Call:
    """One request. ``target`` is the path as it came: ``%2F`` in a revision is not a separator."""

    method: str
    target: str
    query_text: str
    headers: Headers
    body: bytes
    reader: Reader = None

    @cached_property
    def path(self) -> str:
        return unquote(self.target)

    @cached_property
    def _query(self) -> dict[str, list[str]]:
        return parse_qs(self.query_text, keep_blank_values=True)

    def query(self, name: str, default: str = "") -> str:
        return self._query.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        return self.query(name).lower() in {"1", "true"}

    def form(self, name: str) -> list[str]:
        """The values of a field of a form in the body."""
        return parse_qs(self.body.decode()).get(name, [])

    def json(self) -> dict[str, Any]:
        """The JSON object in the body; an empty body is an empty object."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError as error:
            raise Refusal(Kind.INVALID, f"The body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise Refusal(Kind.INVALID, "The body is not a JSON object")
        return value

    @property
    def token(self) -> str | None:
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None


@dataclass
class Answer:
    """What goes back. To HEAD the body is left out, with its length announced all the same."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def json_answer(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Answer:
    """An answer whose body is JSON."""
    head = {"Content-Type": "application/json; charset=utf-8", **(headers or {})}
    return Answer(status, head, json.dumps(value).encode())


def error_answer(status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> Answer:
    """An answer in the Hub's way: the reason in the body, and in the headers for HEAD."""
    one_ascii_line = " ".join(message.split()).encode("ascii", "backslashreplace").decode()
    head = {"X-Error-Message": one_ascii_line, **(headers or {})}
    if code:
        head["X-Error-Code"] = code
    return json_answer({"error": message}, status, head)


# Status for an anonymous reader, status for one with a token, and the Hub's code.
_REFUSED: dict[Kind, tuple[int, int, str]] = {
    Kind.BAD_TOKEN: (401, 401, ""),
    Kind.ANONYMOUS: (401, 401, ""),
    Kind.FORBIDDEN: (403, 403, ""),
    Kind.GATED: (401, 403, "GatedRepo"),
    Kind.NO_REPO: (401, 404, "RepoNotFound"),
    Kind.NO_REVISION: (404, 404, "RevisionNotFound"),
    Kind.NO_ENTRY: (404, 404, "EntryNotFound"),
    Kind.NO_PAGE: (404, 404, ""),
    Kind.STALE_PARENT: (412, 412, ""),
    Kind.CONFLICT: (409, 409, ""),
    Kind.INVALID: (400, 400, ""),
    Kind.RANGE: (416, 416, ""),
}


def refusal_answer(refusal: Refusal, reader: Reader) -> Answer:
    """The Hub's answer for a refusal: who is not known is told 401 where others are told 403 or 404."""
    anonymous, known, code = _REFUSED[refusal.kind]
    return error_answer(anonymous if reader is None else known, refusal.message, code, refusal.headers)


class Server(ThreadingHTTPServer):
    """A server on 127.0.0.1 that leaves neither threads nor sockets behind."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, respond: Callable[[Call], Answer | None]) -> None:
        self.respond = respond
        self.crashes: list[str] = []
        self._connections: dict[threading.Thread, socket.socket] = {}
        super().__init__(("127.0.0.1", port), _Handler)
        self._accepting = threading.Thread(
            target=self.serve_forever, args=(POLL_INTERVAL_S,), name="loopback-hub", daemon=True
        )
        self._accepting.start()

    def server_bind(self) -> None:
        # HTTPServer would look its own name up here, which asks a name server about 127.0.0.1.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections = {thread: sock for thread, sock in self._connections.items() if thread.is_alive()}
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        thread.start()
        self._connections[thread] = request

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up is its own affair; anything else is a bug of the rig, told at the end."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            self.crashes.append(traceback.format_exc())

    def stop(self) -> None:
        """End the accepting thread, then hang up on whoever still keeps a connection."""
        self.shutdown()
        self._accepting.join(JOIN_TIMEOUT_S)
        self.server_close()
        for sock in self._connections.values():
            hang_up(sock)
        for thread in self._connections:
            thread.join(JOIN_TIMEOUT_S)
            if thread.is_alive():
                self.crashes.append(f"{thread.name} still runs {JOIN_TIMEOUT_S:.0f} s after the end")


def hang_up(sock: socket.socket) -> None:
    """End a connection in both directions; one that is over already is fine."""
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


class _Handler(BaseHTTPRequestHandler):
    """Reads a request whole, and writes its answer in one piece."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: Server

    def serve(self) -> None:
        target, _, query = self.path.partition("?")
        call = Call(self.command, target, query, self.headers, self._read_body())
        answer = self.server.respond(call)
        if answer is None:
            self.close_connection = True
            hang_up(self.connection)
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = serve

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size_bytes := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size_bytes))
            self.rfile.readline()
        while self.rfile.readline().strip():
            continue
        return b"".join(chunks)

    def log_message(self, *arguments: object) -> None:
        """Quiet: the hub records its requests itself."""
