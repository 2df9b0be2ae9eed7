"""``zenit-hub schema``: one document, for an editor that reads no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.stage import config, unrated
from zenit_hub.cli.main import main
from zenit_hub.resources import CONFIG_SCHEMA, MEASUREMENT_SCHEMA, SECTION_SCHEMA, schema
from zenit_hub.section import CONFIG_KEY, NEUTRAL_KEY

ROOT = Path(__file__).parent.parent


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["schema", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(document)
    return document


@pytest.mark.parametrize(("form", "name"), [("section", SECTION_SCHEMA), ("measurement", MEASUREMENT_SCHEMA)])
def test_a_schema_as_it_is(form: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, form) == schema(name)


def test_a_config_is_described_with_its_section(capsys: pytest.CaptureFixture[str]) -> None:
    """By itself: nothing in it leads to another file. What is not ours may be anything."""
    document = printed(capsys)
    validator = Draft202012Validator(document)

    assert '"$ref": "#/' in json.dumps(document)
    assert ".json#" not in json.dumps(document)
    for key in (CONFIG_KEY, NEUTRAL_KEY):
        assert list(validator.iter_errors({"model_type": "x", key: {"profiles": {"p": {}}}}))
    assert not list(validator.iter_errors({**config({"p": unrated(8)}), "$schema": "x"}))


def test_the_schemas_in_the_repo_refer_to_each_other_by_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What the repo publishes says the same as what is printed: each reference leads to a file beside it."""
    published = schema(CONFIG_SCHEMA)

    assert set(published["properties"]) == {CONFIG_KEY, NEUTRAL_KEY}
    assert {part["$ref"] for part in published["properties"].values()} == {SECTION_SCHEMA}
    assert (ROOT / "schema" / SECTION_SCHEMA).is_file()


def test_another_form_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["schema", "nope"])
    assert ended.value.code == 2


def test_in_a_section_the_usual_key_is_refused_with_the_other_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its keys are closed; at the top of a config it is none of ours."""
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"$schema": "x", "serving_profiles": {"profiles": {"p": {"max_model_len": 1}}}})
    )
    assert main(["validate", str(file)]) == 0

    file.write_text('{"$schema": "x", "profiles": {"p": {"max_model_len": 1}}}')
    assert main(["validate", str(file)]) == 1
    assert "`$schema` is not a known key" in capsys.readouterr().out
