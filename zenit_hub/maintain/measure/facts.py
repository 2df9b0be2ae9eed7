"""What a figure stands on besides the model: device, versions, variables that move memory."""

from __future__ import annotations

import platform as system
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal

from zenit_hub import env
from zenit_hub.deadline import within
from zenit_hub.device import nvml_module
from zenit_hub.maintain.measurement import MeasuredDevice, Versions
from zenit_hub.visible import Card

MEMORY_VARIABLES = (
    *env.ALLOCATOR_SPELLINGS,
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "NCCL_BUFFSIZE",
    "NCCL_MAX_NCHANNELS",
    "NCCL_CUMEM_ENABLE",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    "VLLM_ATTENTION_BACKEND",
    "VLLM_WORKER_MULTIPROC_METHOD",
    "VLLM_ENABLE_V1_MULTIPROCESSING",
    "VLLM_FLOAT32_MATMUL_PRECISION",
    "VLLM_ALLREDUCE_USE_SYMM_MEM",
    "VLLM_USE_DEEP_GEMM",
    "VLLM_USE_FLASHINFER_SAMPLER",
    "VLLM_CPU_KVCACHE_SPACE",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_CPU_NUM_OF_RESERVED_CPU",
    "VLLM_CPU_SIM_MULTI_NUMA",
    "OMP_NUM_THREADS",
    "MALLOC_ARENA_MAX",
    "MALLOC_TRIM_THRESHOLD_",
    "LD_PRELOAD",
)
"""Read in PyTorch's, NCCL's and vLLM's (0.28 to 0.33) documentation of their variables. None can hold a secret."""

PRELOADED = "LD_PRELOAD"

DRIVER_PATIENCE_S = 5.0
"""A driver that does not answer must not keep a result from being written."""


def device_facts(platform: Literal["cuda", "cpu"], cards: Sequence[Card]) -> MeasuredDevice:
    """The devices under the ranks. ``total_bytes`` is the smallest's; names and capabilities are the first's."""
    total_bytes = min((card.total_bytes or 0 for card in cards), default=0)
    if platform == "cpu":
        return MeasuredDevice("cpu", "cpu", (), max(1, len(cards)), total_bytes)
    capability = cards[0].compute_capability if cards else None
    return MeasuredDevice(
        platform="cuda",
        name=cards[0].name if cards else "",
        uuids=tuple(card.uuid for card in cards if card.uuid),
        count=max(1, len(cards)),
        total_bytes=total_bytes,
        compute_capability=capability and f"{capability[0]}.{capability[1]}",
        driver=_driver(),
        cuda=_cuda(),
    )


def version_facts(vllm: str) -> Versions:
    """``vllm``: what the engine said of itself."""
    return Versions(
        vllm=vllm,
        torch=_installed("torch"),
        python=system.python_version(),
        platform=f"{system.system()} {system.release()} {system.machine()}",
    )


def memory_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those that are set. Of preloaded libraries the names: where they lie is nobody's business."""
    there = {name: environment[name] for name in MEMORY_VARIABLES if environment.get(name)}
    if PRELOADED in there:
        libraries = re.split(r"[ :]+", there[PRELOADED].strip())
        there[PRELOADED] = " ".join(PurePath(library).name for library in libraries)
    return there


def _driver() -> str | None:
    nvml = nvml_module()
    if nvml is None:
        return None

    def ask() -> Any:
        nvml.nvmlInit()
        try:
            return nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()

    try:
        version = within(DRIVER_PATIENCE_S, ask)
    except (nvml.NVMLError, TimeoutError):
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _cuda() -> str | None:
    """From the label of torch's version: ``2.8.0+cu128`` was built with 12.8."""
    label = re.search(r"\+cu(\d+)(\d)", _installed("torch") or "")
    return f"{label[1]}.{label[2]}" if label else None


def _installed(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
