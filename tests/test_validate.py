"""What `zenit_hub.maintain.validate` finds in a config, and what it never does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from zenit_hub.compat import KV_CACHE_DTYPES
from zenit_hub.maintain.figures import MEASURED_PINS
from zenit_hub.maintain.finding import MAX_SHOWN
from zenit_hub.maintain.meaning import Asked
from zenit_hub.maintain.validate import MAX_VALUES, Report, validate
from zenit_hub.resources import schema
from zenit_hub.section import Section, read_section

EXAMPLES = Path(__file__).parent / "examples"
ALL_EXAMPLES = sorted(EXAMPLES.glob("*/*.json"), key=lambda path: (path.parent.name, path.name))
MIB = 2**20


def in_config(section: object, **config: object) -> bytes:
    return json.dumps({**config, "serving_profiles": section}).encode()


def one_profile(**profile: object) -> bytes:
    return in_config({"profiles": {"p": {"max_model_len": 32768, **profile}}})


def messages(report: Report) -> str:
    return "\n".join(finding.message for finding in report.findings)


# --- the examples


@pytest.mark.parametrize("path", ALL_EXAMPLES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_an_example_is_found_as_its_folder_and_its_expected_file_say(path: Path) -> None:
    report = validate(path.read_bytes())

    expected = path.with_suffix(".expected")
    found = [
        f"{finding.level} {finding.line or '-'} {finding.path or '-'} | {finding.message} | {finding.fix}"
        for finding in report.findings
    ]
    assert found == (expected.read_text(encoding="utf-8").splitlines() if expected.exists() else [])
    assert report.valid is (path.parent.name == "valid")


def test_every_expected_file_has_its_example() -> None:
    assert {path.with_suffix(".json") for path in EXAMPLES.glob("*/*.expected")} <= set(ALL_EXAMPLES)


def test_every_finding_of_an_invalid_example_says_what_to_do() -> None:
    for path in EXAMPLES.glob("invalid/*.json"):
        assert all(finding.fix for finding in validate(path.read_bytes()).findings), path.name


# --- the block of a hybrid model (C1-08, C6-06)


def test_a_batch_below_the_block_names_both() -> None:
    data = one_profile(max_num_batched_tokens=2048, enable_prefix_caching=True)

    report = validate(data, Asked(block_tokens=2096))

    assert not report.valid
    assert "2096" in messages(report)
    assert "2048" in messages(report)


@pytest.mark.parametrize(("caching", "valid"), [(None, False), (True, False), (False, True)])
def test_a_batch_below_the_block_is_an_error_unless_prefix_caching_is_off(
    caching: bool | None, valid: bool
) -> None:
    profile = {"max_num_batched_tokens": 2048} | (
        {} if caching is None else {"enable_prefix_caching": caching}
    )

    assert validate(one_profile(**profile), Asked(block_tokens=2096)).valid is valid


def test_a_batch_of_one_block_is_enough() -> None:
    data = one_profile(max_num_batched_tokens=2096, enable_prefix_caching=True)

    assert validate(data, Asked(block_tokens=2096)).findings == ()


def test_a_window_that_holds_no_second_block_is_a_warning() -> None:
    data = in_config({"profiles": {"p": {"max_model_len": 4096, "enable_prefix_caching": True}}})

    report = validate(data, Asked(block_tokens=8320))

    assert [finding.level for finding in report.findings] == ["warning"]
    assert "cannot hit" in messages(report)


def test_nothing_is_said_about_a_block_that_nobody_knows() -> None:
    data = one_profile(max_num_batched_tokens=16, enable_prefix_caching=True)

    assert validate(data).findings == ()


# --- the repo that was measured


@pytest.mark.parametrize(
    ("asked", "levels"),
    [
        (Asked(repo="other-org/finetune"), ["error"]),
        (Asked(hub_id="other-org/finetune"), ["warning"]),
        (Asked(repo="example-org/example-model", hub_id="other-org/finetune"), []),
        (Asked(hub_id="example-org/example-model"), []),
        (Asked(), []),
    ],
)
def test_figures_of_another_repo_are_an_error_where_the_repo_was_named(
    asked: Asked, levels: list[str]
) -> None:
    data = in_config({"repo": "example-org/example-model", "profiles": {"p": {"max_model_len": 1}}})

    report = validate(data, asked)

    assert [finding.level for finding in report.findings] == levels
    assert all("example-org/example-model" in finding.message for finding in report.findings)
    assert all("other-org/finetune" in finding.message for finding in report.findings)


# --- values that every supported engine or none knows


@pytest.mark.parametrize("dtype", sorted(KV_CACHE_DTYPES))
def test_a_kv_type_of_any_supported_vllm_is_valid(dtype: str) -> None:
    assert validate(one_profile(kv_cache_dtype=dtype)).findings == ()


@pytest.mark.parametrize(
    "conf",
    [
        "expandable_segments:False",
        "max_split_size_mb:21",
        "garbage_collection_threshold:0.99",
        "roundup_power2_divisions:16",
        "roundup_power2_divisions:[>:8]",
        "roundup_power2_divisions:[256:1,512:2,>:0],max_split_size_mb:512",
    ],
)
def test_an_allocator_setting_that_pytorch_accepts_is_valid(conf: str) -> None:
    assert validate(one_profile(cuda_alloc_conf=conf)).findings == ()


@pytest.mark.parametrize(
    "conf",
    [
        "",
        "expandable_segments",
        "expandable_segments:true",
        "expandable_segments:True,",
        "expandable_segments:True\n",
        "expandable_segments: True",
        "max_split_size_mb:20",
        "garbage_collection_threshold:0.0",
        "garbage_collection_threshold:1.0",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[256:1",
        "roundup_power2_divisions:[300:1]",
        "pinned_use_cuda_host_register:True",
        "per_process_memory_fraction:0.5",
        "backend:native",
    ],
)
def test_an_allocator_setting_that_stops_pytorch_or_reserves_memory_is_one_error(conf: str) -> None:
    report = validate(one_profile(cuda_alloc_conf=conf))

    assert [finding.path for finding in report.findings] == ["/serving_profiles/profiles/p/cuda_alloc_conf"]
    assert not report.valid


# --- sizes


def test_a_config_of_16_mib_is_read_and_one_byte_more_is_not() -> None:
    data = one_profile()
    filler = b" " * (16 * MIB - len(data))

    assert validate(data + filler).findings == ()
    assert "16 MiB" in messages(validate(data + filler + b" "))


@pytest.mark.parametrize("data", [b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000])
def test_nesting_without_end_is_one_error(data: bytes) -> None:
    assert [finding.message for finding in validate(data).findings] == [
        "the file is nested deeper than 64 and is not read"
    ]


@pytest.mark.parametrize(("plan_bytes", "valid"), [(4096, True), (4097, False)])
def test_a_plan_of_4096_bytes_is_valid_and_one_byte_more_is_not(plan_bytes: int, valid: bool) -> None:
    plan = {"group": 10 ** (plan_bytes - len('{"group":1}'))}
    assert len(json.dumps(plan, separators=(",", ":"))) == plan_bytes

    assert validate(one_profile(position_plan=plan)).valid is valid


@pytest.mark.parametrize(("entries", "valid"), [(256, True), (257, False)])
def test_measurements_are_few(entries: int, valid: bool) -> None:
    measurements = [{"device": f"card {index}", "vllm": "0.33.0"} for index in range(entries)]

    assert validate(one_profile(measurements=measurements)).valid is valid


def test_brackets_in_strings_nest_nothing() -> None:
    assert validate(in_config({"profiles": {"p": {"max_model_len": 1}}}, a="[" * 99, b='\\"[' * 99)).valid


@pytest.mark.parametrize("digits", [400, 4_000, 100_000])
def test_a_number_of_many_digits_is_one_short_error(digits: int) -> None:
    data = one_profile(max_num_seqs=5).replace(b"5", b"1" + b"0" * (digits - 1))

    report = validate(data)

    assert [finding.path for finding in report.findings] == ["/serving_profiles/profiles/p/max_num_seqs"]
    assert len(report.findings[0].message) < 200


HOSTILE = {
    "a hundred thousand profiles": in_config({"profiles": {f"p{index}": {} for index in range(100_000)}}),
    "a hundred thousand unknown keys": one_profile(**{f"k{index}": 0 for index in range(100_000)}),
    "many unknown keys in many profiles": in_config(
        {"profiles": {f"p{one}": {f"requires_{two}": 0 for two in range(700)} for one in range(64)}}
    ),
    "a hundred thousand measurements": one_profile(measurements=[{"device": "x"}] * 100_000),
    "strings of a megabyte": in_config(
        {
            "default_profile": "z" * MIB,
            "profiles": {"a" * MIB: {"max_model_len": 1, "description": "x" * MIB + "\n"}},
        }
    ),
    "names that move the cursor": in_config(
        {"profiles": {"/~\x1b\u202e" * 50 + str(one): {} for one in range(64)}}
    ),
    "half a character": b'{"serving_profiles": {"profiles": {"\\ud800": {"max_model_len": 1, "\\udfff": 2}}}}',
    "one key ten thousand times": b"{" + b'"a": 1, ' * 10_000 + b'"b": 1}',
    "ten thousand keys twice": b"{"
    + b"".join(b'"a%d": 1, "a%d": 1, ' % (i, i) for i in range(10_000))
    + b'"b": 1}',
    "NaN everywhere": b'{"a": [' + b"NaN, " * 10_000 + b"0]}",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_section_is_answered_with_few_short_and_printable_findings(data: bytes) -> None:
    report = validate(data)

    assert 1 <= len(report.findings) <= MAX_SHOWN + 1
    for finding in report.findings:
        text = f"{finding.path}{finding.message}{finding.fix}"
        assert len(text) < 2000
        assert text.isprintable()


def test_findings_beyond_those_listed_are_counted() -> None:
    profiles = {f"p{index}": {"window": 1, "seqs": 1} for index in range(64)}

    findings = validate(in_config({"profiles": profiles})).findings

    assert len(findings) == MAX_SHOWN + 1
    assert findings[-1].level == "error"
    assert f"{3 * 64 - MAX_SHOWN} more" in findings[-1].message


def test_a_section_at_every_limit_stays_below_the_number_of_values_that_is_looked_at() -> None:
    stages = [{"group": 2, "first_pair": 1, "last_pair": 9, "clamp": 1} for _ in range(64)]
    profile = {"max_model_len": 1, "position_plan": {"stages": stages}}
    section = {"profiles": {f"p{index}": profile for index in range(64)}}

    assert validate(in_config(section)).findings == ()
    assert f"more than {MAX_VALUES} values" in messages(
        validate(one_profile(measurements=[0] * (MAX_VALUES + 1)))
    )


# --- properties

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PROFILE_KEYS = sorted(schema()["$defs"]["profile"]["properties"])
LIKELY = (
    st.sampled_from([True, False, 0, 1, 1.0, 4096, 2**31, "fp8", "8.9", "expandable_segments:True", [], {}])
    | st.just({"stages": [{"group": 2}]})
    | st.just([{"device": "cpu", "requires_free_bytes": 5, "vllm": "0.33.0"}])
)
PROFILES = st.dictionaries(st.sampled_from(PROFILE_KEYS) | st.text(max_size=6), LIKELY | JUNK, max_size=8)
SECTIONS = st.fixed_dictionaries(
    {
        "profiles": st.dictionaries(st.sampled_from(["a", "b", "off", ".."]), PROFILES | JUNK, max_size=3)
        | JUNK
    },
    optional={
        "default_profile": st.just("a") | JUNK,
        "schema_version": JUNK,
        "repo": JUNK,
        "architectures": JUNK,
    },
)


@settings(max_examples=60, deadline=None)
@given(section=SECTIONS | JUNK, config=st.dictionaries(st.text(max_size=5), JUNK, max_size=2))
def test_any_section_gives_findings_and_no_exception(section: Any, config: dict[str, Any]) -> None:
    data = in_config(section, **config)

    report = validate(data)

    assert report.valid is not any(finding.level == "error" for finding in report.findings)
    assert all(finding.line in (1, None) for finding in report.findings)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]":,1eN \n\\', max_size=60).map(str.encode))
def test_any_bytes_give_findings_and_no_exception(data: bytes) -> None:
    assert validate(data).findings


EXAMPLE_VALUES = {
    key: st.sampled_from(rule["examples"]) for key, rule in schema()["$defs"]["profile"]["properties"].items()
}
PINS = ("max_model_len", *MEASURED_PINS)
NEARLY_SOUND = st.builds(
    lambda profile, other: {**profile, **other},
    st.fixed_dictionaries(
        {key: EXAMPLE_VALUES[key] for key in PINS},
        optional={key: values for key, values in EXAMPLE_VALUES.items() if key not in PINS},
    ),
    st.dictionaries(st.sampled_from(PROFILE_KEYS), LIKELY, max_size=1),
)


@settings(max_examples=100, deadline=None)
@given(profiles=st.dictionaries(st.sampled_from(["a", "b", "off"]), NEARLY_SOUND, max_size=2))
def test_what_is_valid_here_serves_at_run_time(profiles: dict[str, Any]) -> None:
    data = in_config({"profiles": profiles})

    valid, reading = validate(data).valid, read_section(json.loads(data), KV_CACHE_DTYPES)

    target(float(valid))
    serves = isinstance(reading, Section) and not reading.invalid and not reading.unknown_keys
    assert serves or not valid
