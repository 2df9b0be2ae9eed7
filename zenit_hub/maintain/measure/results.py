"""The files of a run: one measurement per profile, written whole or not at all, and what a later run skips."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from zenit_hub.errors import MeasurementError
from zenit_hub.files import read_limited, replace_file
from zenit_hub.maintain.measurement import MAX_BYTES, Measurement, read_measurement, to_json
from zenit_hub.text import gib, printable

SUFFIX = ".json"


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
        return self.file(profile).exists()

    def write(self, measurement: Measurement) -> Path:
        """Raises :class:`MeasurementError` that carries the figure, where no disk takes the file."""
        path = self.file(measurement.profile.name)
        text = to_json(measurement)
        try:
            replace_file(path, text.encode())
            return path
        except OSError as error:
            return _elsewhere(measurement, text, path, error)


def _elsewhere(measurement: Measurement, text: str, path: Path, error: OSError) -> Path:
    """A result of half an hour is not thrown away for a full disk: the system's temporary folder may take it."""
    figure = measurement.requires_free_bytes
    what = f"{printable(path)} cannot be written ({error.strerror})"
    refuge = Path(tempfile.gettempdir()) / f"zenit-hub-{os.getpid()}-{path.name}"
    try:
        replace_file(refuge, text.encode())
    except OSError:
        found = f"; {measurement.profile.name} needs {figure} bytes ({gib(figure)})" if figure else ""
        raise MeasurementError(
            f"{what}{found}", next_step="Make room and run again with --resume: what was written stays."
        ) from error
    raise MeasurementError(
        f"{what}; the result stands in {printable(refuge)}",
        next_step="Make room, move it there and run again with --resume: what was written stays.",
    ) from error
