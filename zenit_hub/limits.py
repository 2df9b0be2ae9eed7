"""What of a model's config is read, at run time and by ``validate`` alike."""

from __future__ import annotations

CONFIG_NAME = "config.json"

MAX_CONFIG_BYTES = 16 * 2**20
"""A larger config is not read (specification, section 2)."""

MAX_DEPTH = 64
"""Lists and objects within each other; a config that nests deeper is not read."""

LFS_MARK = b"version https://git-lfs.github.com/spec/"
"""How a Git LFS pointer begins that stands where the file should."""
