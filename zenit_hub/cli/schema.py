"""``zenit-hub schema``: the JSON Schemas of this version, for editors."""

from __future__ import annotations

import argparse
from typing import Any

from zenit_hub.cli.output import Sink
from zenit_hub.resources import CONFIG_SCHEMA, MEASUREMENT_SCHEMA, SECTION_SCHEMA, schema

FILES = {"config": CONFIG_SCHEMA, "section": SECTION_SCHEMA, "measurement": MEASUREMENT_SCHEMA}

_EPILOG = """for VS Code: save it as .vscode/config.schema.json, and put into .vscode/settings.json
  {"json.schemas": [{"fileMatch": ["config.json"],
                     "url": "./.vscode/config.schema.json"}]}

exit status: 0 done; 2 usage

examples:
  zenit-hub schema > .vscode/config.schema.json
  zenit-hub schema section"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "form",
        nargs="?",
        choices=FILES,
        default="config",
        metavar="FORM",
        help="config: a config.json that may carry a section; section: a file that holds one alone; "
        "measurement: a file of `zenit-hub measure` (%(default)s)",
    )


def run(options: argparse.Namespace, sink: Sink) -> int:
    """Prints one document that needs no other."""
    sink.json(whole(FILES[options.form]))
    return 0


def whole(name: str) -> dict[str, Any]:
    """A schema as one document: what it refers to in a file beside it stands in its ``$defs``."""
    document = schema(name)
    if name != CONFIG_SCHEMA:
        return document
    section = {key: value for key, value in schema(SECTION_SCHEMA).items() if not key.startswith("$")}
    inner = {"$ref": "#/$defs/section"}
    keys = {
        key: inner if part.get("$ref") == SECTION_SCHEMA else part
        for key, part in document["properties"].items()
    }
    definitions = {"section": section, **schema(SECTION_SCHEMA)["$defs"]}
    return {**document, "properties": keys, "$defs": definitions}
