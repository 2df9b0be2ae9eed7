"""Reading a stranger's file: a pipe that nobody fills and a device without an end are not read.

And writing one as a whole or not at all.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path


def read_limited(path: Path, max_bytes: int) -> bytes:
    """The first ``max_bytes + 1`` bytes of a regular file: one more than allowed tells that it is larger.

    Raises ``OSError``, also where ``path`` is no regular file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        # Asked before Python does, whose own error names the descriptor.
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "It is no regular file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(max_bytes + 1)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """The file has its old content or the new one at any moment; its mode and a symbolic link to it stay.

    One that is not there yet is made. Raises ``OSError``, and then nothing has changed.
    """
    target = path.resolve()
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        # Of the file that was asked for, not of the one that nobody knows of.
        raise OSError(error.errno, error.strerror, str(target)) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    """This process's; the kernel tells it only by having it set."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
