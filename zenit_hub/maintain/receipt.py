"""A measurement's document checked: the schema first, then whether its figures agree with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from zenit_hub.maintain.finding import Note, Place, error, warning
from zenit_hub.maintain.measurement import VERSION_KEY, Breakdown, Measurement, from_document
from zenit_hub.maintain.shape import shown
from zenit_hub.resources import MEASUREMENT_SCHEMA, schema
from zenit_hub.text import printable

MAX_VIOLATIONS = 50
AGAIN = "measure again: a measurement is not edited by hand"


def is_measurement(document: Mapping[str, Any]) -> bool:
    return VERSION_KEY in document


def receipt_notes(document: Mapping[str, Any]) -> Iterator[Note]:
    """What is wrong with it, each with its place."""
    violations = list(islice(_violations(document), MAX_VIOLATIONS))
    yield from violations
    if not violations:
        yield from _disagreements(from_document(document))


def _violations(document: Mapping[str, Any]) -> Iterator[Note]:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import relevance

    for found in Draft202012Validator(schema(MEASUREMENT_SCHEMA)).iter_errors(document):
        # Of a part that may also be null, the reason why it is not the part.
        worst = max(found.context, key=relevance) if found.context else found
        where: Place = tuple(worst.absolute_path)
        rules = worst.schema if isinstance(worst.schema, dict) else {}
        if worst.validator == "additionalProperties":
            unknown = [key for key in worst.instance if key not in rules["properties"]]
            names = ", ".join(f"`{printable(key, limit=80)}`" for key in unknown[:10])
            yield error(where, f"{names} is not known here", AGAIN)
        elif worst.validator == "required":
            missing = [key for key in worst.validator_value if key not in worst.instance]
            yield error(where, f"`{missing[0]}` is missing", AGAIN)
        else:
            name = f"`{printable(where[-1], limit=80)}`" if where else "the document"
            allowed = _allowed(str(worst.validator), worst.validator_value)
            yield error(where, f"{name} is {shown(worst.instance)}, allowed: {allowed}", AGAIN)


def _allowed(rule: str, limit: Any) -> str:
    if rule == "enum":
        return ", ".join(str(value) for value in limit)
    if rule == "type":
        return " or ".join([limit] if isinstance(limit, str) else limit)
    words = {"minimum": "at least", "maxLength": "at most", "maxItems": "at most", "const": "only"}
    return f"{words[rule]} {limit}" if rule in words else "the form that the schema names"


def _disagreements(measurement: Measurement) -> Iterator[Note]:
    figure, breakdown = measurement.requires_free_bytes, measurement.breakdown
    if (figure is not None) != (measurement.verdict == "measured"):
        what = f"the verdict is {measurement.verdict} and the figure {shown(figure)}"
        yield error(("requires_free_bytes",), what, AGAIN)
    counted = [
        boot.drop_bytes
        for boot in measurement.boots
        if boot.outcome == "answered" and boot.kind in ("cold", "warm") and boot.drop_bytes is not None
    ]
    why = None if figure is None else _unfounded(figure, counted, measurement.device.total_bytes)
    if why is not None:
        yield error(("requires_free_bytes",), why, AGAIN)
    if breakdown is not None and _sum(breakdown) != breakdown.total_bytes:
        what = f"the parts add up to {_sum(breakdown)}, the total says {breakdown.total_bytes}"
        yield error(("breakdown", "total_bytes"), what, AGAIN)
    if measurement.verdict == "measured" and not measurement.verified:
        yield warning(
            ("verification",),
            "no launch with that much free has been tried",
            "measure on a machine where it can be, or publish with --allow-unverified",
        )


def _unfounded(figure: int, drops: list[int], total_bytes: int) -> str | None:
    """Why its boots and its device cannot have given this figure. ``total_bytes`` is 0 where it is not known."""
    if not drops:
        return f"no cold or warm boot that answered stands behind the figure {shown(figure)}"
    if figure < max(drops):
        return f"the figure {shown(figure)} is below the largest drop {max(drops)} of its boots"
    if 0 < total_bytes < figure:
        return f"the figure {shown(figure)} is more than the {total_bytes} bytes of its device"
    return None


def _sum(breakdown: Breakdown) -> int:
    parts = (
        breakdown.weights_bytes,
        breakdown.kv_cache_bytes,
        breakdown.activation_peak_bytes,
        breakdown.cuda_graphs_bytes,
        breakdown.contexts_bytes,
        breakdown.unaccounted_bytes,
    )
    return sum(part for part in parts if part is not None)
