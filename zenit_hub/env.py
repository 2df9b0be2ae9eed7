"""Every environment variable of this project: those that people set, those that a launch publishes."""

from __future__ import annotations

from collections.abc import Mapping

PROFILE = "ZENIT_SERVING_PROFILE"
"""A profile's name: that one. ``off``: start as if this package were not there. Empty: unset."""

KEEP = "ZENIT_SERVING_KEEP"
"""Engine arguments, comma-separated, that are the caller's although nobody can see that he set them."""

STRICT = "ZENIT_SERVING_STRICT"
"""``1``: refuse to start rather than start with something else than the profile says."""

HANDED_DOWN = "ZENIT_SERVING_DECISION"
"""Ours alone: the launcher's decision on its way to the other processes of the same launch."""

MEASURE_REPORT = "ZENIT_MEASURE_REPORT"
"""Ours alone, set by ``zenit-hub measure``: the folder into which the measured engine writes its own account."""

SERVE_ARGUMENTS = "ZENIT_SERVE_ARGS"
"""In a file of ``zenit-hub export --format env``: what follows ``vllm serve``. Not ``VLLM_…``: vLLM warns of every name
with that prefix that it does not know, and refuses to start under ``--fail-on-environ-validation``."""

OFF = "off"

EFFECTIVE_WINDOW = "ZENIT_EFFECTIVE_MAX_MODEL_LEN"
"""The length that the engine will run with, for the model's own code."""

NOOSPHERE_MODE = "ZENIT_NOOSPHERE_MODE"
"""From ``noosphere_mode``, for the model's own code."""

ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"
"""From ``cuda_alloc_conf``, where neither this nor one of PyTorch's other two spellings is set."""

ALLOCATOR_SPELLINGS = (ALLOCATOR, "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
"""PyTorch reads all three; the oldest name is read by every version."""

STAGES = "ZENIT_POSITION_STAGES"
"""From ``position_plan.stages``, as compact JSON; with it none of the flat ones is published."""

FLAT_PLAN = {
    "group": "ZENIT_POSITION_GROUP",
    "first_pair": "ZENIT_POSITION_GROUP_FIRST_PAIR",
    "last_pair": "ZENIT_POSITION_GROUP_LAST_PAIR",
    "faithful_prefix": "ZENIT_POSITION_FAITHFUL_PREFIX",
    "clamp": "ZENIT_POSITION_CLAMP",
    "table_positions": "ZENIT_ROPE_TABLE_POSITIONS",
}
"""Key of ``position_plan`` → its variable."""

PUBLISHED = (EFFECTIVE_WINDOW, NOOSPHERE_MODE, ALLOCATOR, STAGES, *FLAT_PLAN.values())
"""What a section can bring into the environment, in the order in which it is said. Nothing else, ever."""

RAY_COPIES = "VLLM_RAY_EXTRA_ENV_VARS_TO_COPY"
"""vLLM's list of variables that its Ray workers get besides those with known prefixes."""

RAY_BUNDLES = "VLLM_RAY_BUNDLE_INDICES"
"""vLLM's list of the bundles of its placement group that the ranks get, by index."""

RAY_ADDRESS = "RAY_ADDRESS"
"""Ray's own: the cluster that is asked node by node."""

RAY_USAGE_STATS = "RAY_USAGE_STATS_ENABLED"
"""Ray's own: ``0`` in the process that asks a cluster."""

HUB_TOKEN = "HF_TOKEN"
"""The Hub client's own variable, for the time of a look-up."""

PLUGINS = "VLLM_PLUGINS"
"""vLLM's list of the plug-ins that it may load, by name; unset: all."""

MODELSCOPE = "VLLM_USE_MODELSCOPE"
"""vLLM's switch for taking models from ModelScope."""

CPU_NODES = "CPU_VISIBLE_MEMORY_NODES"
"""vLLM's list of NUMA nodes for its CPU platform."""

CPU_KV_SPACE = "VLLM_CPU_KVCACHE_SPACE"
"""vLLM's size of the KV cache on its CPU platform, in GiB, before any argument."""

LONGER_WINDOWS = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""vLLM's own leave to go beyond a config's length."""

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
"""CUDA's own, read as CUDA reads it."""

DEVICE_ORDER = "CUDA_DEVICE_ORDER"
"""CUDA's own: ``PCI_BUS_ID`` numbers the cards as NVML does, anything else the fastest first."""

BUS_ORDER = "PCI_BUS_ID"

HUB_VERBOSITY = "HF_HUB_VERBOSITY"
"""The Hub client's own; ``error`` in our commands, where it is not set."""

NO_COLOR = "NO_COLOR"
"""Not empty: no colours."""

TERMINAL = "TERM"
"""``dumb``: no colours."""

COLUMNS = "COLUMNS"
"""Width of the terminal, for help and tables."""

IN_A_WORKFLOW = "GITHUB_ACTIONS"
"""``true``: a GitHub runner reads what is written, so that nothing in it may look like a command of a workflow."""

CHECKOUT = "GITHUB_WORKSPACE"
"""The folder from which a workflow's annotations name their files."""


def forced_profile(environment: Mapping[str, str]) -> str | None:
    """The profile that the caller names, ``off`` included; ``None`` where he names none."""
    return environment.get(PROFILE) or None


def strict(environment: Mapping[str, str]) -> bool:
    """Whether the caller would rather not start than start with less."""
    return environment.get(STRICT, "").strip().lower() in ("1", "true", "yes", "on")


def longer_windows(environment: Mapping[str, str]) -> bool:
    """Whether vLLM would start with a window beyond what the model's config allows."""
    return environment.get(LONGER_WINDOWS, "").strip().lower() in ("1", "true")


def kept_fields(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Engine arguments that ``ZENIT_SERVING_KEEP`` names, in EngineArgs' spelling."""
    words = environment.get(KEEP, "").split(",")
    return tuple(word.strip().lstrip("-").replace("-", "_") for word in words if word.strip())
