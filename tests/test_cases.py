"""The field cases (``data/field-cases.jsonl``): each described machine, section and caller, and the right answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zenit_hub.cli.main import main

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "field-cases.jsonl").read_text("utf-8").splitlines()
]
_MISSING = object()
_WITHOUT_ANSWER = (1, 2)


def mismatches(expected: Any, actual: Any, where: str = "") -> Iterator[str]:
    """One line for each place where ``actual`` is not as ``expected``, which may be a part of it."""
    if isinstance(expected, dict) and "$absent" in expected:
        if actual is not _MISSING:
            yield f"{where}: must be absent, is {actual!r}"
    elif actual is _MISSING:
        yield f"{where}: missing, expected {expected!r}"
    elif isinstance(expected, dict) and "$between" in expected:
        low, high = expected["$between"]
        if isinstance(actual, bool) or not isinstance(actual, (int, float)) or not low <= actual <= high:
            yield f"{where}: {actual!r} is not from {low} to {high}"
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key, value in expected.items():
            yield from mismatches(value, actual.get(key, _MISSING), f"{where}/{key}")
    elif expected != actual or isinstance(expected, bool) != isinstance(actual, bool):
        yield f"{where}: expected {expected!r}, got {actual!r}"


def words_of(case: dict[str, Any], folder: Path) -> list[str]:
    """Write the case into ``folder``: the words to type behind ``zenit-hub``."""
    config = base64.b64decode(case.get("config_bytes_b64", "")) or json.dumps(case.get("config")).encode()
    (folder / "config.json").write_bytes(config)
    (folder / "machine.json").write_text(json.dumps(case["machine"]), encoding="utf-8")
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    typed = [case.get("model", "{dir}"), *case.get("plan_args", []), "--", *case["args"]]
    machine = ["--machine", str(folder / "machine.json"), "--json"]
    model, *rest = [word.replace("{dir}", str(folder)) for word in typed]
    return ["plan", model, *machine, *rest]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_plan_is_what_the_field_case_says(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status, answer, warning codes and figures in the messages are those of the case."""
    status = main(words_of(case, tmp_path))
    out, err = capsys.readouterr()

    assert status == case["exit"], err
    if status in _WITHOUT_ANSWER:
        assert out == ""
        assert len(err.splitlines()) == 1
        return
    answer = json.loads(out)
    codes = {warning["code"] for warning in answer["warnings"]}
    messages = " ".join(warning["message"] for warning in answer["warnings"])
    assert list(mismatches(case["expect"], answer)) == []
    assert codes >= set(case.get("expect_warnings", [])), codes
    assert not codes & set(case.get("forbid_warnings", [])), codes
    assert [text for text in case.get("message_contains", []) if text not in messages] == []


def test_all_cases_are_here_once() -> None:
    """The file holds the 257 cases, each under its own id."""
    assert len({case["id"] for case in CASES}) == len(CASES) == 257


@pytest.mark.parametrize(
    ("expected", "actual", "holds"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": {"$absent": True}}, {}, True),
        ({"a": {"$absent": True}}, {"a": None}, False),
        ({"a": {"$between": [1, 2]}}, {"a": 2}, True),
        ({"a": {"$between": [1, 2]}}, {"a": True}, False),
        ({"a": {"$between": [1, 2]}}, {"a": 2.1}, False),
        ({"a": {}}, {"a": None}, False),
        ({"a": [1]}, {"a": [1, 2]}, False),
    ],
)
def test_the_matcher_tells_a_part_from_another_answer(expected: Any, actual: Any, holds: bool) -> None:
    """Objects match as subsets; everything else matches whole, ``true`` never as 1."""
    assert (not list(mismatches(expected, actual))) is holds
