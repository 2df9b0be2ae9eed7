"""Why a measured figure may not hold, and what of a profile or a file was passed over."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stage import GIB, PAIR, asked, cards, config, needs, sentence, told, unrated

MEASURED = needs(
    10,
    8192,
    max_num_seqs=4,
    max_num_batched_tokens=4096,
    enable_prefix_caching=False,
    kv_cache_dtype="fp8",
    kv_cache_memory_bytes=GIB,
)


def void(typed: dict[str, Any], profile: dict[str, object] = MEASURED, **more: Any) -> str | None:
    """What is said of the figure; ``None``: that it holds."""
    found = asked(config({"p": profile}), cards(30, 30), typed=typed, **more)
    return sentence(found, "measurement_void") if "measurement_void" in told(found) else None


# --- the figure


@pytest.mark.parametrize(
    ("field", "same", "other"),
    [
        ("max_num_seqs", 4, 3),
        ("max_num_seqs", 4, None),
        ("max_num_batched_tokens", 4096, 8192),
        ("enable_prefix_caching", False, True),
        ("enable_prefix_caching", False, None),
        ("kv_cache_dtype", "fp8", "auto"),
        ("kv_cache_memory_bytes", GIB, GIB + 1),
        ("enforce_eager", False, True),
        ("limit_mm_per_prompt", {}, {"image": 0}),
        ("skip_mm_profiling", False, True),
        ("quantization", None, "fp8"),
        ("dtype", "auto", "float16"),
        ("hf_overrides", {}, {"rope_theta": 1}),
        ("speculative_config", None, {"method": "ngram"}),
        ("enable_lora", False, True),
        ("max_loras", 1, 2),
        ("cpu_offload_gb", 0, 4.0),
        ("num_gpu_blocks_override", None, 100),
        ("kv_offloading_size", None, 1.0),
        ("mamba_cache_dtype", "auto", "float32"),
        ("mamba_ssm_cache_dtype", "auto", "float32"),
        ("compilation_config", {}, {"level": 0}),
    ],
)
def test_a_value_that_moves_the_need_makes_the_figure_void_unless_it_is_the_measured_one(
    field: str, same: object, other: object
) -> None:
    """The profile's value, else the engine's default; larger or smaller; the field is named."""
    assert void({field: same}) is None
    assert field in str(void({field: other}))


@pytest.mark.parametrize(
    "field", ["seed", "served_model_name", "gpu_memory_utilization", "max_model_len", "api_key"]
)
def test_a_value_that_does_not_move_the_need_leaves_the_figure(field: str) -> None:
    """Names, ports, the length itself."""
    assert void({field: 0.5}) is None


def test_a_kept_field_that_is_not_the_measured_value_makes_the_figure_void() -> None:
    """The engine's own value will run."""
    assert "max_num_seqs is not set and was 4" in str(
        void({}, environment={"ZENIT_SERVING_KEEP": "max_num_seqs"})
    )


def test_a_false_that_vllm_drops_leaves_the_engines_default_and_not_the_measured_false() -> None:
    """Prefix caching stays as the engine has it, which is not what was measured."""
    assert "enable_prefix_caching is not set and was False" in str(
        void({}, yaml_false=["enable_prefix_caching"])
    )


def test_no_figure_no_doubt() -> None:
    """Nothing was measured that could be void."""
    assert void({"max_num_seqs": 1}, unrated(4096, max_num_seqs=4)) is None


def test_a_strangers_value_is_shown_short_and_without_control_characters() -> None:
    """The caller's values may come from anywhere."""
    said = void({"quantization": "\x1b[31m" + "x" * 1000})

    assert said is not None
    assert said.isprintable()
    assert len(said) < 400


@pytest.mark.parametrize(
    ("own", "theirs", "holds"),
    [
        (None, None, True),
        ("expandable_segments:True", None, True),
        ("expandable_segments:True", "expandable_segments:True", True),
        (
            "expandable_segments:True,max_split_size_mb:64",
            "max_split_size_mb:64, expandable_segments:True",
            True,
        ),
        ("expandable_segments:True", "", False),
        ("expandable_segments:True", "expandable_segments:False", False),
        (None, "expandable_segments:True", False),
        (None, "", True),
    ],
)
@pytest.mark.parametrize("spelling", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_another_allocator_setting_makes_the_figure_void(
    own: str | None, theirs: str | None, holds: bool, spelling: str
) -> None:
    """The same settings in another order are the same."""
    profile = MEASURED | ({} if own is None else {"cuda_alloc_conf": own})

    assert (void({}, profile, environment={} if theirs is None else {spelling: theirs}) is None) is holds


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ({"tensor_parallel_size": 1}, True),
        ({"tensor_parallel_size": 2}, False),
        ({"pipeline_parallel_size": 2}, False),
        ({"data_parallel_size": 2}, True),
    ],
)
def test_another_layout_makes_a_one_device_figure_void(typed: dict[str, int], holds: bool) -> None:
    """Undivided it is only an upper bound."""
    assert (void(typed) is None) is holds


