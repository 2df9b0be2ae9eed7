"""What differs between the versions of vLLM. tools/engine_versions.py holds the table against the wheels."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from zenit_hub.compat import (
    KV_CACHE_DTYPES,
    NEWEST_SUPPORTED,
    OLDEST_SUPPORTED,
    PROFILE_FIELDS,
    engine_facts,
    release,
)
from zenit_hub.installed import vllm_version

CHILD = Path(__file__).parent / "engine" / "vllm_defaults.py"


@pytest.mark.parametrize(
    ("version", "numbers"),
    [
        ("0.33.0", (0, 33, 0)),
        ("0.32.0+cpu", (0, 32, 0)),
        ("0.34.0rc1.dev5+g123", (0, 34, 0)),
        ("0.6.4.post1", (0, 6, 4)),
        ("v0.30", (0, 30)),
        ("1!2.0", (2, 0)),
        ("dev", ()),
        ("", ()),
        ("9" * 5000, (999_999_999,)),
    ],
)
def test_a_version_is_read_by_its_numbers(version: str, numbers: tuple[int, ...]) -> None:
    """Local builds, candidates and what a stranger wrote into a machine file."""
    assert release(version) == numbers


@pytest.mark.parametrize(
    ("version", "utilization", "has_swap_space", "batch_must_hold_page"),
    [
        ("0.17.1", 0.9, True, True),
        ("0.19.1", 0.9, False, True),
        ("0.20.2", 0.92, False, True),
        ("0.25.1", 0.92, False, True),
        ("0.31.0", 0.92, False, True),
        ("0.32.0+cpu", 0.92, False, False),
        ("0.33.0", 0.92, False, False),
        ("0.99.0", 0.92, False, False),
        ("unknown", 0.92, False, False),
    ],
)
def test_the_facts_of_a_version(
    version: str, utilization: float, has_swap_space: bool, batch_must_hold_page: bool
) -> None:
    """Old ones as they were read, newer and nameless ones as the newest."""
    facts = engine_facts(version)
    assert facts.version == version
    assert facts.defaults["gpu_memory_utilization"] == utilization
    assert ("swap_space" not in facts.fields_absent) is has_swap_space
    assert facts.asserts_batch_holds_page is batch_must_hold_page


def test_dtypes_only_ever_came_to_it() -> None:
    """What an old version accepts, a new one does; the union is the newest's."""
    assert engine_facts(OLDEST_SUPPORTED).kv_cache_dtypes < engine_facts("0.32.0").kv_cache_dtypes
    assert (
        engine_facts("0.32.0").kv_cache_dtypes
        < engine_facts(NEWEST_SUPPORTED).kv_cache_dtypes
        == KV_CACHE_DTYPES
    )
    assert "float16" not in engine_facts("0.17.1").kv_cache_dtypes


@pytest.mark.engine
def test_the_table_is_the_installed_vllm_s() -> None:
    """Fields, defaults and KV cache dtypes of the engine that can be imported here."""
    run = subprocess.run(
        [sys.executable, str(CHILD)], capture_output=True, text=True, timeout=300, check=True
    )
    live = json.loads(run.stdout.splitlines()[-1])
    facts = engine_facts(vllm_version() or "")
    assert facts.fields_absent == PROFILE_FIELDS - live["defaults"].keys()
    assert {name: live["defaults"].get(name) for name in facts.defaults} == dict(facts.defaults)
    assert facts.kv_cache_dtypes == set(live["kv_cache_dtypes"])
