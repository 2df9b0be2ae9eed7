"""A measurement's document: what is written is what is read, and what is not one is said to be none."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.measurements import FIGURE_BYTES, MIB, a_boot, a_measurement
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measurement import (
    MAX_BYTES,
    Failure,
    Measurement,
    Verification,
    read_measurement,
    to_json,
)
from zenit_hub.maintain.validate import validate
from zenit_hub.resources import MEASUREMENT_SCHEMA, schema

FAILED = a_measurement(
    verdict="failed",
    requires_free_bytes=None,
    kv_cache_memory_bytes=None,
    boots=(),
    spread_bytes=None,
    breakdown=None,
    verification=None,
    failure=Failure(
        "too_few_state_blocks", "969 state blocks", "set max_num_seqs ≤ 969", {"state_blocks": 969}
    ),
)


def test_the_schema_is_a_schema() -> None:
    """Draft 2020-12, and every part of it has a title and a description."""
    Draft202012Validator.check_schema(schema(MEASUREMENT_SCHEMA))
    bare = [
        name
        for name, part in _properties(schema(MEASUREMENT_SCHEMA))
        if "$ref" not in part and not (part.get("title") and part.get("description"))
    ]

    assert bare == []


def _properties(part: Any) -> Any:
    if isinstance(part, dict):
        for name, below in part.get("properties", {}).items():
            yield name, below
        for below in part.values():
            yield from _properties(below)
    elif isinstance(part, list):
        for below in part:
            yield from _properties(below)


@pytest.mark.parametrize("measurement", [a_measurement(), FAILED], ids=["measured", "failed"])
def test_what_is_written_is_read_again(measurement: Measurement) -> None:
    """And the same measurement gives the same bytes."""
    text = to_json(measurement)

    assert read_measurement(text.encode(), "m.json") == measurement
    assert to_json(read_measurement(text.encode(), "m.json")) == text


def test_a_sample_stands_on_one_line() -> None:
    """Six hundred of them are read by people too."""
    boot = replace(a_boot(), samples=tuple((float(i), i * MIB) for i in range(600)))
    text = to_json(a_measurement(boots=(boot,)))

    assert "[599.0, 628097024]" in text
    assert len(text.splitlines()) < 800
    assert json.loads(text)["boots"][0]["samples"][599] == [599.0, 599 * MIB]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no measurement"),
        (b"[]", "is no measurement"),
        (b'{"profiles": {}}', "what `zenit-hub measure` wrote"),
        (b'{"measurement_version": 1}', "is no measurement: "),
        (b"\xff\xfe", "is no measurement"),
        (b"[" * 100_000, "is no measurement"),
        (b" " * (MAX_BYTES + 1), "more than"),
        (
            to_json(a_measurement()).replace('"platform": "cuda"', '"platform": "abacus"').encode(),
            "device.platform",
        ),
        (to_json(a_measurement()).replace('"measured"', '"guessed"').encode(), "verdict"),
        (to_json(a_measurement()).replace("124.8", "NaN").encode(), "/boots/0/sampled_hz is NaN"),
        (
            to_json(a_measurement()).replace("[0.0, 0]", "[0, 1e999]").encode(),
            "/boots/0/samples/0/1 is 1e999",
        ),
        (
            to_json(a_measurement()).replace('{\n  "', '{\n  "verdict": "failed",\n  "', 1).encode(),
            "/verdict the key stands more than once",
        ),
        (to_json(a_measurement()).encode("utf-8-sig"), "byte order mark"),
        (to_json(a_measurement()).encode("utf-16"), "is no measurement"),
        (re.sub(r"\[\d[\d.]*, ", f"[{10**400}, ", to_json(a_measurement()), count=1).encode(), "too large"),
    ],
)
def test_what_is_none_is_said_to_be_none(data: bytes, words: str) -> None:
    """One line, with what to type."""
    with pytest.raises(MeasurementError, match=r"m\.json is no measurement") as refusal:
        read_measurement(data, "m.json")

    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_figure_is_a_whole_number_however_it_is_spelled() -> None:
    """``24.0`` is an integer to the schema; in a config it would be none."""
    text = to_json(a_measurement()).replace(f": {FIGURE_BYTES},", f": {FIGURE_BYTES}.0,")
    read = read_measurement(text.encode(), "m.json")

    assert f"{FIGURE_BYTES}.0" in text
    assert (type(read.requires_free_bytes), type(read.kv_cache_memory_bytes)) == (int, int)
    assert read.requires_free_bytes == FIGURE_BYTES


# --- validate understands it


def findings(measurement: Measurement, **changes: Any) -> list[tuple[str, str, str]]:
    document = {**json.loads(to_json(measurement)), **changes}
    report = validate(json.dumps(document, indent=1).encode())
    return [(finding.level, finding.path, finding.message) for finding in report.findings]


@pytest.mark.parametrize("measurement", [a_measurement(), FAILED], ids=["measured", "failed"])
def test_validate_accepts_what_measure_writes(measurement: Measurement) -> None:
    """Without a word."""
    assert findings(measurement) == []


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"verdict": "guessed"}, "/verdict", "allowed: measured, contaminated, failed"),
        ({"requires_free_bytes": -1}, "/requires_free_bytes", "at least 0"),
        ({"created": "yesterday"}, "/created", "the form that the schema names"),
        ({"more": 1}, "", "`more` is not known here"),
        ({"measurement_version": 2}, "/measurement_version", "only 1"),
        ({"requires_free_bytes": FIGURE_BYTES - 200}, "/requires_free_bytes", "below the largest drop"),
        ({"requires_free_bytes": None}, "/requires_free_bytes", "the verdict is measured"),
        ({"boots": []}, "/requires_free_bytes", "no cold or warm boot that answered stands behind"),
        (
            {"requires_free_bytes": 2**60},
            "/requires_free_bytes",
            "more than the 33704378368 bytes of its device",
        ),
    ],
)
def test_validate_names_what_is_wrong(changes: dict[str, Any], path: str, words: str) -> None:
    """With its place."""
    found = findings(a_measurement(), **changes)

    assert [(level, where) for level, where, _ in found] == [("error", path)]
    assert words in found[0][2]


def test_parts_that_do_not_add_up_are_an_error() -> None:
    """They are the figure's explanation."""
    whole = a_measurement()
    assert whole.breakdown is not None
    wrong = replace(whole, breakdown=replace(whole.breakdown, weights_bytes=1))

    assert findings(wrong)[0][:2] == ("error", "/breakdown/total_bytes")


def test_a_missing_key_is_named() -> None:
    """And nothing else is."""
    document = json.loads(to_json(a_measurement()))
    del document["device"]
    report = validate(json.dumps(document).encode())

    assert [finding.message for finding in report.findings] == ["`device` is missing"]


def test_an_unverified_figure_is_a_warning() -> None:
    """It is honest, and it is not to be published without a word."""
    unverified = a_measurement(
        verification=Verification("none", None, "not_tried", None, "not_tried", "no cgroup here")
    )

    assert [level for level, _, _ in findings(unverified)] == ["warning"]
