"""The JSON Schema applied to a section, its verdicts in words for people.

The ``jsonschema`` library decides; nothing here knows a limit that does not stand in the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from zenit_hub.maintain.document import NotANumber
from zenit_hub.maintain.finding import Note, Place, error
from zenit_hub.maintain.forms import form_of
from zenit_hub.resources import schema
from zenit_hub.section import BUDGET_KEY
from zenit_hub.text import printable

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

MAX_VIOLATIONS = 1000
"""Violations that are looked at; the rest of a hostile section is not worth the time."""

MAX_UNKNOWN = 20
"""Unknown keys of one object that are named one by one."""

_SIMILARITY = 0.7
"""Above difflib's 0.6, at which `requires_flash_attention` becomes `requires_free_bytes`."""

_TELLING = 4
"""Letters with which a beginning says what was meant."""

_HOMES = {
    "section": "beside `profiles`, into the section itself",
    "profile": "into a profile",
    "measurement": "into an entry of `measurements`",
    "positionPlan": "into `position_plan`",
}
"""Part of the schema → where its keys stand."""

_KINDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "object": "an object",
    "array": "a list",
}
_SIZES = {
    "maxItems": ("entries", "at most", "keep those that are used"),
    "minItems": ("entries", "at least", "add one, or take the key out"),
    "maxProperties": ("profiles", "at most", "keep those that somebody serves"),
    "minProperties": ("profiles", "at least", "add a profile, or take the section out"),
    "maxLength": ("characters", "at most", "shorten it"),
    "minLength": ("characters", "at least", "write something, or take the key out"),
}


@dataclass(frozen=True, slots=True)
class _Violation:
    """What ``jsonschema`` says: ``rule`` is the keyword, ``limit`` its value, ``got`` the offending value."""

    where: Place
    rule: str
    limit: Any
    got: Any
    schema: Mapping[str, Any]
    of_a_name: bool


def shape_notes(body: object, where: Place) -> list[Note]:
    """What the schema says against a section that stands at ``where``: one note for each place."""
    notes: dict[Place, Note] = {}
    for violation in islice(_violations(body, where), MAX_VIOLATIONS):
        for note in _notes(violation):
            notes.setdefault(note.where, note)
    return list(notes.values())


@cache
def _validator() -> Draft202012Validator:
    # A tenth of a second that a file without a section does not pay for.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema())


def _violations(body: object, section_at: Place) -> Iterator[_Violation]:
    for found in _validator().iter_errors(body):
        of_a_name = "propertyNames" in found.absolute_schema_path
        below = (*found.absolute_path, found.instance) if of_a_name else found.absolute_path
        rules = found.schema if isinstance(found.schema, dict) else {}
        where = (*section_at, *below)
        yield _Violation(where, str(found.validator), found.validator_value, found.instance, rules, of_a_name)


def _notes(violation: _Violation) -> Iterator[Note]:
    where, got = violation.where, violation.got
    if violation.rule == "additionalProperties":
        yield from _unknown_keys(got, list(violation.schema["properties"]), where)
    elif violation.rule == "required":
        for key in violation.limit:
            if key not in got:
                about = violation.schema["properties"][key]["description"].partition(". ")[0].rstrip(".")
                yield error(where, f"`{key}` is missing", f"add `{key}`: {about}")
    elif violation.of_a_name:
        form = form_of("profile name", got)
        yield error(where, f"the profile name {shown(got)} {form.fault}", form.fix)
    else:
        yield _wrong_value(violation)


def _unknown_keys(got: Mapping[str, Any], known: Sequence[str], where: Place) -> Iterator[Note]:
    unknown = [key for key in got if key not in known]
    for key in unknown[:MAX_UNKNOWN]:
        what = f"`{printable(key, limit=80)}` is not a known key"
        if key.startswith("requires_") and BUDGET_KEY in known:
            what += "; a condition that this version cannot check keeps the profile out of every choice"
        yield error((*where, key), what, _instead(key, known))
    if len(unknown) > MAX_UNKNOWN:
        what = f"{len(unknown)} keys are not known, of which {MAX_UNKNOWN} are listed"
        yield error(where, what, f"known keys: {', '.join(known)}")


