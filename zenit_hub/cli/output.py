"""The one place that writes to stdout and stderr: data on stdout, what is said about it on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import TextIO

_COLOURS = {"Error": "31", "Warning": "33", "Hint": "36"}


class Sink:
    """Where a command puts its answer. Colours only on a terminal and never against ``NO_COLOR``."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        # A closed stream is none to Python; the exit status is the answer then.
        self._out: TextIO = out or sys.stdout or io.StringIO()
        self._err: TextIO = err or sys.stderr or io.StringIO()

    def data(self, text: str) -> None:
        """The answer itself, a line or several."""
        _write(self._out, f"{text}\n")

    def json(self, value: object) -> None:
        """The answer as one JSON document; non-finite numbers cannot occur in it."""
        # ASCII: a stranger's bidirectional characters do not reach a terminal, and any locale can take it.
        self._out.write(f"{json.dumps(value, indent=2, allow_nan=False)}\n")

    def error(self, text: str) -> None:
        self._say("Error", text)

    def warning(self, text: str) -> None:
        self._say("Warning", text)

    def hint(self, text: str) -> None:
        self._say("Hint", text)

    def note(self, text: str) -> None:
        """A line on stderr about what goes on, seen at once."""
        _write(self._err, f"{text}\n")
        self._err.flush()

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def _say(self, label: str, text: str) -> None:
        if self._err.isatty() and not os.environ.get("NO_COLOR"):
            label = f"\x1b[{_COLOURS[label]}m{label}\x1b[0m"
        _write(self._err, f"{label}: {text}\n")


def _can_take(stream: TextIO, text: str, errors: str) -> bool:
    """Whether ``stream`` can: one that is ASCII cannot take ``…``, none can take half a surrogate pair."""
    try:
        text.encode(stream.encoding or "utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True


def _write(stream: TextIO, text: str) -> None:
    if not _can_take(stream, text, stream.errors or "strict"):
        encoding = stream.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text)
