"""A first section, proposed from a config."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from zenit_hub.compat import KV_CACHE_DTYPES
from zenit_hub.errors import PublicationError
from zenit_hub.maintain.figures import MEASURED_PINS
from zenit_hub.maintain.init import FirstSection, propose, with_section
from zenit_hub.maintain.publish.snapshot import Snapshot
from zenit_hub.maintain.validate import validate
from zenit_hub.section import ARCHITECTURE_ID, CONFIG_KEY, NEUTRAL_KEY, Section, read_section

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "max_position_embeddings": 131072}
HYBRID = {**LLAMA, "text_config": {"max_position_embeddings": 262144, "layer_types": ["linear_attention"]}}


def windows(config: dict[str, Any], **asked: Any) -> dict[str, int]:
    """Profile → window."""
    profiles = propose(config, **asked).section["profiles"]
    return {name: values["max_model_len"] for name, values in profiles.items()}


def test_a_first_section_in_full() -> None:
    """The widest window is the default, as a launch without a section has it; no figure, no KV pin."""
    proposal = propose(LLAMA, "org/model")

    pinned = {"max_num_batched_tokens": 4096, "max_num_seqs": 64, "enable_prefix_caching": True}
    assert proposal.key == NEUTRAL_KEY
    assert proposal.section == {
        "schema_version": 1,
        "architectures": ["LlamaForCausalLM"],
        "repo": "org/model",
        "default_profile": "128k",
        "profiles": {
            "128k": {"max_model_len": 131072, **pinned},
            "32k": {"max_model_len": 32768, **pinned},
            "8k": {"max_model_len": 8192, **pinned},
        },
    }


def test_every_profile_pins_what_a_figure_holds_for_but_the_kv_cache() -> None:
    for values in propose(HYBRID).section["profiles"].values():
        assert set(MEASURED_PINS) - set(values) == {"kv_cache_memory_bytes"}


@pytest.mark.parametrize(
    ("architectures", "key"),
    [
        ([ARCHITECTURE_ID], CONFIG_KEY),
        (["LomonosovTinyForCausalLM"], CONFIG_KEY),
        (["LlamaForCausalLM"], NEUTRAL_KEY),
        ([], NEUTRAL_KEY),
        (None, NEUTRAL_KEY),
        (["not a name", 3], NEUTRAL_KEY),
    ],
)
def test_the_familys_own_key_is_for_the_family(architectures: object, key: str) -> None:
    assert propose({**LLAMA, "architectures": architectures}).key == key


def test_a_section_speaks_for_the_configs_own_architectures() -> None:
    section = propose({**LLAMA, "architectures": ["A", "B"]}).section

    assert section["architectures"] == ["A", "B"]
    assert "architectures" not in propose({**LLAMA, "architectures": None}).section


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 1010000}, {"1010k": 1010000, "256k": 262144, "64k": 65536}),
        ({"max_position_embeddings": 1048576}, {"1m": 1048576, "256k": 262144, "64k": 65536}),
        ({"max_position_embeddings": 262144}, {"256k": 262144, "64k": 65536, "16k": 16384}),
        ({"max_position_embeddings": 40960}, {"40k": 40960, "8k": 8192}),
        ({"max_position_embeddings": 8192}, {"8k": 8192}),
        ({"n_positions": 1023}, {"1023": 1023}),
        ({"max_position_embeddings": 10**12}, {"2147483647": 2**31 - 1, "512m": 2**29, "128m": 2**27}),
        ({"text_config": {"max_position_embeddings": 32768}}, {"32k": 32768, "8k": 8192}),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "linear", "factor": 8}},
            {"32k": 32768, "8k": 8192},
        ),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4,
                    "original_max_position_embeddings": 32768,
                },
            },
            {"128k": 131072, "32k": 32768, "8k": 8192},
        ),
    ],
)
def test_windows_come_from_what_the_config_allows(config: dict[str, Any], expected: dict[str, int]) -> None:
    assert windows(config) == expected


def test_named_windows_stand_instead_widest_first() -> None:
    assert windows(LLAMA, windows=[2000, 65536, 2048, 65536]) == {"64k": 65536, "2k": 2048, "2000": 2000}


@pytest.mark.parametrize(
    "recurrent",
    [
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": ["conv", "full_attention"]},
        {"mamba_d_state": 16},
        {"linear_num_key_heads": 16},
        {"hybrid_override_pattern": "M-M*"},
        {"text_config": {"max_position_embeddings": 8192, "ssm_cfg": {}}},
        {"model_type": "mamba2"},
    ],
)
def test_recurrent_layers_mean_no_prefix_caching_and_few_sequences(recurrent: dict[str, Any]) -> None:
    proposal = propose({**LLAMA, **recurrent})

    for values in proposal.section["profiles"].values():
        assert (values["enable_prefix_caching"], values["max_num_seqs"]) == (False, 8)
    assert "recurrent layers" in proposal.remarks[-1]


def test_sliding_windows_are_no_recurrent_layers() -> None:
    proposal = propose({**LLAMA, "layer_types": ["sliding_attention", "full_attention"]})

    assert proposal.section["profiles"]["128k"]["enable_prefix_caching"] is True


# --- what is refused


@pytest.mark.parametrize("key", [CONFIG_KEY, NEUTRAL_KEY])
def test_a_config_with_a_section_is_refused_with_what_to_type(key: str) -> None:
    with pytest.raises(PublicationError, match=f"already, under `{key}`") as caught:
        propose({**LLAMA, key: {"profiles": {}}}, model="./model")

    assert caught.value.next_step == (
        "`zenit-hub validate ./model` checks them, `zenit-hub measure ./model` measures them."
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({**LLAMA, "speculators_config": {}}, "a speculator's config"),
        ({"architectures": ["A"]}, "does not say how many tokens"),
        ({"max_position_embeddings": 0}, "does not say how many tokens"),
        ({"max_position_embeddings": "many"}, "does not say how many tokens"),
    ],
)
def test_what_carries_no_section_or_says_no_window_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(PublicationError, match=words):
        propose(config)


def test_windows_can_be_named_where_the_config_says_none() -> None:
    assert windows({"architectures": ["A"]}, windows=[4096]) == {"4k": 4096}


@pytest.mark.parametrize(
    ("asked", "words"),
    [([0], "max_model_len"), ([131073], "max_model_len"), (range(1, 66), "holds 65 profiles")],
)
def test_windows_that_no_launch_accepts_are_refused(asked: list[int], words: str) -> None:
    with pytest.raises(PublicationError, match=f"would not be valid: .*{words}"):
        with_section(json.dumps(LLAMA).encode(), None, asked)


def test_bytes_that_cannot_be_changed_are_refused() -> None:
    with pytest.raises(PublicationError, match=r"config\.json cannot be changed: .*byte order mark"):
        with_section(b"\xef\xbb\xbf{}", None)


# --- in the file


@pytest.mark.parametrize("indent", [2, 4, "\t", None])
def test_the_section_comes_last_and_every_byte_before_it_stays(indent: int | str | None) -> None:
    text = json.dumps(LLAMA, indent=indent) + "\n"

    proposal, new = with_section(text.encode(), "org/model")

    after = {**LLAMA, NEUTRAL_KEY: proposal.section}
    assert new.decode() == json.dumps(after, indent=indent) + "\n"


def test_a_null_section_gets_the_proposed_one_in_its_place() -> None:
    config = {NEUTRAL_KEY: None, **LLAMA}

    proposal, new = with_section(json.dumps(config).encode(), None)

    assert json.loads(new) == {**config, NEUTRAL_KEY: proposal.section}
    assert list(json.loads(new)) == list(config)


CONFIGS = st.fixed_dictionaries(
    {"architectures": st.sampled_from([["LlamaForCausalLM"], [ARCHITECTURE_ID], [], None])},
    optional={
        "max_position_embeddings": st.integers(-1, 10**7) | st.none(),
        "rope_scaling": st.sampled_from(
            [{"rope_type": "linear", "factor": 2.5}, {"type": "llama3", "factor": 8}]
        ),
        "text_config": st.dictionaries(
            st.sampled_from(["max_position_embeddings", "seq_length"]), st.integers(1, 10**6)
        ),
        "layer_types": st.just(["linear_attention"]) | st.just(3),
    },
)


@settings(max_examples=60, deadline=None)
@given(config=CONFIGS)
def test_what_is_proposed_for_any_config_is_valid_and_applies(config: dict[str, Any]) -> None:
    try:
        _, new = with_section(json.dumps(config).encode(), "org/model")
    except PublicationError as refused:
        event(refused.what)
        assume(False)

    report = validate(new)
    assert report.valid
    reading = read_section(json.loads(new), KV_CACHE_DTYPES)
    assert isinstance(reading, Section)
    assert not reading.invalid
    assert reading.default_profile in reading.profiles


# --- on its way to the Hub


def snapshot(config: object) -> Snapshot:
    data = json.dumps(config).encode()
    return Snapshot("a" * 40, {"config.json": data}, frozenset({"config.json"}), {}, None)


def test_only_the_config_is_written() -> None:
    rendered = FirstSection("org/model").render(snapshot(LLAMA))

    assert list(rendered.files) == ["config.json"]
    assert rendered.files["config.json"] == with_section(json.dumps(LLAMA).encode(), "org/model")[1]
    assert rendered.lines == ("serving_profiles: a first section with 128k, 32k, 8k",)


def test_the_very_section_there_already_changes_nothing() -> None:
    """The answer to the commit was lost, and it is read again."""
    content = FirstSection("org/model")
    landed = json.loads(content.render(snapshot(LLAMA)).files["config.json"])

    assert content.render(snapshot(landed)).files["config.json"] == json.dumps(landed).encode()


def test_another_section_there_already_is_refused() -> None:
    with pytest.raises(PublicationError, match="already"):
        FirstSection("org/model").render(snapshot({**LLAMA, NEUTRAL_KEY: {"profiles": {}}}))
