"""The files of a run: one measurement per profile, written whole or not at all, and what a later run skips."""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from zenit_hub.errors import MeasurementError
from zenit_hub.files import read_limited, replace_file
from zenit_hub.maintain.measurement import MAX_BYTES, Measurement, read_measurement, to_json
from zenit_hub.text import gib, printable

SUFFIX = ".json"

Stamp = tuple[int, int] | None
"""Inode and time of the last change in nanoseconds; ``None``: there is none."""


@dataclass(frozen=True, slots=True)
class Results:
    """``folder``: where the run's files stand; ``<profile>.json`` each."""

    folder: Path

    def file(self, profile: str) -> Path:
        return self.folder / f"{profile}{SUFFIX}"

    def prepare(self) -> None:
        """Make the folder and see that it takes a file. Raises :class:`MeasurementError` before an hour is spent."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as probe:
                probe.write(b"\0" * 2**16)
                probe.flush()
        except OSError as error:
            raise MeasurementError(
                f"results cannot be written: {error.strerror}",
                got=printable(self.folder),
                next_step="Name another folder with --output.",
            ) from error

    def earlier(self, profile: str) -> Measurement | None:
        """The measurement that an earlier run left; ``None`` where there is none that can be read."""
        path = self.file(profile)
        try:
            return read_measurement(read_limited(path, MAX_BYTES), printable(path))
        except (OSError, MeasurementError):
            return None

    def there(self, profile: str) -> bool:
        return os.path.lexists(self.file(profile))

    def foreign(self, profile: str, *, overwrite: bool) -> bool:
        """Whether something stands there that no run wrote; ``overwrite``: that is no file."""
        return not self.file(profile).is_file() if overwrite else self.earlier(profile) is None

    def stamp(self, profile: str) -> Stamp:
        """Which file stands there now."""
        try:
            found = self.file(profile).stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def write(self, measurement: Measurement, stamp: Stamp) -> Path:
        """``stamp``: of the file that may be replaced. Raises :class:`MeasurementError` that carries the figure,
        where another run wrote one meanwhile or no disk takes it."""
        path = self.file(measurement.profile.name)
        text = to_json(measurement)
        try:
            if self.stamp(measurement.profile.name) not in (stamp, None):
                raise FileExistsError(errno.EEXIST, "another run wrote it meanwhile")
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, text.encode())
            return path
        except OSError as error:
            return _elsewhere(measurement, text, path, error)


def _elsewhere(measurement: Measurement, text: str, path: Path, error: OSError) -> Path:
    """A result of half an hour is not thrown away for a full disk: the system's temporary folder may take it."""
    figure = measurement.requires_free_bytes
    what = f"{printable(path)} cannot be written ({error.strerror})"
    try:
        handle, name = tempfile.mkstemp(prefix="zenit-hub-", suffix=f"-{path.name}")
        os.close(handle)
        refuge = Path(name)
        replace_file(refuge, text.encode())
    except OSError:
        found = f"; {measurement.profile.name} needs {figure} bytes ({gib(figure)})" if figure else ""
        raise MeasurementError(
            f"{what}{found}", next_step="Make room and run again with --resume: what was written stays."
        ) from error
    raise MeasurementError(
        f"{what}; the result stands in {printable(refuge)}",
        next_step="Move it to where it belongs and run again with --resume: what was written stays.",
    ) from error
