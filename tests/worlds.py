"""Hypothesis strategies: any section, any machine, any caller, from the usual to the absurd.

What is usual comes more often than what is absurd: a section of which everything is wrong decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from tests.stage import GIB, card
from zenit_hub import env
from zenit_hub.machine import PLATFORMS, Device, Host, Machine, Slice
from zenit_hub.section import CONFIG_KEY, ENGINE_FIELDS, LAYOUT_FIELDS, NEUTRAL_KEY

Values = st.SearchStrategy[Any]

NAMES = ["a", "b", "c.1", "256k"]
VERSIONS = ["0.17.1", "0.25.1", "0.31.0", "0.33.0", "0.99", "odd"]
ARCHITECTURES = ["TinyForCausalLM"]

huge = st.sampled_from([2**31, 2**63, 10**40, 10**400, 10**4000, -1, -(10**400)])
numbers = st.one_of(st.integers(-2, 10), st.integers(0, 64 * GIB), huge, st.floats())
odd_text = st.sampled_from(["", "off", "fp8", "auto", "\x1b[31m", "\u202e", "\ud800", "\n", "x" * 500])
text = st.text(max_size=12) | odd_text
anything = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
"""Any JSON value, and what Python's reader makes of ``NaN`` and ``1e999``."""


def mostly(usual: Values, odd: Values = anything) -> Values:
    """``usual`` four times of five."""
    return st.sampled_from([usual] * 4 + [odd]).flatmap(lambda chosen: chosen)


def some_of(pool: Mapping[str, Values], most: int) -> Values:
    """A dictionary of up to ``most`` keys of ``pool``."""
    keys = st.lists(st.sampled_from(sorted(pool)), max_size=most, unique=True)
    return keys.flatmap(lambda drawn: st.fixed_dictionaries({key: pool[key] for key in drawn}))


# --- sections

windows = st.sampled_from([1, 2048, 4096, 4096.0, 8192, 16384, 1_010_000, 2**31 - 1])
byte_sizes = st.sampled_from([1, 10, 19, 20, 21, 30, 33]).map(lambda gib: gib * GIB)
any_bytes = byte_sizes | st.integers(1, 48 * GIB) | st.just(10**400)
shares = st.sampled_from([0.1, 0.5, 0.88, 0.92, 0.95, 1, 1.0, 1e-9, 0.123456])
sizes = st.sampled_from([1, 1, 2, 4, 10**300])
stages = st.lists(st.dictionaries(st.sampled_from(["group", "clamp"]), st.integers(0, 9)), max_size=3)
plans = some_of(
    {
        "stages": stages,
        "group": st.sampled_from([4, True, 1.5]),
        "first_pair": st.integers(0, 9),
        "table_positions": st.just(10**20),
    },
    3,
)
measurements = st.lists(
    some_of(
        {
            "device": st.sampled_from(["Card A", "Card B", "cpu", "Slice"]),
            "tensor_parallel_size": sizes,
            "requires_free_bytes": any_bytes,
            "vllm": st.sampled_from(["0.32.0", "0.33.0"]),
            "odd": st.just(1),
        },
        4,
    ),
    max_size=3,
)
PROFILE: dict[str, Values] = {
    "kv_cache_dtype": st.sampled_from(["auto", "fp8"]),
    "max_num_batched_tokens": st.sampled_from([2048, 4096]),
    "max_num_seqs": st.sampled_from([1, 2, 65_536]),
    "kv_cache_memory_bytes": any_bytes,
    "enable_prefix_caching": st.booleans(),
    "async_scheduling": st.booleans(),
    "enforce_eager": st.booleans(),
    "skip_mm_profiling": st.booleans(),
    "gpu_memory_utilization": shares,
    "swap_space": st.sampled_from([0, 4, 0.5]),
    "requires_compute_capability": st.sampled_from(["7.5", "8.9", "12.0"]),
    "cuda_alloc_conf": st.sampled_from(
        ["expandable_segments:True", "max_split_size_mb:64,roundup_power2_divisions:[256:1,>:8]"]
    ),
    "noosphere_mode": st.just("deep"),
    "position_plan": plans,
    "measurements": measurements,
    "requires_moon": st.booleans(),
    "trust_remote_code": st.booleans(),
}
LAYOUT: dict[str, Values] = dict.fromkeys(LAYOUT_FIELDS, sizes)


def a_profile(pool: Mapping[str, Values], rated: bool | None = None) -> Values:
    """A valid profile; ``rated`` as it is drawn, or as it must be."""
    figures = {"requires_free_bytes": any_bytes}
    needed = st.just({}) if rated is False else st.fixed_dictionaries(figures)
    if rated is None:
        needed = st.fixed_dictionaries({}, optional=figures)
    rest = some_of(pool, 4)
    return st.builds(
        lambda window, need, more: {"max_model_len": window, **need, **more}, windows, needed, rest
    )


