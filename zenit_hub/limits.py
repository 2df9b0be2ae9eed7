"""What of a model's config is read, at run time and by ``validate`` alike."""

from __future__ import annotations

CONFIG_NAME = "config.json"

MAX_CONFIG_BYTES = 16 * 2**20
"""A larger config is not read (specification, section 2)."""

MAX_DEPTH = 64
"""Lists and objects within each other; a config that nests deeper is not read."""

LFS_MARK = b"version https://git-lfs.github.com/spec/"
"""How a Git LFS pointer begins that stands where the file should."""

_CURLY_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def deeper_than(data: bytes, depth: int) -> bool:
    """Whether valid JSON nests more than ``depth`` lists and objects, without a walk in Python."""
    without_escapes = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside_strings = b"".join(without_escapes.split(b'"')[::2])
    brackets = outside_strings.translate(_CURLY_AS_SQUARE, _ALL_BUT_BRACKETS)
    for _ in range(depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)
