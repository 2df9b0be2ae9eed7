"""JSON over HTTP to an engine on this machine. No proxy takes part, whatever the environment says."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from zenit_hub.text import printable

HOST = "127.0.0.1"
_PIECE_BYTES = 65536


class Refused(Exception):
    """An answer with another status than 200; ``str()`` is what the server said."""

    def __init__(self, status: int, said: str) -> None:
        self.status = status
        super().__init__(said)


def ask(port: int, path: str, body: Mapping[str, Any] | None, timeout_s: float) -> Any:
    """GET, or POST with a body; the JSON of the whole answer, ``None`` for an empty one.

    Raises :class:`Refused`, ``TimeoutError`` after ``timeout_s`` in all, ``OSError`` or ``http.client.HTTPException``
    where the connection breaks, ``ValueError`` for an answer that is no JSON.
    """
    deadline_s = time.monotonic() + timeout_s
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(
            "GET" if data is None else "POST", path, data, {"Content-Type": "application/json"}
        )
        connected = connection.sock
        _allow(connected, deadline_s)
        pieces: list[bytes] = []
        with connection.getresponse() as answer:
            while not pieces or pieces[-1]:
                _allow(connected, deadline_s)
                pieces.append(answer.read1(_PIECE_BYTES))
    finally:
        connection.close()
    text = b"".join(pieces)
    if answer.status != 200:
        raise Refused(answer.status, _said(text))
    return json.loads(text or b"null")


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


def _allow(connected: socket.socket, deadline_s: float) -> None:
    """A server that sends a byte now and then has no more time than one that sends nothing."""
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    if connected.fileno() >= 0:  # it closes itself with the last byte
        connected.settimeout(left_s)


def _said(text: bytes) -> str:
    """The message in an error of the OpenAI form, else the text."""
    try:
        message = json.loads(text)
        message = message.get("error", message)
        message = message["message"]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        message = text.decode("utf-8", errors="replace")
    return printable(str(message).strip(), limit=300)
