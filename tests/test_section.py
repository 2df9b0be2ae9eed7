"""The section as typed data: what applies, what drops out, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import DTYPES
from zenit_hub.resources import schema
from zenit_hub.section import (
    ARCHITECTURE_ID,
    CONFIG_KEY,
    ENGINE_FIELDS,
    LAYOUT_FIELDS,
    NEUTRAL_KEY,
    ONE_DEVICE,
    InvalidSection,
    Layout,
    NoSection,
    OtherArchitecture,
    Profile,
    Reading,
    Section,
    parse_capability,
    read_section,
    section_key,
    valid_arguments,
)

OWN = "TinyForCausalLM"
ONE = {"p": {"max_model_len": 4096}}


def read(body: object, key: str = NEUTRAL_KEY, architectures: object = (OWN,), **rest: object) -> Reading:
    return read_section({key: body, "architectures": architectures, **rest}, DTYPES)


def profile(**values: object) -> Profile | str:
    """The typed profile, or why it drops out."""
    reading = read({"profiles": {"p": {"max_model_len": 4096, **values}}})
    assert isinstance(reading, Section)
    return reading.profiles["p"] if "p" in reading.profiles else reading.invalid["p"]


def plan_of(**values: object) -> Profile | str:
    return profile(position_plan=values)


# --- which section, and for whom


def test_the_familys_own_key_counts_before_the_neutral_one() -> None:
    """Where both stand, the family's is read, also where the other would have served."""
    config = {CONFIG_KEY: {"profiles": {}}, NEUTRAL_KEY: {"profiles": ONE}, "architectures": [OWN]}

    assert section_key(config) == CONFIG_KEY
    assert isinstance(read_section(config, DTYPES), InvalidSection)


def test_a_null_section_is_none() -> None:
    """``null`` is how a key is taken out; the other name counts then."""
    config = {CONFIG_KEY: None, NEUTRAL_KEY: {"profiles": ONE}, "architectures": [OWN]}

    assert isinstance(read_section(config, DTYPES), Section)
    assert isinstance(read_section({CONFIG_KEY: None}, DTYPES), NoSection)


def test_a_speculator_repo_has_no_section() -> None:
    """Its base model's section would speak for another launch."""
    assert isinstance(read({"profiles": ONE}, speculators_config={"algorithm": "eagle"}), NoSection)


@pytest.mark.parametrize(
    ("key", "spoken_for", "own", "applies"),
    [
        (CONFIG_KEY, None, [ARCHITECTURE_ID], True),
        (CONFIG_KEY, None, [OWN], False),
        (CONFIG_KEY, [OWN], ["Other", OWN], True),
        (CONFIG_KEY, [OWN], [], False),
        (NEUTRAL_KEY, None, [OWN], True),
        (NEUTRAL_KEY, None, [], True),
        (NEUTRAL_KEY, None, None, True),
        (NEUTRAL_KEY, [OWN], [OWN], True),
        (NEUTRAL_KEY, [OWN], ["Other"], False),
        (NEUTRAL_KEY, [OWN], None, False),
        (NEUTRAL_KEY, [OWN], "TinyForCausalLM", False),
        (NEUTRAL_KEY, [OWN], [7, {"a": 1}, OWN], True),
    ],
)
def test_a_section_applies_to_the_architectures_that_it_speaks_for(
    key: str, spoken_for: list[str] | None, own: object, applies: bool
) -> None:
    """Named or by the rule of its key; a config without architectures is only the neutral key's."""
    body = {"profiles": ONE} | ({} if spoken_for is None else {"architectures": spoken_for})

    reading = read(body, key, own)

    assert isinstance(reading, Section if applies else OtherArchitecture)


