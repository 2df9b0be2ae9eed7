"""A measurement to build tests on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zenit_hub.maintain.measurement import (
    Answers,
    Boot,
    BootKind,
    Breakdown,
    Contamination,
    MeasuredDevice,
    MeasuredModel,
    MeasuredProfile,
    Measurement,
    Phase,
    Verification,
    Versions,
    WeightFile,
)

GIB = 2**30
MIB = 2**20
FIGURE_BYTES = 24 * GIB
CARD = "NVIDIA GeForce RTX 5090"


def a_boot(kind: BootKind = "cold", drop_bytes: int = FIGURE_BYTES - 100) -> Boot:
    return Boot(
        kind=kind,
        outcome="answered",
        free_bytes=30 * GIB,
        drop_bytes=drop_bytes,
        own_peak_bytes=drop_bytes,
        foreign_bytes=0,
        ready_after_s=41.5,
        ended_after_s=60.25,
        answers=Answers(6, 6, 8190, 96),
        phases=(Phase("start", 0.0), Phase("loading", 3.0), Phase("workload", 41.5), Phase("ending", 55.0)),
        samples=((0.0, 0), (20.0, drop_bytes // 2), (50.0, drop_bytes)),
        sampled_hz=124.8,
    )


def a_measurement(profile: str = "m256k", **changes: Any) -> Measurement:
    """Measured and verified on one card, with every part told."""
    whole = Measurement(
        tool_version="0.1.0",
        created="2026-12-01T15:00:00Z",
        verdict="measured",
        model=MeasuredModel(
            repo="org/model",
            commit="a" * 40,
            section_key="lomonosov_serving_profiles",
            config_sha256="b" * 64,
            weights=(WeightFile("model.safetensors", 15 * GIB, "c" * 64, None),),
        ),
        profile=MeasuredProfile(
            profile,
            {
                "max_model_len": 262144,
                "max_num_batched_tokens": 4096,
                "max_num_seqs": 1,
                "enable_prefix_caching": False,
                "kv_cache_memory_bytes": 6 * GIB,
            },
        ),
        device=MeasuredDevice("cuda", CARD, ("GPU-0a0b0c0d",), 1, 33704378368, "12.0", "580.65.06", "12.8"),
        versions=Versions("0.32.0", "2.9.0+cu128", "3.12.4", "Linux 6.8.0 x86_64"),
        arguments={"max_model_len": 262144, "kv_cache_memory_bytes": 6 * GIB},
        environment={},
        requires_free_bytes=FIGURE_BYTES,
        kv_cache_memory_bytes=6 * GIB,
        boots=(a_boot("cold"), a_boot("warm", FIGURE_BYTES - 20 * MIB)),
        spread_bytes=20 * MIB - 100,
        breakdown=Breakdown(
            15 * GIB, 6 * GIB, GIB, 200 * MIB, 700 * MIB, 2 * GIB - 900 * MIB - 100, FIGURE_BYTES - 100
        ),
        verification=Verification("ballast", FIGURE_BYTES, "answered", FIGURE_BYTES * 99 // 100, "failed"),
        contamination=Contamination(16 * MIB, 0, 0),
        failure=None,
    )
    return replace(whole, **changes)
