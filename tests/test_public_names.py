"""The names that other code imports from ``zenit_hub``, and what they answer."""

from __future__ import annotations

from typing import Any

import pytest

import zenit_hub
from tests.stage import GIB, card
from zenit_hub import api
from zenit_hub.machine import Machine

NAMES = {
    "ARCHITECTURE_ID",
    "BUDGET_KEY",
    "CONFIG_KEY",
    "ENV_PROFILE",
    "REPAIR_ID",
    "apply_profile",
    "device_memory",
    "install_model_owned_serving_defaults",
    "memory_budget",
    "select_profile",
}
SPEC = {
    "default_profile": "narrow",
    "profiles": {
        "narrow": {"max_model_len": 4096, "requires_free_bytes": 10 * GIB, "kv_cache_memory_bytes": GIB},
        "wide": {"max_model_len": 8192, "requires_free_bytes": 20 * GIB, "kv_cache_memory_bytes": GIB},
        "bad": {"max_model_len": 0},
    },
}


def test_the_names_are_there_and_no_others() -> None:
    """Each can be had, also through ``dir`` and a star."""
    assert set(zenit_hub.__all__) == NAMES
    assert set(dir(zenit_hub)) >= NAMES
    assert all(getattr(zenit_hub, name) is not None for name in NAMES)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    """As of any module."""
    name = "nope"
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        getattr(zenit_hub, name)


def test_the_constants_are_the_specifications() -> None:
    """Other code compares with them."""
    assert zenit_hub.ARCHITECTURE_ID == "LomonosovZenitAltayForConditionalGeneration"
    assert zenit_hub.CONFIG_KEY == "lomonosov_serving_profiles"
    assert zenit_hub.BUDGET_KEY == "requires_free_bytes"
    assert zenit_hub.ENV_PROFILE == "ZENIT_SERVING_PROFILE"
    assert zenit_hub.REPAIR_ID == "ZENIT_MODEL_OWNED_SERVING_PROFILES_V1"


# --- device_memory


@pytest.mark.parametrize(
    ("machine", "visible", "memory"),
    [
        (Machine("nvml", (card(10, 32), card(20, 32, index=1))), None, (10 * GIB, 32 * GIB)),
        (Machine("nvml", (card(10, 32), card(20, 32, index=1))), "1", (20 * GIB, 32 * GIB)),
        (Machine("nvml", (card(0, 32),)), None, (0, 32 * GIB)),
        (Machine("nvml", (card(None, 32),)), None, None),
        (Machine("nvml", (card(10, 32),)), "", None),
        (Machine("nvml", (card(10, 32),)), "GPU-f", None),
        (Machine("nvml"), None, None),
        (Machine("nvml", driver_error="x"), None, None),
    ],
)
def test_device_memory_is_that_of_the_first_visible_device(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, visible: str | None, memory: tuple[int, int] | None
) -> None:
    """Free before total; unknown is ``None`` and never zero."""
    monkeypatch.setattr(api, "look_at_cards", lambda: machine)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert zenit_hub.device_memory() == memory


# --- memory_budget


@pytest.mark.parametrize(
    ("utilization", "budget"), [(1.0, 98), (0.5, 50), (0.98, 98), (0.0, 0), (float("nan"), 0)]
)
def test_the_budget_is_that_of_a_pinned_launch(utilization: float, budget: int) -> None:
    """98 % of what is free, within the share."""
    assert zenit_hub.memory_budget(100, 100, utilization) == budget


def test_without_a_utilization_the_engines_default_counts() -> None:
    """The installed one's, 0.92 here."""
    assert zenit_hub.memory_budget(10_000, 10_000, None) == 9200


# --- select_profile


@pytest.mark.parametrize(
    ("tokens", "device", "utilization", "name"),
    [
        (None, None, None, "narrow"),
        (None, (30 * GIB, 32 * GIB), None, "wide"),
        (None, (15 * GIB, 32 * GIB), None, "narrow"),
        (None, (5 * GIB, 32 * GIB), None, "narrow"),
        (None, (30 * GIB, 32 * GIB), 0.5, "narrow"),
        (4097, None, None, "wide"),
        (4096, (30 * GIB, 32 * GIB), None, "narrow"),
        (10**6, None, None, "wide"),
    ],
)
def test_select_profile_chooses_as_a_launch_does(
    tokens: int | None, device: tuple[int, int] | None, utilization: float | None, name: str
) -> None:
    """By length, by memory, else the default; the body is the section's own."""
    found = zenit_hub.select_profile(SPEC, tokens, device, utilization)

    assert found == (name, SPEC["profiles"][name])


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"profiles": {}},
        {"profiles": {"p": {"max_model_len": 1}}},
        {"profiles": {"p": {}}, "default_profile": "p"},
        {"profiles": {"p": {"max_model_len": 1}}, "default_profile": "q"},
        {"schema_version": 2, **SPEC},
        {"profiles": []},
        {"architectures": [], **SPEC},
    ],
)
def test_where_nothing_takes_part_nothing_is_selected(spec: dict[str, Any]) -> None:
    """No exception, whatever the section is."""
    assert zenit_hub.select_profile(spec, None) is None


def test_select_profile_reads_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A forced name is the launch's affair."""
    monkeypatch.setenv("ZENIT_SERVING_PROFILE", "wide")

    assert zenit_hub.select_profile(SPEC, None) == ("narrow", SPEC["profiles"]["narrow"])


def test_a_body_that_was_handed_out_is_a_copy() -> None:
    """Changing it changes no section."""
    found = zenit_hub.select_profile(SPEC, None)
    assert found is not None
    found[1]["max_model_len"] = 1

    assert zenit_hub.select_profile(SPEC, None) == ("narrow", SPEC["profiles"]["narrow"])