# --- what makes the whole section unusable


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "must be an object, got a list"),
        (False, "got true or false"),
        ("profiles", "got a string"),
        ({}, "profiles must be an object of profiles, got nothing"),
        ({"profiles": []}, "got a list"),
        ({"profiles": {}}, "holds 0 profiles, allowed: 1 to 64"),
        ({"profiles": {f"p{n}": {"max_model_len": 1} for n in range(65)}}, "holds 65 profiles"),
        ({"profiles": ONE, "schema_version": 2}, "schema_version 2 is not known here, allowed: 1"),
        ({"profiles": ONE, "schema_version": True}, "schema_version true"),
        ({"profiles": ONE, "schema_version": "1"}, 'schema_version "1"'),
        ({"profiles": ONE, "schema_version": None}, "schema_version null"),
        ({"profiles": ONE, "schema_version": 10**400}, "a whole number of 1329 bits"),
        ({"profiles": ONE, "schema_version": "\x1b[31m" + "x" * 999}, "\\u001b"),
        ({"profiles": ONE, "default_profile": 7}, "default_profile: must be string, got 7"),
        ({"profiles": ONE, "architectures": []}, "architectures"),
        ({"profiles": ONE, "architectures": OWN}, "architectures: must be array"),
        ({"profiles": ONE, "repo": "https://hub/x"}, "repo: is not of the allowed form"),
    ],
)
def test_an_unusable_section_says_where_and_what_is_allowed(body: object, words: str) -> None:
    """One sentence on one line, never the whole of what a stranger wrote."""
    reading = read(body)

    assert isinstance(reading, InvalidSection)
    assert words in reading.why
    assert reading.why.isprintable()
    assert len(reading.why) < 200


def test_version_one_may_be_written_with_a_point() -> None:
    """JSON does not tell 1 from 1.0."""
    assert isinstance(read({"profiles": ONE, "schema_version": 1.0}), Section)


def test_unknown_keys_of_the_section_are_noted_and_harm_nothing() -> None:
    """A later version may say more."""
    reading = read({"profiles": ONE, "$comment": "x", "requires_moon": True})

    assert isinstance(reading, Section)
    assert reading.unknown_keys == ("$comment", "requires_moon")


# --- what drops one profile out


@pytest.mark.parametrize(
    "name",
    ["", "off", ".x", "-x", "..", "a/b", "a b", "p\n", "p\u202e", "x" * 65, "é"],
)
def test_a_name_that_is_none_drops_its_profile_alone(name: str) -> None:
    """The valid profiles beside it still serve."""
    reading = read({"profiles": {name: {"max_model_len": 1}, **ONE}})

    assert isinstance(reading, Section)
    assert list(reading.profiles) == ["p"]
    assert "a name is 1 to 64" in reading.invalid[name]


