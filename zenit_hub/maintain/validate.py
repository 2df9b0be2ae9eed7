"""A config's section checked: bytes in, findings out. Nothing here reads a file or asks the Hub.

The order in which it is done: is it JSON, is there a section, does the schema accept it, does it mean
something. What the schema refuses is put aside before the meaning is looked at, so that one mistake is
one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from zenit_hub.maintain.document import Document, read_document
from zenit_hub.maintain.finding import Finding, Note, Place, error, place, warning
from zenit_hub.maintain.locate import lines_of
from zenit_hub.maintain.meaning import Asked, meaning_notes, oversized_plan
from zenit_hub.maintain.receipt import is_measurement, receipt_notes
from zenit_hub.maintain.shape import closest, shape_notes
from zenit_hub.maintain.view import view_section
from zenit_hub.resources import schema
from zenit_hub.section import CONFIG_KEY, NEUTRAL_KEY

MAX_VALUES = 50_000
"""Values of a section that are looked at one by one: 64 profiles at every limit hold fewer."""


_NOTHING_ASKED = Asked()


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one file."""

    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        return all(finding.level != "error" for finding in self.findings)


def validate(data: bytes, asked: Asked = _NOTHING_ASKED) -> Report:
    """Checks the bytes of a ``config.json``, or of a file that holds a section alone. Never raises."""
    document = read_document(data)
    notes = [*document.notes, *_config_notes(document, asked)]
    return Report(place(notes, partial(lines_of, document.text, unique=document.unique_keys)))


def _config_notes(document: Document, asked: Asked) -> Iterator[Note]:
    config = document.value
    if config is None:
        return
    if is_measurement(config):
        yield from receipt_notes(config)
        return
    where = _section_place(config)
    yield from _strange_numbers(document, where)
    if where is None:
        yield from _no_section(config)
        return
    yield from _other_sections(config, where)
    body = config[str(where[0])] if where else config
    if not isinstance(body, dict):
        yield from shape_notes(body, where)
        return
    yield from _section_notes(body, where, config if where else None, asked)


def _section_place(config: Mapping[str, Any]) -> Place | None:
    """Where the section stands that counts; ``()``: the file is a section by itself."""
    for key in (CONFIG_KEY, NEUTRAL_KEY):
        if config.get(key) is not None:
            return (key,)
    return () if isinstance(config.get("profiles"), dict) and "model_type" not in config else None


def _section_notes(
    body: dict[str, Any], where: Place, config: Mapping[str, Any] | None, asked: Asked
) -> Iterator[Note]:
    checked, crowd = _uncrowded(body, where)
    yield from crowd
    if checked is None:
        return
    faults = _with_whole_plans(checked, where, shape_notes(checked, where))
    other_version = [fault for fault in faults if fault.where == (*where, "schema_version")]
    if other_version:
        # Another version may mean anything by its other keys.
        yield from other_version
        return
    yield from faults
    declared = body["profiles"] if isinstance(body.get("profiles"), dict) else ()
    view = view_section(checked, where, config, faults, frozenset(declared))
    yield from meaning_notes(view, asked)


def _uncrowded(body: dict[str, Any], where: Place) -> tuple[dict[str, Any] | None, list[Note]]:
    """``body`` with as many profiles as are allowed; ``None`` where it holds more than anybody looks at."""
    notes = []
    most = schema()["properties"]["profiles"]["maxProperties"]
    profiles = body.get("profiles")
    if isinstance(profiles, dict) and len(profiles) > most:
        what = f"the section holds {len(profiles)} profiles, allowed: at most {most}"
        notes.append(error((*where, "profiles"), what, "keep those that somebody serves"))
        body = {**body, "profiles": dict(islice(profiles.items(), most))}
    if _holds_more_than(body, MAX_VALUES):
        what = f"the section holds more than {MAX_VALUES} values and is not looked at any further"
        notes.append(error(where, what, "keep the profiles that somebody serves"))
        return None, notes
    return body, notes


def _holds_more_than(value: object, limit: int) -> bool:
    waiting, count = [value], 0
    while waiting and count <= limit:
        node = waiting.pop()
        if isinstance(node, (dict, list)):
            count += len(node)
            waiting.extend(islice(node.values() if isinstance(node, dict) else node, limit))
    return count > limit


def _with_whole_plans(section: Mapping[str, Any], where: Place, faults: list[Note]) -> list[Note]:
    """A plan past its size is one fault, whatever it is made of; one with too many stages is that fault."""
    profiles = section.get("profiles")
    for name, profile in profiles.items() if isinstance(profiles, dict) else ():
        oversized = oversized_plan((*where, "profiles", name), profile)
        if oversized is None or any(fault.where == (*oversized.where, "stages") for fault in faults):
            continue
        depth = len(oversized.where)
        faults = [fault for fault in faults if fault.where[:depth] != oversized.where] + [oversized]
    return faults


def _strange_numbers(document: Document, where: Place | None) -> Iterator[Note]:
    """``NaN`` and the like beside the section; those within it are no numbers to the schema."""
    for place_of, text in document.not_numbers:
        if where is None or place_of[: len(where)] != where:
            what = f"{text} is not JSON; Python reads it, other readers of the repo do not"
            yield warning(place_of, what, "write a number, or null")


def _no_section(config: Mapping[str, Any]) -> Iterator[Note]:
    what = f"there is no section: neither `{CONFIG_KEY}` nor `{NEUTRAL_KEY}` stands in this file"
    for key in [key for key in config if "profile" in key.lower() or "serving" in key.lower()][:10]:
        close = closest(key, [CONFIG_KEY, NEUTRAL_KEY])
        if close is not None:
            fix = "give it profiles" if key == close else f"did you mean `{close}`?"
            yield warning((key,), what, fix)
            return
    nested = config.get("text_config")
    if isinstance(nested, dict) and _section_place({**nested, "model_type": ""}) is not None:
        yield warning(
            ("text_config",), f"{what}; there is one within `text_config`", "move it to the top level"
        )
        return
    yield warning((), what, "nothing to do, unless the repo should carry serving profiles")


def _other_sections(config: Mapping[str, Any], where: Place) -> Iterator[Note]:
    if where == (CONFIG_KEY,) and config.get(NEUTRAL_KEY) is not None:
        what = f"both `{CONFIG_KEY}` and `{NEUTRAL_KEY}` stand in this file; only `{CONFIG_KEY}` is read"
        yield warning((NEUTRAL_KEY,), what, "keep one of them")
