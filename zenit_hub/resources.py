"""The data files that travel with the package: their only copy stands in the repo's ``schema/`` folder."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SECTION_SCHEMA = "serving_profiles.schema.json"
MEASUREMENT_SCHEMA = "measurement.schema.json"

_HERE = Path(__file__).parent


@cache
def schema(name: str = SECTION_SCHEMA) -> dict[str, Any]:
    """A JSON Schema by its file name: from the wheel, or from the clone of an editable install."""
    packaged = _HERE / "schema" / name
    source = packaged if packaged.is_file() else _HERE.parent / "schema" / name
    document: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    return document
