"""Windows that the model itself does not allow, at run time: a profile must not break a start."""

from __future__ import annotations

from typing import Any

from zenit_hub.answer import answer
from zenit_hub.caller import Caller
from zenit_hub.compat import engine_facts
from zenit_hub.machine import Machine, Surroundings
from zenit_hub.section import Section, read_section

CONFIG: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "max_position_embeddings": 32768,
    "serving_profiles": {
        "default_profile": "beyond",
        "profiles": {"beyond": {"max_model_len": 32769}, "within": {"max_model_len": 32768}},
    },
}


def test_a_window_beyond_the_config_drops_out() -> None:
    """vLLM would refuse that start; the length itself is allowed."""
    section = read_section(CONFIG, ())
    assert isinstance(section, Section)
    assert list(section.profiles) == ["within"]
    assert "32768 tokens that max_position_embeddings allows" in section.invalid["beyond"]


def test_vllms_own_leave_keeps_it() -> None:
    """VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 is the caller's word."""
    for value, chosen in (("1", "beyond"), ("0", None)):
        around = Surroundings("rocm", engine_facts("0.33.0"), {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": value})
        found = answer(CONFIG, Caller(), around, lambda: Machine("machine"))
        assert (found.chosen.profile.name if found.chosen else None) == chosen


def test_overrides_of_the_caller_count() -> None:
    """The engine sees the config with --hf-overrides, and so does the section."""
    around = Surroundings("rocm", engine_facts("0.33.0"), {})
    caller = Caller(values={"hf_overrides": {"max_position_embeddings": 65536}})
    found = answer(CONFIG, caller, around, lambda: Machine("machine"))
    assert found.chosen is not None
    assert found.chosen.profile.name == "beyond"


def test_a_config_that_says_no_length_forbids_nothing() -> None:
    """Unknown is not a limit."""
    section = read_section({**CONFIG, "max_position_embeddings": None}, ())
    assert isinstance(section, Section)
    assert list(section.profiles) == ["beyond", "within"]
