"""The section's schema applied at run time: what it says first against a part of a section, in words.

The schema alone knows what is allowed; ``jsonschema`` is imported when there is something to check.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from zenit_hub.resources import schema
from zenit_hub.text import printable, shown

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

Part = Literal["section", "profile", "profileName"]
"""Of the schema: all but the profiles, one profile, a profile's name."""

_RULES = {
    "type": "must be {}",
    "minimum": "must be {} or more",
    "exclusiveMinimum": "must be above {}",
    "maximum": "must be {} or less",
    "maxItems": "must have {} entries at most",
    "maxLength": "must have {} characters at most",
}
"""What JSON Schema's rules ask for, in words."""


def fault(of: Part, value: object) -> str | None:
    """One sentence about what is wrong with ``value``, or ``None``."""
    error = next(_validator(of).iter_errors(value), None)
    return None if error is None else _violation(error)


def _violation(error: ValidationError) -> str:
    """One sentence for a person: where, what was got, what is allowed. Never the whole instance."""
    where = ".".join(printable(part, limit=80) for part in error.absolute_path)
    got = kind(error.instance) if isinstance(error.instance, (dict, list)) else shown(error.instance)
    rule, value = str(error.validator), error.validator_value
    if rule == "required":
        allowed = "lacks max_model_len"
    elif rule in _RULES:
        limit = " or ".join(value) if isinstance(value, list) else value
        allowed = f"{_RULES[rule].format(limit)}, got {got}"
    else:
        allowed = f"is not of the allowed form, got {got}"
    return f"{where}: {allowed}" if where else allowed


def kind(value: object) -> str:
    """What JSON calls a value of this type."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "nothing"}
    return names.get(type(value), "a number")


@cache
def _validator(of: str) -> Draft202012Validator:
    """The schema of a part: ``section`` (all but the profiles), ``profile`` or ``profileName``."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    document = schema()
    if of == "section":
        part = {
            "properties": {key: rule for key, rule in document["properties"].items() if key != "profiles"},
            "$defs": document["$defs"],
        }
    else:
        part = {**document["$defs"][of], "$defs": document["$defs"]}
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "number", lambda _, value: _is_number(value)
    ).redefine("integer", lambda _, value: _is_number(value) and value == int(value))
    # jsonschema's types leave extend() open.
    make: Any = extend
    validator: Draft202012Validator = make(Draft202012Validator, type_checker=checker)(part)
    return validator


def _is_number(value: object) -> bool:
    """JSON's numbers; Python's reader also lets NaN and Infinity through, which no range check stops."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)
