"""The JSON Schema of a section: complete, closed, and in step with the code and the model card."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from zenit_hub import env, section
from zenit_hub.resources import schema

ROOT = Path(__file__).parents[1]
CARD = ROOT / "model_card"


def described(part: Any, where: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that describes a value: the root, the definitions, the keys, the entries of lists."""
    if where.rsplit("/", 1)[-1] not in ("properties", "$defs"):
        yield where, part
    for name in ("properties", "$defs"):
        for key, inner in part.get(name, {}).items():
            yield from described(inner, f"{where}/{name}/{key}")
    if "items" in part and "$ref" not in part["items"]:
        yield from described(part["items"], f"{where}/items")


PARTS = dict(described(schema()))


def test_the_meta_schema_accepts_it() -> None:
    Draft202012Validator.check_schema(schema())
    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema()["$id"].startswith("https://")


@pytest.mark.parametrize("where", PARTS)
def test_every_key_has_a_title_a_description_and_examples_that_it_accepts(where: str) -> None:
    part = PARTS[where]

    assert part["title"]
    assert part["description"]
    assert part["examples"]
    validator = Draft202012Validator({**part, "$defs": schema()["$defs"]})
    for example in part["examples"]:
        validator.validate(example)


@pytest.mark.parametrize("where", [where for where, part in PARTS.items() if part.get("type") == "object"])
def test_every_object_is_closed(where: str) -> None:
    closed = PARTS[where]["additionalProperties"]

    assert closed is False or closed == {"$ref": "#/$defs/profile"}


def test_no_pattern_ends_before_a_line_break() -> None:
    patterns = [part["pattern"] for part in PARTS.values() if "pattern" in part]

    assert patterns
    assert all(pattern.startswith("^") and pattern.endswith(r"(?![\s\S])") for pattern in patterns)


def test_the_profile_stands_by_itself() -> None:
    references = {part["$ref"] for part in PARTS.values() if "$ref" in part}

    assert all(reference.startswith("#/$defs/") for reference in references)


def test_it_knows_the_keys_that_the_code_knows() -> None:
    profile = schema()["$defs"]["profile"]["properties"]

    assert {*section.ENGINE_FIELDS, *section.LAYOUT_FIELDS, section.BUDGET_KEY} <= set(profile)
    assert set(schema()["$defs"]["positionPlan"]["properties"]) == {"stages", *env.FLAT_PLAN}


def test_bytes_have_no_upper_bound() -> None:
    profile = schema()["$defs"]["profile"]["properties"]

    assert not {"maximum", "exclusiveMaximum"} & {*profile[section.PIN], *profile[section.BUDGET_KEY]}


def card_section() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((CARD / "serving_profiles.json").read_text(encoding="utf-8"))
    return document


def test_the_section_of_the_model_card_is_accepted() -> None:
    Draft202012Validator(schema()).validate(card_section())


def test_the_example_config_carries_the_section_of_the_model_card() -> None:
    config = json.loads((CARD / "config.example.json").read_text(encoding="utf-8"))

    assert config["lomonosov_serving_profiles"] == card_section()
    assert config["architectures"] == [section.ARCHITECTURE_ID]


def test_the_million_needs_what_was_measured_and_the_others_claim_nothing() -> None:
    profiles = card_section()["profiles"]

    assert card_section()["default_profile"] == "million"
    assert {name: profile["max_model_len"] for name, profile in profiles.items()} == {
        "million": 1_010_000,
        "393k": 393_216,
        "262k": 262_144,
    }
    assert profiles["million"]["requires_free_bytes"] == 29.75 * 2**30
    for name in ("393k", "262k"):
        assert "not measured yet" in profiles[name]["description"]
        assert not {"requires_free_bytes", "kv_cache_memory_bytes", "measurements"} & set(profiles[name])
