"""The one place that writes to stdout and stderr: data on stdout, what is said about it on stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TextIO

_COLOURS = {"Error": "31", "Warning": "33", "Hint": "36"}


class Sink:
    """Where a command puts its answer. Colours only on a terminal and never against ``NO_COLOR``."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self._out = out if out is not None else sys.stdout
        self._err = err if err is not None else sys.stderr

    def data(self, text: str) -> None:
        """The answer itself, a line or several."""
        self._out.write(f"{text}\n")

    def json(self, value: object) -> None:
        """The answer as one JSON document; non-finite numbers cannot occur in it."""
        self._out.write(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")

    def error(self, text: str) -> None:
        self._say("Error", text)

    def warning(self, text: str) -> None:
        self._say("Warning", text)

    def hint(self, text: str) -> None:
        self._say("Hint", text)

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def _say(self, label: str, text: str) -> None:
        if self._err.isatty() and not os.environ.get("NO_COLOR"):
            label = f"\x1b[{_COLOURS[label]}m{label}\x1b[0m"
        self._err.write(f"{label}: {text}\n")