@pytest.mark.parametrize("name", ["off.", "OFF", "Off", "offline", "0", "a.b-c_d", "x" * 64])
def test_a_name_may_be_anything_else(name: str) -> None:
    """Only ``off`` itself is taken."""
    reading = read({"profiles": {name: {"max_model_len": 1}}})

    assert isinstance(reading, Section)
    assert list(reading.profiles) == [name]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_model_len": 0}, "max_model_len: must be 1 or more, got 0"),
        ({"max_model_len": 2**31}, "max_model_len: must be 2147483647 or less"),
        ({"max_model_len": "4096"}, 'max_model_len: must be integer, got "4096"'),
        ({"max_model_len": True}, "got true"),
        ({"max_model_len": 4096.5}, "got 4096.5"),
        ({"max_model_len": None}, "got null"),
        ({"max_model_len": 10**400}, "a whole number of 1329 bits"),
        ({"max_num_seqs": 65_537}, "must be 65536 or less"),
        ({"max_num_batched_tokens": 2**31}, "must be 2147483647 or less"),
        ({"kv_cache_memory_bytes": 0}, "must be 1 or more"),
        ({"requires_free_bytes": -1}, "must be 1 or more"),
        ({"requires_free_bytes": float("nan")}, "must be integer, got NaN"),
        ({"requires_free_bytes": float("inf")}, "got Infinity"),
        ({"gpu_memory_utilization": 0}, "must be above 0"),
        ({"gpu_memory_utilization": 1.0001}, "must be 1 or less"),
        ({"gpu_memory_utilization": float("nan")}, "must be number, got NaN"),
        ({"gpu_memory_utilization": True}, "must be number"),
        ({"swap_space": -0.5}, "must be 0 or more"),
        ({"swap_space": float("inf")}, "must be number"),
        ({"tensor_parallel_size": 0}, "must be 1 or more"),
        ({"enforce_eager": 1}, "enforce_eager: must be boolean, got 1"),
        ({"requires_compute_capability": 8.9}, "must be string"),
        ({"requires_compute_capability": "8"}, "not of the allowed form"),
        ({"kv_cache_dtype": "fp7"}, 'does not know "fp7", it knows auto, '),
        ({"kv_cache_dtype": ["fp8"]}, "got a list"),
        ({"cuda_alloc_conf": "per_process_memory_fraction:0.5"}, "not of the allowed form"),
        ({"cuda_alloc_conf": "expandable_segments:True,backend:cudaMallocAsync"}, "not of the allowed form"),
        ({"cuda_alloc_conf": "expandable_segments:True\n"}, "not of the allowed form"),
        ({"noosphere_mode": "../x"}, "not of the allowed form"),
        ({"description": "x" * 201}, "must have 200 characters at most"),
        ({"description": "two\nlines"}, "not of the allowed form"),
        ({"description": "\u202eright to left"}, "not of the allowed form"),
        ({"measurements": {}}, "must be array, got an object"),
        ({"measurements": [{"requires_free_bytes": 0}]}, "measurements.0.requires_free_bytes"),
        ({"measurements": [{"receipt": "../x"}]}, "measurements.0.receipt"),
    ],
)
def test_a_value_out_of_its_range_drops_the_profile_and_says_which(
    values: dict[str, Any], words: str
) -> None:
    """Where, what was got and what is allowed, in one printable line."""
    why = profile(**values)

    assert isinstance(why, str)
    assert words in why
    assert why.isprintable()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"group": "4"}, 'position_plan.group: must be number or boolean, got "4"'),
        ({"group": None}, "position_plan.group"),
        ({"group": [1]}, "position_plan.group"),
        ({"group": float("nan")}, "position_plan.group"),
        ({"table": 1}, "position_plan"),
        ({"stages": {}}, "position_plan.stages"),
        ({"stages": [[]]}, "position_plan.stages.0"),
        ({"stages": [{"group": "2"}]}, "position_plan.stages.0.group"),
        ({"stages": [{}] * 65}, "must have 64 entries at most"),
        ({"stages": [{"clamp": 10**70}] * 60}, "bytes as compact JSON, allowed: 4096"),
        ({"group": 10**4096}, "takes 4107 bytes"),
    ],
)
def test_a_plan_that_is_no_plan_drops_the_profile(plan: dict[str, Any], words: str) -> None:
    """Numbers and booleans only, 64 stages, 4 KiB."""
    why = plan_of(**plan)

    assert isinstance(why, str)
    assert words in why


def test_a_plan_of_4096_bytes_is_one() -> None:
    """The limit itself is allowed."""
    assert isinstance(plan_of(group=10 ** (4096 - len('{"group":1}'))), Profile)


@pytest.mark.parametrize("body", [None, [], 4096, "4096", True])
def test_a_profile_that_is_no_object_drops_out(body: object) -> None:
    """Whatever stands under the name."""
    reading = read({"profiles": {"p": body}})

    assert isinstance(reading, Section)
    assert "a profile must be an object" in reading.invalid["p"]


def test_a_profile_without_a_window_drops_out() -> None:
    """The one key that is required is named."""
    reading = read({"profiles": {"p": {}}})

    assert isinstance(reading, Section)
    assert reading.invalid["p"] == "lacks max_model_len"


def test_every_kv_type_depends_on_the_engine_that_is_asked() -> None:
    """A type of a later engine drops the profile on an earlier one."""
    config = {NEUTRAL_KEY: {"profiles": {"p": {"max_model_len": 1, "kv_cache_dtype": "fp8"}}}}

    assert isinstance(read_section(config, {"auto", "fp8"}), Section)
    reading = read_section(config, {"auto"})
    assert isinstance(reading, Section)
    assert reading.profiles == {}


# --- what a valid one becomes


def test_a_whole_number_may_be_written_with_a_point() -> None:
    """JSON does not tell 4096.0 from 4096; the engine gets the integer."""
    found = profile(max_model_len=4096.0, kv_cache_memory_bytes=1e9, gpu_memory_utilization=1.0)

    assert isinstance(found, Profile)
    assert (found.max_model_len, found.pin_bytes) == (4096, 1_000_000_000)
    assert isinstance(found.arguments["kv_cache_memory_bytes"], int)


