"""The one place that writes to stdout and stderr: data on stdout, what is said about it on stderr."""

from __future__ import annotations

import io
import json
import os
import sys
from typing import Literal, TextIO

from zenit_hub import env
from zenit_hub.cli.github import annotation, in_a_workflow, in_checkout, inert
from zenit_hub.cli.options import Format
from zenit_hub.errors import ZenitHubError
from zenit_hub.text import printable

Colour = Literal["red", "yellow", "green", "cyan", "bold"]

_CODES: dict[Colour, str] = {"red": "31", "yellow": "33", "green": "32", "cyan": "36", "bold": "1"}
_COLOURS: dict[str, Colour] = {"Error": "red", "Warning": "yellow", "Hint": "cyan"}


def sentence(error: ZenitHubError | OSError) -> str:
    """An error as its line says it, without a secret that was typed where none belongs."""
    from zenit_hub.redact import redacted_text

    if isinstance(error, ZenitHubError):
        return redacted_text(str(error))
    name = f": {printable(error.filename, limit=400)}" if error.filename else ""
    return redacted_text(f"{printable(error.strerror or error)}{name}")


class Sink:
    """Where a command puts its answer. Colours only on a terminal and never against ``NO_COLOR``."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        # A closed stream is none to Python; the exit status is the answer then.
        self._out: TextIO = out or sys.stdout or io.StringIO()
        self._err: TextIO = err or sys.stderr or io.StringIO()
        self._format: Format = "auto"
        self._in_a_workflow = in_a_workflow()

    def suit(self, form: Format) -> None:
        """From now on as ``--format`` has it."""
        self._format = form

    @property
    def width(self) -> int | None:
        """Columns that an answer for people has; ``None``: as many as it takes."""
        if self._format not in ("auto", "human"):
            return None
        told = os.environ.get(env.COLUMNS, "")
        if told.isascii() and told.isdigit() and int(told[:6]):
            return int(told[:6])
        try:
            return os.get_terminal_size(self._out.fileno()).columns or None
        except OSError:  # no terminal, also io.UnsupportedOperation
            return None

    @property
    def lively(self) -> bool:
        """Whether somebody watches stderr for a line that moves."""
        return self._format in ("auto", "human") and self._err.isatty()

    def data(self, text: str) -> None:
        """The answer itself, a line or several."""
        self._write(self._out, f"{text}\n")

    def json(self, value: object) -> None:
        """The answer as one JSON document; non-finite numbers cannot occur in it."""
        # ASCII: a stranger's bidirectional characters do not reach a terminal, and any locale can take it.
        self.data(json.dumps(value, indent=2, allow_nan=False))

    def annotate(
        self, level: Literal["error", "warning"], text: str, *, file: str = "", line: int | None = None
    ) -> None:
        """A part of the answer as ``--format github`` has it, at its line. ``file`` as it is called here, or empty."""
        place = in_checkout(file) if file else ""
        self._write(self._out, f"{annotation(level, text, file=place, line=line)}\n", commands=True)

    def error(self, text: str) -> None:
        self._say("Error", text)

    def warning(self, text: str) -> None:
        self._say("Warning", text)

    def hint(self, text: str) -> None:
        """What to type next; not where only the answer was asked for."""
        if self._format != "quiet":
            self._say("Hint", text)

    def note(self, text: str) -> None:
        """A line on stderr about what goes on, seen at once; not where only the answer was asked for.

        What goes on does not end because nobody can be told of it any more.
        """
        if self._format == "quiet":
            return
        try:
            self.ask(text)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._err.fileno())

    def ask(self, text: str) -> None:
        """A line on stderr that waits for an answer."""
        self._write(self._err, f"{text}\n")
        self._err.flush()

    def paint(self, text: str, colour: Colour) -> str:
        """``text`` for :meth:`data`, coloured where stdout shows colours."""
        return self._painted(self._out, text, colour)

    def flush(self) -> None:
        self._out.flush()
        self._err.flush()

    def _say(self, label: str, text: str) -> None:
        if self._format == "github" and label != "Hint":
            level: Literal["error", "warning"] = "error" if label == "Error" else "warning"
            self._write(self._err, f"{annotation(level, text)}\n", commands=True)
            return
        self._write(self._err, f"{self._painted(self._err, label, _COLOURS[label])}: {text}\n")

    def _painted(self, stream: TextIO, text: str, colour: Colour) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self._shows_colours(stream) else text

    def _shows_colours(self, stream: TextIO) -> bool:
        wanted = self._format in ("auto", "human") and not os.environ.get(env.NO_COLOR)
        return wanted and os.environ.get(env.TERMINAL) != "dumb" and stream.isatty()

    def _write(self, stream: TextIO, text: str, *, commands: bool = False) -> None:
        if not commands and (self._in_a_workflow or self._format == "github"):
            text = inert(text)
        if not _can_take(stream, text, stream.errors or "strict"):
            encoding = stream.encoding or "utf-8"
            text = text.encode(encoding, "backslashreplace").decode(encoding)
        stream.write(text)


def _can_take(stream: TextIO, text: str, errors: str) -> bool:
    """Whether ``stream`` can: one that is ASCII cannot take ``…``, none can take half a surrogate pair."""
    try:
        text.encode(stream.encoding or "utf-8", errors)
    except UnicodeEncodeError:
        return False
    return True