one_device_profiles = a_profile(PROFILE)
profiles = a_profile(PROFILE | LAYOUT)
odd_profiles = st.builds(
    lambda good, bad: {**good, **bad}, profiles, some_of(dict.fromkeys(PROFILE, anything), 2)
)
sections = st.fixed_dictionaries(
    {
        "profiles": st.dictionaries(
            st.sampled_from(NAMES), mostly(profiles, odd_profiles | anything), min_size=1
        )
    },
    optional={"default_profile": st.sampled_from(NAMES), "repo": st.just("org/model")},
)
odd_sections = st.builds(
    lambda good, bad: {**good, **bad},
    sections,
    some_of(
        {
            "profiles": st.dictionaries(text, mostly(profiles), max_size=4) | anything,
            "schema_version": anything,
            "default_profile": anything,
            "architectures": anything,
            "repo": anything,
            "odd": anything,
        },
        2,
    ),
)
scalings = some_of(
    {
        "factor": mostly(numbers),
        "rope_type": mostly(text),
        "original_max_position_embeddings": mostly(numbers),
    },
    3,
)
rope_keys: dict[str, Values] = {
    "max_position_embeddings": mostly(st.sampled_from([4096, 16384, 2**31])),
    "rope_scaling": mostly(scalings),
    "rope_parameters": anything,
    "model_max_length": anything,
    "sliding_window": anything,
    "text_config": anything,
}
"""What of a config says how long a window it allows."""

usual_configs = st.builds(
    lambda section, rope: {NEUTRAL_KEY: section, "architectures": ARCHITECTURES, **rope},
    mostly(sections, odd_sections),
    mostly(st.just({}), some_of(rope_keys, 3) | some_of({"text_config": some_of(rope_keys, 3)}, 1)),
)
odd_configs = st.fixed_dictionaries(
    {NEUTRAL_KEY: odd_sections | anything, CONFIG_KEY: odd_sections | anything, "architectures": anything}
)
configs = mostly(usual_configs, odd_configs)

# --- machines

totals = st.sampled_from([16, 24, 32, 80]).map(lambda gib: gib * GIB)
capabilities = st.none() | st.sampled_from([(8, 6), (9, 0), (12, 0)])


def usual_card(index: int, name: str, total_bytes: int, share: float, capability: Any) -> Device:
    """A card of which ``share`` is free."""
    free_bytes = int(total_bytes * share)
    return card(
        1,
        index=index,
        name=name,
        total_bytes=total_bytes,
        free_bytes=free_bytes,
        compute_capability=capability,
    )


usual_devices = st.builds(
    usual_card,
    st.integers(0, 3),
    st.sampled_from(["Card A", "Card B"]),
    totals,
    st.floats(0, 1),
    capabilities,
)
memory = st.none() | st.integers(0, 48 * GIB) | st.sampled_from([0, 1, 32 * GIB, 2**63])
reasons = st.none() | st.just("no permission")
slices = st.builds(
    Slice,
    st.sampled_from(["MIG-a1", "MIG-a2", "MIG-b"]),
    memory,
    memory,
    st.none() | st.just("Slice"),
    reasons,
)
odd_devices = st.builds(
    Device,
    index=st.integers(0, 4),
    uuid=st.sampled_from(["GPU-a1", "GPU-a2", "GPU-b", ""]),
    name=st.sampled_from(["Card A", "NVIDIA GB10", "", "\x1b\n"]),
    compute_capability=capabilities,
    total_bytes=memory,
    free_bytes=memory,
    error=reasons,
    integrated=st.booleans(),
    slices=st.lists(slices, max_size=2).map(tuple),
    node=st.sampled_from([None, "node-2", "\x1b"]),
)
hosts = st.builds(Host, st.integers(0, 64 * GIB), st.integers(0, 64 * GIB))
machines = st.builds(
    Machine,
    source=st.sampled_from(["nvml", "host", "machine"]),
    devices=st.lists(mostly(usual_devices, odd_devices), max_size=4).map(tuple),
    driver_error=st.sampled_from([None] * 9 + ["no driver"]),
    host=st.none() | hosts,
    cluster=st.sampled_from([False] * 5 + [True]),
)
platforms = st.sampled_from([*["cuda"] * 6, "cpu", *PLATFORMS])

# --- callers

CVD_WORDS = ["0", "1", "3", "-1", " 2", "GPU-a1", "GPU-", "MIG-a", "x", "", "9" * 5000, "1e3"]
ENVIRONMENT: dict[str, Values] = {
    env.PROFILE: st.sampled_from([*NAMES, "", "nope", "\x1b"]),
    env.KEEP: st.lists(st.sampled_from([*ENGINE_FIELDS, "--seed", "odd", ""]), max_size=3).map(",".join),
    env.STRICT: st.sampled_from(["", "0", "1"]),
    env.VISIBLE_DEVICES: st.lists(st.sampled_from(CVD_WORDS), max_size=4).map(",".join),
    env.DEVICE_ORDER: st.sampled_from(["PCI_BUS_ID", "FASTEST_FIRST"]),
    env.ALLOCATOR: st.sampled_from(["", "expandable_segments:True"]),
    env.RAY_COPIES: st.sampled_from(["", "MINE, OTHER"]),
    env.STAGES: st.just("[]"),
    env.EFFECTIVE_WINDOW: st.just("1"),
    env.HANDED_DOWN: st.sampled_from(["", "{", "[]", '{"form": 1}']),
}
environments = some_of(ENVIRONMENT, 3)

TYPED: dict[str, Values] = {
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
callers = mostly(some_of(TYPED, 4), some_of(dict.fromkeys(TYPED, anything), 3))
yaml_falses = mostly(
    st.just(frozenset()), st.frozensets(st.sampled_from([*ENGINE_FIELDS, *LAYOUT_FIELDS, "seed"]), max_size=2)
)
device_ids = mostly(
    st.none(), st.lists(st.sampled_from([0, 1, 7, -1, "GPU-a1", "GPU-", "", "x"]), max_size=3)
)