def _instead(key: str, known: Sequence[str]) -> str:
    """What to do about an unknown key."""
    if key == "$schema":
        return "take it out; an editor is told by its own settings, see `zenit-hub schema --help`"
    homes = {**schema()["$defs"], "section": schema()}
    for home, words in _HOMES.items():
        if key in homes[home]["properties"]:
            return f"it belongs {words}"
    close = closest(key, known)
    return f"did you mean `{close}`?" if close else f"take it out; known keys: {', '.join(known)}"


def closest(word: str, known: Sequence[str]) -> str | None:
    """The known word that was probably meant."""
    folded = {name.lower(): name for name in known}
    meant = word[:80].lower().replace("-", "_")
    begins = [name for name in folded if len(meant) >= _TELLING and name.startswith(meant)]
    found = begins or get_close_matches(meant, list(folded), n=1, cutoff=_SIMILARITY)
    return folded[found[0]] if found else None


def _wrong_value(violation: _Violation) -> Note:
    where, got, limit = violation.where, violation.got, violation.limit
    key = _name_of(where)
    if violation.rule == "type":
        return _wrong_type(violation, key)
    if violation.rule in _SIZES:
        unit, bound, fix = _SIZES[violation.rule]
        return error(where, f"{key} has {len(got)} {unit}, allowed: {bound} {limit}", fix)
    if violation.rule == "pattern":
        form = form_of(where[-1] if isinstance(where[-1], str) else "architecture", got)
        return error(where, f"{key} {form.fault}, got {shown(got)}", form.fix)
    if violation.rule == "const":
        fix = f"write {limit}, or use a newer zenit-hub"
        return error(where, f"{key} is {shown(got)}, which is not known here; known: {limit}", fix)
    allowed = _range(violation.schema)
    return error(where, f"{key} is {shown(got)}, allowed: {allowed}", f"write {allowed}")


def _name_of(where: Place) -> str:
    last = where[-1] if where else "the section"
    return f"entry {last}" if isinstance(last, int) else f"`{printable(last, limit=80)}`"


def _wrong_type(violation: _Violation, key: str) -> Note:
    got = violation.got
    kinds = [violation.limit] if isinstance(violation.limit, str) else list(violation.limit)
    allowed = " or ".join(_KINDS[kind] for kind in kinds)
    if "minimum" in violation.schema or "exclusiveMinimum" in violation.schema:
        allowed = _range(violation.schema)
    fix = f"write {allowed}"
    if isinstance(got, str) and "boolean" in kinds and got.lower() in ("true", "false"):
        fix = f"write {got.lower()} without quotes"
    elif isinstance(got, str) and {"integer", "number"} & set(kinds) and got.isascii() and got.isdigit():
        fix = f"write {printable(got, limit=40)} without quotes"
    elif isinstance(got, (int, float)) and not isinstance(got, bool) and kinds == ["string"]:
        fix = f'write "{shown(got)}" in quotes'
    return error(violation.where, f"{key} must be {allowed}, got {shown(got)}", fix)


def _range(rules: Mapping[str, Any]) -> str:
    kind = _KINDS["integer" if rules["type"] == "integer" else "number"]
    if "exclusiveMinimum" in rules:
        return f"{kind} above {rules['exclusiveMinimum']} and up to {rules['maximum']}"
    if "maximum" in rules:
        return f"{kind} from {rules['minimum']} to {rules['maximum']}"
    return f"{kind} of {rules['minimum']} or more"


def shown(value: object) -> str:
    """A stranger's value, short: of a number of 400 digits the beginning, of a list that it is one."""
    if isinstance(value, NotANumber):
        return value.text
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return printable(f'"{value[:100]}"' if isinstance(value, str) else value, limit=60)
