"""Measurements → the new values of a section, and what may not be published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measurements import CARD, FIGURE_BYTES, GIB, a_boot, a_measurement
from zenit_hub.errors import PublicationError
from zenit_hub.maintain.measurement import Failure, MeasuredProfile, Measurement, Verification, WeightFile
from zenit_hub.maintain.publish.entries import Changes, changes, written
from zenit_hub.maintain.publish.refusals import fault, refusal
from zenit_hub.maintain.publish.splice import splice
from zenit_hub.maintain.validate import validate
from zenit_hub.section import CONFIG_KEY, NEUTRAL_KEY, Layout

OTHER_CARD = "NVIDIA H100 80GB HBM3"
RECEIPT = "m256k/nvidia-geforce-rtx-5090-0123456789ab.json"
VALUES: Mapping[str, Any] = a_measurement().profile.values
"""The profile as it was measured: the four pins and a window."""

UNPINNED = {key: value for key, value in VALUES.items() if key != "kv_cache_memory_bytes"}
WEIGHTS = a_measurement().model.weights


def a_config(key: str = NEUTRAL_KEY, **m256k: object) -> dict[str, Any]:
    """A section with two profiles, the measured one with ``m256k`` over what was measured."""
    profiles = {"s32k": {"max_model_len": 32768}, "m256k": {**VALUES, **m256k}}
    return {
        "architectures": ["TinyForCausalLM"],
        key: {"architectures": ["TinyForCausalLM"], "profiles": profiles},
    }


def entry(device: str, figure_bytes: int, vllm: str = "0.32.0", **more: object) -> dict[str, Any]:
    return {"device": device, "requires_free_bytes": figure_bytes, "vllm": vllm, **more}


def a_run(
    device: str = CARD, figure_bytes: int = FIGURE_BYTES, vllm: str = "0.33.0", **more: Any
) -> Measurement:
    """A measurement of ``m256k``; ``tensor``: its ranks; ``values``: of the profile as it stood."""
    whole = a_measurement()
    profile = MeasuredProfile("m256k", more.pop("values", VALUES), more.pop("tensor", 1))
    return replace(
        whole,
        profile=profile,
        device=replace(whole.device, name=device),
        versions=replace(whole.versions, vllm=vllm),
        requires_free_bytes=figure_bytes,
        **{"boots": (a_boot("cold", figure_bytes),), **more},
    )


def published(config: Mapping[str, Any], *runs: Measurement) -> dict[str, Any]:
    """The profile as it is after the splice; the whole file must be valid then."""
    data = json.dumps(config, indent=2).encode()
    found = changes(config, [(run, RECEIPT) for run in runs])
    after = splice(data, found.values)
    assert fault(after) is None
    assert validate(after).valid
    key = next(key for key in (CONFIG_KEY, NEUTRAL_KEY) if key in config)
    profile: dict[str, Any] = json.loads(after)[key]["profiles"]["m256k"]
    return profile


def why_not(
    config: Mapping[str, Any], run: Measurement, weights: Sequence[WeightFile] = WEIGHTS, **how: bool
) -> str:
    why = refusal(config, weights, run, **how)
    assert why is not None
    return why


# --- "Own: entries"

MEASURED = a_config(
    requires_free_bytes=25769803776,
    measurements=[entry(CARD, 25769803776), entry(OTHER_CARD, 24696061952)],
)
"""m256k with card A at 24 GiB and card B at 23 GiB, vLLM 0.32.0, one rank each."""


def test_a_new_run_replaces_the_entry_of_its_card_and_the_figure_becomes_the_largest_left() -> None:
    """A: 24 → 22 GiB with 0.33.0, B stays at 23: two entries, the figure becomes 23 GiB."""
    after = published(MEASURED, a_run(CARD, 23622320128))

    assert after["measurements"] == [
        entry(CARD, 23622320128, "0.33.0", receipt=RECEIPT),
        entry(OTHER_CARD, 24696061952),
    ]
    assert after["requires_free_bytes"] == 24696061952


def test_a_run_with_more_ranks_is_an_entry_of_its_own_and_leaves_the_figure() -> None:
    """A with two ranks, 12 GiB: a third entry, the figure stays."""
    after = published(MEASURED, a_run(CARD, 12 * GIB, tensor=2))

    assert after["measurements"] == [
        *MEASURED[NEUTRAL_KEY]["profiles"]["m256k"]["measurements"],
        {
            "device": CARD,
            "tensor_parallel_size": 2,
            "pipeline_parallel_size": 1,
            "requires_free_bytes": 12 * GIB,
            "vllm": "0.33.0",
            "receipt": RECEIPT,
        },
    ]
    assert after["requires_free_bytes"] == 25769803776


def test_a_moved_head_alone_is_no_reason() -> None:
    """Another commit, the same values and weights."""
    run = a_run(model=replace(a_measurement().model, commit="e" * 40, config_sha256="f" * 64))

    assert refusal(MEASURED, WEIGHTS, run) is None


def test_a_changed_value_is_refused_and_both_are_shown() -> None:
    config = a_config(max_num_seqs=4)

    why = why_not(config, a_run())

    assert why == (
        f"m256k on {CARD}: the profile has changed since it was measured: max_num_seqs was 1, is 4; "
        "measure it again"
    )


def test_a_changed_weight_file_is_refused_and_both_hashes_are_shown() -> None:
    now = [WeightFile("model.safetensors", 15 * GIB, "d" * 64, None)]

    why = why_not(MEASURED, a_run(), now)

    assert "model.safetensors was sha256 cccccccccccc…, is sha256 dddddddddddd…; measure it again" in why


# --- what is written


@pytest.mark.parametrize("key", [CONFIG_KEY, NEUTRAL_KEY])
def test_the_first_figure_of_a_profile_comes_at_its_end(key: str) -> None:
    """Under either key: the missing pin, the figure, the entry, after what stands there."""
    config = a_config(key)
    config[key]["profiles"]["m256k"] = dict(UNPINNED)

    after = published(config, a_run(values=UNPINNED))

    assert list(after) == [*UNPINNED, "kv_cache_memory_bytes", "requires_free_bytes", "measurements"]
    assert after["kv_cache_memory_bytes"] == 6 * GIB
    assert after["requires_free_bytes"] == FIGURE_BYTES
    assert after["measurements"] == [entry(CARD, FIGURE_BYTES, "0.33.0", receipt=RECEIPT)]


def test_a_figure_is_replaced_where_it_stands() -> None:
    config = a_config(requires_free_bytes=30 * GIB, description="d")

    after = published(config, a_run())

    assert list(after) == [*VALUES, "requires_free_bytes", "description", "measurements"]
    assert after["requires_free_bytes"] == FIGURE_BYTES


def test_where_both_keys_stand_the_one_that_is_read_gets_the_figure() -> None:
    config = {**a_config(), CONFIG_KEY: a_config()[NEUTRAL_KEY]}

    places = changes(config, [(a_run(), RECEIPT)]).values

    assert {place[0] for place in places} == {CONFIG_KEY}


def test_an_entry_without_sizes_is_of_the_profiles_own_layout() -> None:
    """A profile for two ranks: a two-rank run replaces the entry that names no sizes."""
    values = {**VALUES, "tensor_parallel_size": 2}
    config = a_config(**values, requires_free_bytes=13 * GIB, measurements=[entry(CARD, 13 * GIB)])

    after = published(config, a_run(CARD, 12 * GIB, tensor=2, values=values))

    assert after["measurements"] == [entry(CARD, 12 * GIB, "0.33.0", receipt=RECEIPT)]
    assert after["requires_free_bytes"] == 12 * GIB


def test_an_entry_that_names_its_sizes_is_found_too() -> None:
    config = a_config(
        requires_free_bytes=GIB,
        measurements=[entry(CARD, GIB, tensor_parallel_size=1, pipeline_parallel_size=1)],
    )

    assert len(published(config, a_run())["measurements"]) == 1


def test_several_cards_of_one_profile_go_in_together() -> None:
    after = published(a_config(), a_run(CARD, 20 * GIB), a_run(OTHER_CARD, 21 * GIB), a_run("cpu", 5 * GIB))

    assert [each["device"] for each in after["measurements"]] == [CARD, OTHER_CARD, "cpu"]
    assert after["requires_free_bytes"] == 21 * GIB


def test_what_the_config_says_already_changes_nothing() -> None:
    config = a_config()
    found = changes(config, [(a_run(), RECEIPT)])
    again = json.loads(splice(json.dumps(config).encode(), found.values))

    assert changes(again, [(a_run(), RECEIPT)]) == Changes({}, ())


def test_an_entry_without_a_figure_does_not_count_for_the_largest() -> None:
    config = a_config(measurements=[{"device": "unknown"}, entry("B", GIB, tensor_parallel_size=4)])

    assert published(config, a_run())["requires_free_bytes"] == FIGURE_BYTES


def test_people_are_told_what_changes() -> None:
    assert changes(MEASURED, [(a_run(CARD, 23622320128), RECEIPT)]).lines == (
        f"m256k on {CARD}: 24.00 GiB (vLLM 0.32.0) → 22.00 GiB (vLLM 0.33.0)",
        "m256k: requires_free_bytes 25769803776 → 24696061952",
    )


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (a_run(), "two measurements are both of m256k on"),
        (a_run(OTHER_CARD, kv_cache_memory_bytes=7 * GIB, values=UNPINNED), "pin different KV caches"),
    ],
)
def test_two_that_cannot_stand_side_by_side_are_refused(second: Measurement, words: str) -> None:
    with pytest.raises(PublicationError, match=words):
        changes(a_config(), [(a_run(), RECEIPT), (second, RECEIPT)])


# --- what may not be published


def test_a_sound_verified_measurement_may_be_published() -> None:
    assert refusal(a_config(), WEIGHTS, a_run()) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": "contaminated", "requires_free_bytes": None}, "other processes moved memory"),
        (
            {
                "verdict": "failed",
                "failure": Failure("too_few_state_blocks", "969 blocks", "set max_num_seqs ≤ 969"),
            },
            "it was not measured: 969 blocks; set max_num_seqs ≤ 969",
        ),
        ({"verdict": "failed"}, "it was not measured; mend that and measure it again"),
        ({"requires_free_bytes": None}, "it names no figure"),
        (
            {"requires_free_bytes": 0, "boots": (a_boot("cold", 0),)},
            "requires_free_bytes: must be 1 or more, got 0",
        ),
        (
            {"model": replace(a_measurement().model, weights=())},
            "it names no weight files, so that nobody can see whether they are the repo's",
        ),
        ({"boots": ()}, "no cold or warm boot that answered stands behind the figure"),
        (
            {"boots": (replace(a_boot(), outcome="contaminated"), a_boot("verification"))},
            "no cold or warm boot that answered stands behind the figure",
        ),
        ({"requires_free_bytes": 2**60}, "the figure 1152921504606846976 is more than the 33704378368 bytes"),
        ({"requires_free_bytes": 5}, "the figure 5 is below the largest drop"),
        ({"kv_cache_memory_bytes": None}, "it names no figure, or no KV cache"),
        ({"kv_cache_memory_bytes": 7 * GIB}, f"the pin of {7 * GIB} bytes is not the profile's, {6 * GIB}"),
    ],
)
def test_a_run_that_found_nothing_is_refused(change: dict[str, Any], words: str) -> None:
    assert words in why_not(a_config(), replace(a_run(), **change))


UNVERIFIED = [
    None,
    Verification("none", None, "not_tried", None, "not_tried", "no delegated cgroup"),
]


@pytest.mark.parametrize("verification", UNVERIFIED)
def test_an_unverified_figure_needs_to_be_allowed_and_is_marked_then(
    verification: Verification | None,
) -> None:
    run = a_run(verification=verification)

    assert "publish it marked as unverified with --allow-unverified" in why_not(a_config(), run)
    assert refusal(a_config(), WEIGHTS, run, allow_unverified=True) is None
    assert changes(a_config(), [(run, RECEIPT)]).unverified == (f"m256k on {CARD}",)
    assert changes(a_config(), [(a_run(), RECEIPT)]).unverified == ()


def test_the_reason_why_it_was_not_verified_is_said() -> None:
    assert "(no delegated cgroup)" in why_not(a_config(), a_run(verification=UNVERIFIED[1]))


def test_a_figure_that_was_shown_to_be_too_small_is_never_published() -> None:
    run = a_run(verification=Verification("ballast", FIGURE_BYTES, "failed", None, "not_tried"))

    assert "a launch with no more free than the figure failed" in why_not(
        a_config(), run, allow_unverified=True
    )


def test_a_profile_that_is_not_declared_is_refused_and_not_added() -> None:
    run = replace(a_run(), profile=replace(a_run().profile, name="l1m"))

    assert "the section declares no such profile, declared: s32k, m256k; a publication adds none" in why_not(
        a_config(), run
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "carries no serving profiles; `zenit-hub init` proposes a section"),
        ({NEUTRAL_KEY: "x"}, "declares no such profile, none is"),
        ({NEUTRAL_KEY: {"profiles": ["m256k"]}}, "declares no such profile, none is"),
        ({NEUTRAL_KEY: {"profiles": {"m256k": 1}}}, "declares no such profile"),
        (a_config(measurements=None), "the profile is not valid: measurements"),
        (a_config(tensor_parallel_size=[2]), "the profile is not valid: tensor_parallel_size"),
        (a_config(max_num_seqz=1), "the profile is not valid"),
    ],
)
def test_a_section_that_cannot_carry_a_figure_is_refused(config: dict[str, Any], words: str) -> None:
    assert words in why_not(config, a_run())


@pytest.mark.parametrize("device", ["", "A\u202eB", "A\nB"])
def test_a_device_that_a_section_cannot_name_is_refused(device: str) -> None:
    assert "a section cannot hold it: measurements.0.device" in why_not(a_config(), a_run(device))


@pytest.mark.parametrize("pin", ["max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching"])
def test_a_profile_without_the_pins_of_a_figure_is_refused(pin: str) -> None:
    values = {key: value for key, value in VALUES.items() if key != pin}
    config = a_config()
    config[NEUTRAL_KEY]["profiles"]["m256k"] = dict(values)

    assert f"add {pin} to the profile and measure it again" in why_not(config, a_run(values=values))


# --- the KV pin that measuring added


def unpinned_config() -> dict[str, Any]:
    config = a_config()
    config[NEUTRAL_KEY]["profiles"]["m256k"] = dict(UNPINNED)
    return config


def test_a_pin_that_only_measuring_added_is_no_change() -> None:
    """Neither before its publication nor when it stands there already, for the next card."""
    run = a_run(values=UNPINNED)

    assert refusal(unpinned_config(), WEIGHTS, run) is None
    assert refusal(a_config(), WEIGHTS, run) is None


def test_another_pin_than_the_measured_one_is_a_change() -> None:
    assert f"kv_cache_memory_bytes was {6 * GIB}, is {7 * GIB}" in why_not(
        a_config(kv_cache_memory_bytes=7 * GIB), a_run(values=UNPINNED)
    )
    assert f"kv_cache_memory_bytes was {6 * GIB}, is not there" in why_not(unpinned_config(), a_run())


def test_the_pin_of_another_layout_is_not_the_profiles() -> None:
    """Per device two ranks hold half of what one holds."""
    run = a_run(values=UNPINNED, tensor=2)

    assert "the profile pins no kv_cache_memory_bytes" in why_not(unpinned_config(), run)


# --- values and weights, compared


@pytest.mark.parametrize(
    "same",
    [
        {"requires_free_bytes": 5 * GIB},
        {"description": "another one"},
        {"measurements": [entry("B", 5)], "requires_free_bytes": 5},
        {"max_num_seqs": 1.0},
    ],
)
def test_figures_entries_and_description_are_not_compared(same: dict[str, Any]) -> None:
    assert refusal(a_config(**same), WEIGHTS, a_run()) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu_memory_utilization": 0.9}, "gpu_memory_utilization was not there, is 0.9"),
        ({"position_plan": {"group": 4}}, 'position_plan was not there, is {"group": 4}'),
        ({"enable_prefix_caching": True}, "enable_prefix_caching was false, is true"),
        ({"requires_compute_capability": "8.9"}, 'requires_compute_capability was not there, is "8.9"'),
    ],
)
def test_everything_else_of_the_profile_is(change: dict[str, Any], words: str) -> None:
    assert words in why_not(a_config(**change), a_run())


def test_of_many_changes_the_first_three_are_shown() -> None:
    config = a_config(
        max_model_len=1, max_num_seqs=2, max_num_batched_tokens=3, swap_space=4, kv_cache_dtype="fp8"
    )

    why = why_not(config, a_run())

    assert why.count(", is ") == 3
    assert "and 2 more" in why


SHARD = WeightFile("model-2.safetensors", 5, "1" * 64, None)
SMALL = WeightFile("small.bin", 5, None, "2" * 40)


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ((*WEIGHTS, SHARD), "model-2.safetensors was added (sha256 111111111111…)"),
        ((), "model.safetensors is gone (was sha256 cccccccccccc…)"),
        ((WeightFile("model.safetensors", 5, None, "3" * 40),), "is blob 333333333333…"),
        ((WeightFile("model.safetensors", 5),), "is 5 bytes of unknown content"),
    ],
)
def test_a_weight_file_more_less_or_of_unknown_content_is_a_change(
    now: tuple[WeightFile, ...], words: str
) -> None:
    assert words in why_not(a_config(), a_run(), now)


def test_files_are_told_apart_by_a_hash_that_both_sides_know() -> None:
    """A folder knows both hashes of a file, the Hub one of them."""
    model = replace(
        a_measurement().model,
        weights=(replace(SHARD, blob_id="9" * 40), replace(SMALL, sha256="8" * 64)),
    )

    assert refusal(a_config(), (SMALL, SHARD), a_run(model=model)) is None
    assert "small.bin" in why_not(a_config(), a_run(model=model), (replace(SMALL, blob_id="4" * 40), SHARD))


# --- whether somebody else wrote the same keys


def test_what_a_publication_writes_is_found_by_card_and_layout() -> None:
    assert written(MEASURED, [a_run()]) == {
        ("m256k", "kv_cache_memory_bytes"): 6 * GIB,
        ("m256k", "requires_free_bytes"): 25769803776,
        ("m256k", "measurements", CARD, Layout()): entry(CARD, 25769803776),
    }


def test_a_run_of_another_layout_does_not_write_the_figure() -> None:
    assert ("m256k", "requires_free_bytes") not in written(MEASURED, [a_run(tensor=2)])


def test_a_figure_of_another_profile_is_nothing_that_we_write() -> None:
    """C5-02 (b): s32k's figure came meanwhile."""
    meanwhile = json.loads(json.dumps(MEASURED))
    meanwhile[NEUTRAL_KEY]["profiles"]["s32k"]["requires_free_bytes"] = 5

    assert written(meanwhile, [a_run()]) == written(MEASURED, [a_run()])


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {NEUTRAL_KEY: 3},
        {NEUTRAL_KEY: {"profiles": {"m256k": {"measurements": [3]}}}},
        a_config(tensor_parallel_size="x"),
    ],
)
def test_an_odd_section_is_looked_at_without_an_exception(odd: dict[str, Any]) -> None:
    assert ("m256k", "measurements", CARD, Layout()) in written(odd, [a_run()])


