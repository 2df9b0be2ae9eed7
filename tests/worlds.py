"""Hypothesis strategies: any section, any machine, any caller, from the usual to the absurd."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.stage import GIB
from zenit_hub import env
from zenit_hub.machine import PLATFORMS, Device, Host, Machine, Slice
from zenit_hub.section import CONFIG_KEY, ENGINE_FIELDS, LAYOUT_FIELDS, NEUTRAL_KEY

NAMES = ["a", "b", "c.1", "256k"]
CARD_NAMES = ["Card A", "Card B", "NVIDIA GB10", ""]
VERSIONS = ["0.17.1", "0.25.1", "0.31.0", "0.33.0", "0.99", "odd"]
ARCHITECTURE = "TinyForCausalLM"

huge = st.sampled_from([2**31, 2**63, 10**40, 10**400, 10**4000, -1, -(10**400)])
numbers = st.one_of(st.integers(-2, 10), st.integers(0, 64 * GIB), huge, st.floats())
text = st.text(max_size=12) | st.sampled_from(
    ["", "off", "fp8", "auto", "\x1b[31m", "\u202e", "\ud800", "x" * 500]
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
"""Any JSON value, and what Python's reader makes of ``NaN`` and ``1e999``."""


def deep(levels: int) -> Any:
    """Lists within lists."""
    return json.loads("[" * levels + "]" * levels)


