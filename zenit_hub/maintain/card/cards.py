"""The common cards: what each can address, as CUDA and vLLM see it, and where that was read.

The totals are CUDA's (NVML's without the part that the driver reserves). They move by some tens of MiB
between drivers; of several readings the one that names its card, and of those the newest, counts. Nothing
is decided here: the figures describe machines that the decision is then asked about.
"""

from __future__ import annotations

from dataclasses import dataclass

_MIB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonCard:
    """A card that many people have. ``name`` is NVML's, ``label`` what people call it, ``size`` what is on the box.

    ``group``: cards of one row of the table, where their answers are the same. ``system_bytes``: what the
    system keeps of an integrated card's memory when nothing else runs.
    """

    name: str
    label: str
    size: str
    compute_capability: tuple[int, int]
    total_bytes: int
    source: str
    group: str = ""
    integrated: bool = False
    system_bytes: int = 0

    @property
    def idle_free_bytes(self) -> int:
        """What a launch finds free when nothing else runs."""
        return self.total_bytes - self.system_bytes

    @property
    def row(self) -> str:
        return self.group or self.label


def _gib(hundredths: int) -> int:
    """Bytes of a figure that a log gives in GiB with two places (rounded there, to the nearest)."""
    return hundredths * 2**30 // 100


COMMON_CARDS: tuple[CommonCard, ...] = (
    CommonCard(
        name="NVIDIA GeForce RTX 3090",
        label="RTX 3090",
        size="24 GB",
        compute_capability=(8, 6),
        total_bytes=_gib(2356),
        source="vLLM's start on eight of them, 22.93 of 23.56 GiB free: github.com/wtdcode/vllm-backport/issues/34",
        group="RTX 3090 / RTX 4090",
    ),
    CommonCard(
        name="NVIDIA GeForce RTX 4090",
        label="RTX 4090",
        size="24 GB",
        compute_capability=(8, 9),
        total_bytes=_gib(2352),
        source="PyTorch's out-of-memory message, 23.52 GiB: github.com/Soul-AILab/SoulX-FlashTalk/issues/5",
        group="RTX 3090 / RTX 4090",
    ),
    CommonCard(
        name="NVIDIA GeForce RTX 5090",
        label="RTX 5090",
        size="32 GB",
        compute_capability=(12, 0),
        total_bytes=34190917632 - 486539264,
        source="NVML on ZENIT ALTAY's maintainer's card: 34190917632 bytes, 486539264 of them reserved (31.39 GiB)",
    ),
    CommonCard(
        name="NVIDIA L4",
        label="L4",
        size="24 GB",
        compute_capability=(8, 9),
        total_bytes=23_659_151_360,
        source="torch.cuda on a cloud's L4 (22.03 GiB; the same in PyTorch's messages of other clouds, 2026)",
    ),
    CommonCard(
        name="NVIDIA L40S",
        label="L40S",
        size="48 GB",
        compute_capability=(8, 9),
        total_bytes=_gib(4442),
        source="PyTorch's out-of-memory message, 44.42 GiB: github.com/stepfun-ai/Step-Video-T2V/issues/8",
    ),
    CommonCard(
        name="NVIDIA A100-SXM4-80GB",
        label="A100",
        size="80 GB",
        compute_capability=(8, 0),
        total_bytes=_gib(7932),
        source="vLLM's start, 79.32 GiB: github.com/vllm-project/vllm-omni/issues/276",
    ),
    CommonCard(
        name="NVIDIA H100 80GB HBM3",
        label="H100",
        size="80 GB",
        compute_capability=(9, 0),
        total_bytes=_gib(7918),
        source="vLLM's start on an idle one, 78.66 of 79.18 GiB free (read by the project, vLLM 0.32)",
    ),
    CommonCard(
        name="NVIDIA H200",
        label="H200",
        size="141 GB",
        compute_capability=(9, 0),
        total_bytes=143_156 * _MIB,
        source="torch's device properties, 143156 MiB: github.com/ai-bot-pro/achatbot (deploy/modal/src/llm/vllm)",
    ),
    CommonCard(
        name="NVIDIA GB10",
        label="DGX Spark",
        size="128 GB",
        compute_capability=(12, 1),
        total_bytes=130_663_165_952,
        source="MemTotal and MemAvailable of its host, 121.69 and 113.07 GiB: its GPU has no memory of its own",
        integrated=True,
        system_bytes=130_663_165_952 - 121_411_960_832,
    ),
)
"""In the order in which they are shown. Compute capabilities: developer.nvidia.com/cuda-gpus."""