# --- the last look


def test_whatever_validate_calls_an_error_is_said_with_its_line() -> None:
    data = json.dumps(a_config(requires_free_bytes=1, measurements=[entry(CARD, 5)]), indent=2).encode()

    assert "is below the largest measurement of its layout" in str(fault(data))
    assert "(line " in str(fault(data))


def test_figures_of_another_repo_are_a_fault() -> None:
    config = a_config()
    config[NEUTRAL_KEY]["repo"] = "org/model"
    data = json.dumps(config).encode()

    assert fault(data, "org/model") is None
    assert "void for other/finetune" in str(fault(data, "other/finetune"))


# --- any order of publications

RUNS = st.lists(
    st.tuples(st.sampled_from([CARD, OTHER_CARD, "cpu"]), st.integers(7, 31), st.sampled_from([1, 2])),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30, deadline=None)
@given(runs=RUNS)
def test_after_any_publications_each_card_has_its_last_figure_and_the_profile_the_largest(
    runs: list[tuple[str, int, int]],
) -> None:
    config = a_config()
    for device, gibs, ranks in runs:
        run = a_run(device, gibs * GIB, tensor=ranks)
        assert refusal(config, WEIGHTS, run) is None
        config[NEUTRAL_KEY]["profiles"]["m256k"] = published(config, run)

    last = {(device, ranks): gibs * GIB for device, gibs, ranks in runs}
    profile = config[NEUTRAL_KEY]["profiles"]["m256k"]
    assert {
        (each["device"], each.get("tensor_parallel_size", 1)): each["requires_free_bytes"]
        for each in profile["measurements"]
    } == last
    own = [figure for (_, ranks), figure in last.items() if ranks == 1]
    assert profile.get("requires_free_bytes") == (max(own) if own else None)