def or_anything(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly ``usual``, now and then any value."""
    return st.integers(0, 19).flatmap(lambda roll: anything if roll == 0 else usual)


windows = st.sampled_from([1, 2048, 4096, 4096.0, 8192, 16384, 1_010_000, 2**31 - 1])
byte_sizes = st.integers(1, 48 * GIB) | st.sampled_from([1, 10 * GIB, 20 * GIB, 10**400])
shares = st.sampled_from([0.1, 0.5, 0.88, 0.92, 0.95, 1, 1.0, 1e-9, 0.123456])
sizes = st.sampled_from([1, 1, 2, 4, 10**300])
plans = st.fixed_dictionaries(
    {},
    optional={
        "stages": st.lists(
            st.dictionaries(st.sampled_from(["group", "clamp"]), st.integers(0, 9)), max_size=3
        ),
        "group": st.sampled_from([4, True, 1.5]),
        "first_pair": st.integers(0, 9),
        "table_positions": st.just(10**20),
    },
)
measurements = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "device": st.sampled_from(["Card A", "Card B", "cpu", "Slice"]),
            "tensor_parallel_size": sizes,
            "requires_free_bytes": byte_sizes,
            "vllm": st.sampled_from(["0.32.0", "0.33.0"]),
            "odd": st.just(1),
        },
    ),
    max_size=3,
)
PROFILE_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "kv_cache_dtype": st.sampled_from(["auto", "fp8", "nvfp4", "fp7"]),
    "max_num_batched_tokens": st.sampled_from([2048, 4096]),
    "max_num_seqs": st.sampled_from([1, 2, 65_536]),
    "kv_cache_memory_bytes": byte_sizes,
    "enable_prefix_caching": st.booleans(),
    "async_scheduling": st.booleans(),
    "enforce_eager": st.booleans(),
    "skip_mm_profiling": st.booleans(),
    "gpu_memory_utilization": shares,
    "swap_space": st.sampled_from([0, 4, 0.5]),
    "tensor_parallel_size": sizes,
    "pipeline_parallel_size": sizes,
    "requires_free_bytes": byte_sizes,
    "requires_compute_capability": st.sampled_from(["7.5", "8.9", "12.0"]),
    "cuda_alloc_conf": st.sampled_from(
        ["expandable_segments:True", "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:8]"]
    ),
    "noosphere_mode": st.sampled_from(["deep", "off", "../x"]),
    "position_plan": plans,
    "measurements": measurements,
    "description": st.sampled_from(["one line", "two\nlines", "\u202e"]),
    "requires_moon": st.booleans(),
    "trust_remote_code": st.booleans(),
}
profiles = st.fixed_dictionaries(
    {"max_model_len": or_anything(windows)},
    optional={key: or_anything(usual) for key, usual in PROFILE_VALUES.items()},
)
sections = st.fixed_dictionaries(
    {
        "profiles": or_anything(
            st.dictionaries(st.sampled_from(NAMES) | text, or_anything(profiles), max_size=4)
        )
    },
    optional={
        "schema_version": or_anything(st.just(1)),
        "default_profile": or_anything(st.sampled_from(NAMES)),
        "architectures": or_anything(st.just([ARCHITECTURE])),
        "repo": or_anything(st.just("org/model")),
        "odd": anything,
    },
)
configs = st.fixed_dictionaries(
    {NEUTRAL_KEY: or_anything(sections)},
    optional={CONFIG_KEY: or_anything(sections), "architectures": or_anything(st.just([ARCHITECTURE]))},
)

memory = st.none() | st.integers(0, 48 * GIB) | st.sampled_from([0, 1, 32 * GIB, 2**63])
words = st.none() | st.just("no permission")
slices = st.builds(
    Slice, st.sampled_from(["MIG-a1", "MIG-a2", "MIG-b"]), memory, memory, st.none() | st.just("Slice"), words
)
devices = st.builds(
    Device,
    index=st.integers(0, 4),
    uuid=st.sampled_from(["GPU-a1", "GPU-a2", "GPU-b", ""]),
    name=st.sampled_from(CARD_NAMES),
    compute_capability=st.none() | st.sampled_from([(8, 6), (9, 0), (12, 0)]),
    total_bytes=memory,
    free_bytes=memory,
    error=words,
    integrated=st.integers(0, 9).map(lambda roll: roll == 0),
    slices=st.just(()) | st.lists(slices, max_size=2).map(tuple),
)
hosts = st.builds(Host, st.integers(0, 64 * GIB), st.integers(0, 64 * GIB))
machines = st.builds(
    Machine,
    source=st.sampled_from(["nvml", "host", "machine"]),
    devices=st.lists(devices, max_size=4).map(tuple),
    driver_error=st.integers(0, 9).map(lambda roll: "no driver" if roll == 0 else None),
    host=st.none() | hosts,
)
platforms = st.sampled_from([*PLATFORMS, "cuda", "cuda", "cuda"])

visible = st.lists(
    st.sampled_from(["0", "1", "3", "-1", " 2", "GPU-a1", "GPU-", "MIG-a", "x", "", "9" * 5000, "1e3"]),
    max_size=4,
).map(",".join)
ENVIRONMENT: dict[str, st.SearchStrategy[str]] = {
    env.PROFILE: st.sampled_from([*NAMES, "", "nope", "\x1b"]),
    env.KEEP: st.lists(st.sampled_from([*ENGINE_FIELDS, "--seed", "odd", ""]), max_size=3).map(",".join),
    env.STRICT: st.sampled_from(["", "0", "1"]),
    env.VISIBLE_DEVICES: visible,
    env.DEVICE_ORDER: st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST"]),
    env.ALLOCATOR: st.sampled_from(["", "expandable_segments:True"]),
    env.RAY_COPIES: st.sampled_from(["", "MINE, OTHER"]),
    env.STAGES: st.just("[]"),
    env.EFFECTIVE_WINDOW: st.just("1"),
    env.HANDED_DOWN: text.filter(lambda value: "\x00" not in value),
}
environments = st.fixed_dictionaries({}, optional=ENVIRONMENT)

TYPED: dict[str, st.SearchStrategy[Any]] = {
    "max_model_len": st.sampled_from([1, 3000, 4096, 10**6, 10**30, -1, "auto"]),
    "max_num_seqs": st.sampled_from([1, 2]),
    "max_num_batched_tokens": st.sampled_from([1024, 4096]),
    "kv_cache_memory_bytes": byte_sizes,
    "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    "enable_prefix_caching": st.booleans(),
    "async_scheduling": st.booleans(),
    "gpu_memory_utilization": shares,
    "tensor_parallel_size": sizes,
    "pipeline_parallel_size": sizes,
    "data_parallel_size": sizes,
    "data_parallel_size_local": st.sampled_from([0, 1, 2]),
    "data_parallel_rank": st.sampled_from([0, 1]),
    "nnodes": st.sampled_from([1, 2]),
    "headless": st.booleans(),
    "distributed_executor_backend": st.sampled_from(["mp", "ray", "external_launcher"]),
    "disable_custom_all_reduce": st.booleans(),
    "kv_transfer_config": st.sampled_from([None, {"kv_connector": "X"}]),
    "compilation_config": anything,
    "hf_overrides": anything,
    "seed": anything,
}
callers = st.fixed_dictionaries({}, optional={key: or_anything(usual) for key, usual in TYPED.items()})
yaml_falses = st.lists(st.sampled_from([*ENGINE_FIELDS, *LAYOUT_FIELDS, "seed"]), max_size=2).map(frozenset)
device_ids = st.none() | st.lists(st.sampled_from([0, 1, 7, -1, "GPU-a1", "GPU-", "", "x"]), max_size=3)