def test_unknown_keys_are_noted_and_those_of_a_later_version_are_conditions() -> None:
    """``requires_…`` keys that nobody here can check are told apart."""
    found = profile(requires_flash=True, note="x")

    assert isinstance(found, Profile)
    assert found.unknown_keys == ("requires_flash", "note")
    assert found.unknown_requirements == ("requires_flash",)
    assert found.arguments == {"max_model_len": 4096}


def test_unknown_keys_of_a_measurement_are_noted_and_its_figure_counts() -> None:
    """A later version may write more into an entry; nothing of the profile depends on it."""
    found = profile(measurements=[{"device": "Card A"}, {"requires_free_bytes": 7, "date": "2026-08-01"}])

    assert isinstance(found, Profile)
    assert found.unknown_keys == ("measurements.1.date",)
    assert found.unknown_requirements == ()
    assert found.measurements[1].requires_free_bytes == 7


@pytest.mark.parametrize("key", ["trust_remote_code", "model", "download_dir", "hf_overrides", "env"])
def test_a_key_outside_the_list_never_becomes_an_argument(key: str) -> None:
    """What the specification does not list stays what it is: an unknown key."""
    found = profile(**{key: True})

    assert isinstance(found, Profile)
    assert set(found.arguments) == {"max_model_len"}


@pytest.mark.parametrize(
    ("entry", "layout"),
    [
        ({}, Layout(2, 3)),
        ({"tensor_parallel_size": 4}, Layout(4, 1)),
        ({"pipeline_parallel_size": 2}, Layout(1, 2)),
        ({"tensor_parallel_size": 1, "pipeline_parallel_size": 1}, ONE_DEVICE),
    ],
)
def test_a_measurement_is_of_the_profiles_layout_unless_it_names_one(
    entry: dict[str, int], layout: Layout
) -> None:
    """One size named counts for both, as on the command line."""
    found = profile(tensor_parallel_size=2, pipeline_parallel_size=3, measurements=[entry])

    assert isinstance(found, Profile)
    assert found.layout == Layout(2, 3)
    assert found.measurements[0].layout == layout


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("8.9", (8, 9)),
        ("12.0", (12, 0)),
        ("", None),
        ("8", None),
        ("8.x", None),
        ("a.9", None),
        ("8.9.1", None),
        ("-8.9", None),
        ("².9", None),
        ("9" * 5000 + ".0", None),
    ],
)
def test_a_capability_is_two_numbers_or_nothing(text: str, capability: tuple[int, int] | None) -> None:
    """12.0 is above 8.9; what cannot be read excludes nothing."""
    assert parse_capability(text) == capability


# --- the list of what may be set


def test_the_fields_in_the_code_are_those_of_the_schema() -> None:
    """Each engine argument and size stands in the schema's profile, and nothing there goes unread."""
    keys = set(schema()["$defs"]["profile"]["properties"])
    read_apart = {
        "requires_free_bytes",
        "requires_compute_capability",
        "cuda_alloc_conf",
        "noosphere_mode",
        "position_plan",
        "measurements",
        "description",
    }

    assert keys == {*ENGINE_FIELDS, *LAYOUT_FIELDS} | read_apart


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [
        ({}, True),
        ({"max_model_len": 4096, "tensor_parallel_size": 2}, True),
        ({"gpu_memory_utilization": 0.5}, True),
        ({"trust_remote_code": True}, False),
        ({"max_model_len": "4096"}, False),
        ({"max_model_len": 0}, False),
        ({"gpu_memory_utilization": float("nan")}, False),
        ({"cuda_alloc_conf": "expandable_segments:True"}, False),
        ({"requires_free_bytes": 1}, False),
        ({"kv_cache_dtype": "/etc/passwd"}, False),
    ],
)
def test_arguments_from_elsewhere_are_held_against_the_list(arguments: dict[str, Any], valid: bool) -> None:
    """Names of engine arguments only, each within its range."""
    assert valid_arguments(arguments) is valid
