"""Every way in which a file fails to be JSON, in words and with the line where to look."""

from __future__ import annotations

import json
import re

from zenit_hub.limits import LFS_MARK, MAX_CONFIG_BYTES
from zenit_hub.maintain.finding import Note, error

_SPACE = " \t\n\r"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_PYTHON_WORD = re.compile(r"(True|False|None)\b")
_BARE_WORD = re.compile(r"[A-Za-z_]\w*")
_CONFLICT_MARKS = ("<<<<<<<", "=======", ">>>>>>>")

_WORDS = {
    "Expecting value": "a value is missing",
    "Expecting ',' delimiter": "a comma or a closing bracket is missing",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Extra data": "something follows after the end of the document",
    "Unterminated string starting at": "a string is not closed",
    "Invalid control character at": "a string holds a raw control character or line break",
    "Invalid \\escape": "a string holds a backslash that escapes nothing",
    "Invalid \\uXXXX escape": "a string holds an incomplete \\u escape",
}
"""Python's words → ours; a message that a later Python words otherwise is shown as it is."""


def not_text(data: bytes) -> Note | None:
    """Why the bytes are not the text of a config, or ``None``."""
    if len(data) > MAX_CONFIG_BYTES:
        what = f"the file is larger than {MAX_CONFIG_BYTES} bytes (16 MiB) and is not read"
        return error((), what, "keep in config.json only what describes the model")
    if data.startswith(LFS_MARK):
        return error((), "this is a Git LFS pointer, not the file itself", "run `git lfs pull`", line=1)
    if data.startswith(_UTF16_MARKS):
        return error((), "the file is UTF-16; JSON is UTF-8", "save it as UTF-8 without BOM", line=1)
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        what = f"byte 0x{data[problem.start]:02x} at offset {problem.start} is not UTF-8"
        return error((), what, "save the file as UTF-8", line=line)
    return None


def not_json(text: str, problem: json.JSONDecodeError) -> Note:
    """What stopped the JSON reader."""
    comma_at = _trailing_comma(text, problem.pos)
    if comma_at is not None:
        line = text.count("\n", 0, comma_at) + 1
        return error((), "not JSON: a comma stands after the last entry", "take the comma out", line=line)
    words, fix = _in_words(text, problem)
    return error((), f"not JSON: {words} (column {problem.colno})", fix, line=problem.lineno)


def _trailing_comma(text: str, at: int) -> int | None:
    """Where the comma before a closing bracket stands, if that is what stopped the reader at ``at``."""
    at_bracket = text[at : at + 1] in ("}", "]")
    before = text[:at].rstrip(_SPACE) if at_bracket else text[: at + 1]
    if not before.endswith(","):
        return None
    follows = text[len(before) :].lstrip(_SPACE)[:1]
    return len(before) - 1 if follows in ("}", "]") and follows else None


def _in_words(text: str, problem: json.JSONDecodeError) -> tuple[str, str]:
    """What is wrong, and what to do."""
    rest = text[problem.pos : problem.pos + 40]
    if not text.strip(_SPACE):
        return "the file is empty", "write at least {}"
    if problem.pos >= len(text.rstrip(_SPACE)):
        return "the file ends too early", "close what is open, or fetch the file again"
    if rest.startswith(("//", "/*", "#")):
        return "a comment stands here", "take it out"
    if rest.startswith("'"):
        return "single quotes stand here", "use double quotes"
    if rest.startswith(_CONFLICT_MARKS):
        return "a merge conflict was left in the file", "resolve it"
    if word := _PYTHON_WORD.match(rest):
        return f"{word[0]} is Python's spelling", "write true, false or null"
    if problem.msg.startswith("Expecting") and (word := _BARE_WORD.match(rest)):
        return f"{word[0]} stands without quotes", "put it in double quotes"
    return _WORDS.get(problem.msg, problem.msg), "correct the file at this place"
