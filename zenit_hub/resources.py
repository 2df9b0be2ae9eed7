"""The data files that travel with the package: their only copy stands in the repo's ``schema/`` and ``model_card/``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

SECTION_SCHEMA = "serving_profiles.schema.json"
MEASUREMENT_SCHEMA = "measurement.schema.json"
CONFIG_SCHEMA = "config.schema.json"

CARD_TEMPLATE = "block.md.jinja"

_HERE = Path(__file__).parent


@cache
def schema(name: str = SECTION_SCHEMA) -> dict[str, Any]:
    """A JSON Schema by its file name: from the wheel, or from the clone of an editable install."""
    document: dict[str, Any] = json.loads(_text("schema", name))
    return document


def card_template() -> str:
    """The template of the model card's block."""
    return _text("model_card", CARD_TEMPLATE)


def _text(folder: str, name: str) -> str:
    packaged = _HERE / folder / name
    source = packaged if packaged.is_file() else _HERE.parent / folder / name
    return source.read_text(encoding="utf-8")
