"""Measurements that are hard to draw, and what a test reads of a picture."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

from tests.measurements import GIB, MIB, a_boot, a_measurement
from zenit_hub.maintain.measure.picture import svg
from zenit_hub.maintain.measure.picture.sheet import width_of
from zenit_hub.maintain.measurement import (
    Boot,
    BootKind,
    Breakdown,
    Contamination,
    Failure,
    MeasuredDevice,
    MeasuredProfile,
    Measurement,
    Phase,
    Versions,
)

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {
    "svg",
    "title",
    "desc",
    "style",
    "defs",
    "pattern",
    "rect",
    "path",
    "line",
    "circle",
    "text",
    "tspan",
}
KIB, TIB = 2**10, 2**40
EVIL = "\"'/><script>alert(1)</script>]]>&amp;--><!--\x00\x1b[31m\u202e\ud800\ufffe"


def root_of(text: str) -> ElementTree.Element:
    """The document, parsed: fails where it is no XML."""
    return ElementTree.fromstring(text.encode("utf-8"))


def texts(text: str) -> list[str]:
    """All that a person reads, in the order in which it is painted."""
    return ["".join(element.itertext()) for element in root_of(text).iter(f"{SVG}text")]


def shown(*measurements: Measurement) -> str:
    """The texts of a picture on one line each."""
    return "\n".join(texts(svg(measurements)))


def told(text: str) -> str:
    """The text alternative: title and description."""
    root = root_of(text)
    return f"{root.findtext(f'{SVG}title')} {root.findtext(f'{SVG}desc')}"


def with_boots(*boots: Boot, **changes: Any) -> Measurement:
    return a_measurement(boots=boots, **changes)


def long_boot(kind: BootKind = "cold") -> Boot:
    """Four hours, eight thousand samples, one of them a peak."""
    step_s = 14400 / 8_000
    samples = [(index * step_s, 8 * GIB + index % 7) for index in range(8_000)]
    samples[2_667] = (samples[2_667][0], 20 * GIB)
    phases = (Phase("start", 0), Phase("loading", 600), Phase("compiling", 3600), Phase("workload", 9000))
    return replace(a_boot(kind), ended_after_s=14400.0, phases=phases, samples=tuple(samples))


def of_size(size_bytes: int, **changes: Any) -> Measurement:
    parts = Breakdown(
        size_bytes // 2,
        size_bytes // 4,
        0,
        None,
        size_bytes // 8,
        size_bytes - size_bytes * 7 // 8,
        size_bytes,
    )
    boot = replace(
        a_boot(), drop_bytes=size_bytes, samples=((0.0, 0), (20.0, size_bytes // 2), (40.0, size_bytes))
    )
    return with_boots(boot, requires_free_bytes=size_bytes, breakdown=parts, **changes)


def failed(**changes: Any) -> Measurement:
    reason = Failure(
        "kv_cache_too_small", "12.11 GiB KV cache is needed, 8.38 GiB is available", "Free memory."
    )
    whole: dict[str, Any] = {
        "verdict": "failed",
        "requires_free_bytes": None,
        "breakdown": None,
        "verification": None,
        "boots": (replace(a_boot(), outcome="failed", failure=reason),),
        "failure": reason,
    }
    return replace(a_measurement(), **{**whole, **changes})


def contaminated() -> Measurement:
    boots = tuple(replace(a_boot(), outcome="contaminated", foreign_bytes=6 * GIB) for _ in range(3))
    reason = Failure("contaminated", "pid 777 moved 6.00 GiB", "Stop it.")
    return a_measurement(
        verdict="contaminated",
        boots=boots,
        verification=None,
        failure=reason,
        contamination=Contamination(16 * MIB, 3, 6 * GIB),
    )


def strange() -> Measurement:
    """Every string that a stranger can write is as bad as it can be."""
    whole = failed(failure=Failure("died", EVIL + "A" * 3000, EVIL * 9))
    return replace(
        whole,
        model=replace(whole.model, repo=EVIL + "é" * 300),
        profile=MeasuredProfile(EVIL + "W" * 300, {"max_model_len": 10**40, "gpu_memory_utilization": True}),
        device=replace(whole.device, name=EVIL + "名" * 300),
        versions=Versions(EVIL * 20, EVIL, EVIL, EVIL),
        tool_version=EVIL * 20,
    )


def on_host(**changes: Any) -> Measurement:
    return a_measurement(device=MeasuredDevice("cpu", "cpu", (), 1, 24 * GIB), **changes)


ODD: dict[str, tuple[Measurement, ...]] = {
    "usual": (a_measurement(),),
    "no boots": (with_boots(),),
    "no samples": (with_boots(replace(a_boot(), samples=())),),
    "one sample": (with_boots(replace(a_boot(), samples=((3.0, 5 * GIB),))),),
    "no phases": (with_boots(replace(a_boot(), phases=())),),
    "no time": (with_boots(replace(a_boot(), ended_after_s=0.0, phases=(), samples=((0.0, 0), (0.0, 1)))),),
    "phases out of order": (
        with_boots(replace(a_boot(), phases=(Phase("workload", 90.0), Phase("start", 2.0)))),
    ),
    "samples out of order": (with_boots(replace(a_boot(), samples=((9.0, 5), (1.0, 7), (4.0, 0)))),),
    "four hours": (with_boots(long_boot(), long_boot("warm")),),
    "failed": (failed(),),
    "failed without a word": (failed(failure=None, boots=()),),
    "contaminated": (contaminated(),),
    "no breakdown": (a_measurement(breakdown=None),),
    "nothing told": (a_measurement(breakdown=Breakdown(None, None, None, None, None, 5, 5)),),
    "negative rest": (a_measurement(breakdown=Breakdown(20 * GIB, 9 * GIB, GIB, 1, 1, -6 * GIB, 24 * GIB)),),
    "all nought": (of_size(0),),
    "1 KiB": (of_size(KIB),),
    "10 TiB": (of_size(10 * TIB),),
    "strangers": (strange(),),
    "several strangers": (strange(), a_measurement()),
    "host": (on_host(),),
    "host and card": (on_host(), a_measurement()),
    "1 KiB and 10 TiB": (of_size(KIB), of_size(10 * TIB)),
    "only failed ones": (failed(), failed()),
    "64 profiles": tuple(
        a_measurement(f"p{index}") if index % 3 else failed(profile=MeasuredProfile(f"p{index}", {}))
        for index in range(64)
    ),
}


@cache
def drawn(case: str) -> str:
    return svg(ODD[case])


def lines(root: ElementTree.Element) -> dict[float, list[tuple[float, float, str]]]:
    """The texts by their baselines, each from where to where it reaches."""
    found: dict[float, list[tuple[float, float, str]]] = {}
    for element in root.iter(f"{SVG}text"):
        size, x = float(element.get("font-size") or 0), float(element.get("x") or 0)
        runs = list(element) or [element]
        width = sum(width_of(run.text or "", size, "bold" in (run.get("class") or "")) for run in runs)
        width += sum(float(run.get("dx", "0")) for run in runs)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[element.get("text-anchor", "start")]
        found.setdefault(float(element.get("y") or 0), []).append(
            (left, left + width, "".join(element.itertext()))
        )
    return found