def test_a_figure_that_was_measured_in_the_launchs_layout_holds() -> None:
    """On this card; on another the general figure stays a bound."""
    entry = {"tensor_parallel_size": 2, "requires_free_bytes": 8 * GIB}

    assert void(dict(PAIR), {**MEASURED, "measurements": [{**entry, "device": "Card A"}]}) is None
    assert void(dict(PAIR), {**MEASURED, "measurements": [{**entry, "device": "Card B"}]}) is not None


def test_a_field_that_the_engine_lacks_makes_the_figure_void_where_it_moves_the_need() -> None:
    """Without ``skip_mm_profiling`` the dummy batch runs; ``swap_space`` is memory of the host."""
    profile = {**MEASURED, "skip_mm_profiling": True, "swap_space": 4}

    assert "has no skip_mm_profiling" in str(void({}, profile, absent=["skip_mm_profiling"]))
    assert void({}, profile, absent=["swap_space"]) is None


@pytest.mark.parametrize(
    ("section_repo", "repo", "holds"),
    [
        ("org/model", "org/model", True),
        ("org/model", None, True),
        (None, "other/finetune", True),
        ("org/model", "other/finetune", False),
    ],
)
def test_a_derived_repo_inherits_figures_that_are_not_its_own(
    section_repo: str | None, repo: str | None, holds: bool
) -> None:
    """Both names are said; a folder has no name to compare."""
    section = config({"p": MEASURED}, **({} if section_repo is None else {"repo": section_repo}))

    found = asked(section, cards(30), repo=repo)

    assert ("measurement_void" not in told(found)) is holds
    if not holds:
        assert "org/model" in sentence(found, "measurement_void")
        assert "other/finetune" in sentence(found, "measurement_void")


# --- the page of a recurrent model


@pytest.mark.parametrize(
    ("version", "typed", "caching", "said"),
    [
        ("0.31.0", 2048, None, True),
        ("0.31.0", 2048, True, True),
        ("0.31.0", 2048, False, False),
        ("0.31.0", 4096, None, False),
        ("0.31.0", 8192, None, False),
        ("0.32.0", 2048, None, False),
        ("0.25.1", 2048, None, True),
        ("0.31.0", None, None, False),
        ("0.31.0", "2048", None, False),
    ],
)
def test_a_batch_below_the_profiles_is_warned_of_before_vllms_cryptic_end(
    version: str, typed: object, caching: bool | None, said: bool
) -> None:
    """On engines that assert it, and not without prefix caching."""
    profile = unrated(4096, max_num_batched_tokens=4096) | (
        {} if caching is None else {"enable_prefix_caching": caching}
    )

    found = asked(
        config({"p": profile}, default_profile="p"),
        cards(30),
        typed={"max_num_batched_tokens": typed},
        version=version,
    )

    assert ("batch_below_page" in told(found)) is said


def test_a_false_that_vllm_drops_does_not_switch_caching_off() -> None:
    """The engine's own value stands there, and with it the conflict."""
    section = config(
        {"p": unrated(4096, max_num_batched_tokens=4096, enable_prefix_caching=False)}, default_profile="p"
    )

    found = asked(
        section,
        cards(30),
        typed={"max_num_batched_tokens": 2048},
        yaml_false=["enable_prefix_caching"],
        version="0.31.0",
    )

    assert "batch_below_page" in told(found)


def test_a_false_that_vllm_drops_is_no_batch() -> None:
    """It is not below anything."""
    section = config({"p": unrated(4096, max_num_batched_tokens=4096)}, default_profile="p")

    found = asked(section, cards(30), yaml_false=["max_num_batched_tokens"], version="0.31.0")

    assert "batch_below_page" not in told(found)


# --- the version that was measured


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], False),
        ([{"device": "Card A", "vllm": "0.33.1"}], False),
        ([{"device": "Card A", "vllm": "0.32.0"}], True),
        ([{"device": "Card A", "vllm": "0.32.0"}, {"device": "Card A", "vllm": "0.33.0"}], False),
        ([{"device": "Card A", "vllm": "0.32.0"}, {"device": "Card B", "vllm": "0.33.0"}], True),
        ([{"device": "Card B", "vllm": "0.33.0"}], False),
        ([{"device": "Card B", "vllm": "0.32.0"}], True),
        ([{"device": "Card A"}], False),
        ([{"device": "Card A", "vllm": "0.32.0", "tensor_parallel_size": 2}], False),
        ([{"device": "Card A", "vllm": "0.3"}], True),
        ([{"device": "Card A", "vllm": "0.330.0"}], True),
        ([{"vllm": "0.32.0"}], True),
    ],
)
def test_measurements_of_other_minor_versions_alone_are_said(
    entries: list[dict[str, object]], said: bool
) -> None:
    """Of this card, else of any; of this launch's layout; both versions are named."""
    found = asked(config({"p": needs(10, measurements=entries)}), cards(30))

    assert ("other_vllm_version" in told(found)) is said
    if said:
        assert "0.33.0" in sentence(found, "other_vllm_version")
