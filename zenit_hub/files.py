"""Reading a stranger's file: a pipe that nobody fills and a device without an end are not read."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_limited(path: Path, max_bytes: int) -> bytes:
    """The first ``max_bytes + 1`` bytes of a regular file: one more than allowed tells that it is larger.

    Raises ``OSError``, also where ``path`` is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "It is no regular file", str(path))
        return file.read(max_bytes + 1)
