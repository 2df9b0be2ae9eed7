"""A change as people read it: unified, without a stranger's control characters, long lines cut."""

from __future__ import annotations

import difflib
import re

from zenit_hub.text import printable

CONTEXT_LINES = 3
MAX_LINE_LETTERS = 400

_HUNK = re.compile(r"@@ -(\d+)(,\d+)? \+(\d+)(,\d+)? @@")


def unified(path: str, old: bytes | None, new: bytes) -> str:
    """The change of one file; of a new one only its size, since it stands here as a file already."""
    if old is None:
        return f"--- /dev/null\n+++ b/{path}\n(new, {len(new)} bytes)\n"
    before, after = (data.decode("utf-8", "replace").split("\n") for data in (old, new))
    skipped = max(_common(before, after) - CONTEXT_LINES, 0)
    before, after = before[skipped:], after[skipped:]
    # What is equal at the end is cut off too: comparing a card of thousands of lines takes minutes.
    rest = max(_common(before[::-1], after[::-1]) - CONTEXT_LINES, 0)
    before, after = before[: len(before) - rest], after[: len(after) - rest]
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="", n=CONTEXT_LINES)
    return "".join(f"{_shown(line, skipped)}\n" for line in lines)


def _common(one: list[str], other: list[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _shown(line: str, skipped: int) -> str:
    hunk = _HUNK.fullmatch(line)
    if hunk:
        old, old_count, new, new_count = hunk.groups(default="")
        return f"@@ -{int(old) + skipped}{old_count} +{int(new) + skipped}{new_count} @@"
    # Tabs are how some indent; a carriage return at the end is how some end their lines.
    parts = line.removesuffix("\r").split("\t")
    return "\t".join(printable(part, limit=MAX_LINE_LETTERS) for part in parts)
