"""What the picture says in words: heading, verdict, and the text for people who do not see it."""

from __future__ import annotations

from typing import Literal

from zenit_hub.maintain.measure.picture.scale import Unit
from zenit_hub.maintain.measurement import BootKind, Breakdown, FailureKind, Measurement
from zenit_hub.text import printable

Tone = Literal["good", "soft", "bad"]

BOOTS: dict[BootKind, str] = {
    "cold": "cold",
    "warm": "warm",
    "verification": "verify",
    "below": "1 % less",
}

PARTS = (
    ("weights_bytes", "weights", "blue"),
    ("kv_cache_bytes", "KV cache", "orange"),
    ("activation_peak_bytes", "activations", "green"),
    ("cuda_graphs_bytes", "CUDA graphs", "purple"),
    ("contexts_bytes", "processes", "yellow"),
)
"""The parts of a figure in the order in which they are stacked: field of the breakdown, name, colour."""

UNACCOUNTED = "unaccounted"

_FAILURES: dict[FailureKind, str] = {
    "kv_cache_too_small": "the window does not fit the KV cache",
    "no_kv_cache_memory": "no memory left for the KV cache",
    "too_few_state_blocks": "too few state blocks",
    "not_admitted": "not enough free memory to start",
    "out_of_memory": "out of memory",
    "disturbed": "another process freed memory",
    "hang": "the engine did not answer in time",
    "died": "the engine died",
    "no_answer": "a request was not answered",
    "section_changed": "the section changed meanwhile",
    "cannot_start": "the engine could not be started",
    "contaminated": "other processes moved memory",
}


def figure_bytes(measurement: Measurement) -> int | None:
    """The figure, if the measurement stands for one."""
    return measurement.requires_free_bytes if measurement.verdict == "measured" else None


def told(breakdown: Breakdown, name: str) -> int | None:
    amount: int | None = getattr(breakdown, name)
    return amount


def drawn_bytes(measurement: Measurement) -> int:
    """How far the measurement's bar reaches: its parts may have been there one after the other."""
    parts = measurement.breakdown
    stacked = sum(told(parts, name) or 0 for name, _, _ in PARTS) if parts else 0
    return max(figure_bytes(measurement) or 0, parts.total_bytes if parts else 0, stacked)


def device_label(name: str) -> str:
    """NVML's name without what every one begins with."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def devices(measurement: Measurement) -> str:
    device = measurement.device
    name = "CPU platform" if device.platform == "cpu" else printable(device_label(device.name), limit=40)
    return f"{device.count} × {name}" if device.count > 1 else name


def heading(measurement: Measurement, unit: Unit) -> str:
    """The one line that a person takes away, behind the profile's name."""
    needed_bytes = figure_bytes(measurement)
    if needed_bytes is None:
        return ": no figure"
    each = f" on each of {measurement.device.count}" if measurement.device.count > 1 else ""
    return f" needs {unit.text(needed_bytes)} free{each}"


def window(measurement: Measurement) -> str:
    """The profile's window in tokens, or nothing where it names none."""
    tokens = measurement.profile.values.get("max_model_len")
    return f"{tokens:,} tokens" if isinstance(tokens, int) and tokens.bit_length() <= 64 else ""


def repo(measurement: Measurement) -> str:
    return printable(measurement.model.repo or "a local folder", limit=48)


def origin(measurement: Measurement) -> str:
    """Whose figure it is and where it comes from."""
    parts = (repo(measurement), window(measurement), devices(measurement), engine(measurement))
    return " · ".join(part for part in parts if part)


def engine(measurement: Measurement) -> str:
    return f"vLLM {printable(measurement.versions.vllm, limit=24)}"


def failure_words(measurement: Measurement) -> str:
    return _FAILURES[measurement.failure.kind] if measurement.failure else "no reason known"


def verdict(measurement: Measurement, unit: Unit) -> tuple[Tone, str]:
    """How far the figure can be trusted, in one sentence and a tone."""
    if measurement.verdict == "failed":
        return "bad", f"Failed: {failure_words(measurement)}."
    if measurement.verdict == "contaminated":
        moved = max((boot.foreign_bytes or 0 for boot in measurement.boots), default=0)
        amount = f" {unit.text(moved)}" if moved else ""
        return "bad", f"Contaminated: other processes moved{amount or ' memory'} during every try."
    check = measurement.verification
    if check is None or check.outcome == "not_tried":
        return "soft", "Not verified: nobody tried a launch with no more free than this."
    if check.outcome == "failed":
        return "bad", "Verification failed: with exactly this much free it did not answer."
    below = {
        "failed": "Verified: answers with exactly this much free, not with 1 % less.",
        "answered": "Verified with exactly this much free; 1 % less was enough, too.",
        "not_tried": "Verified: answers with exactly this much free.",
    }
    return "good", below[check.below_outcome]


def status(measurement: Measurement) -> tuple[Tone, str]:
    """The same in a word, for a list."""
    if measurement.verdict != "measured":
        return "bad", measurement.verdict
    if measurement.verified:
        return "good", "verified"
    check = measurement.verification
    return ("bad", "disproved") if check and check.outcome == "failed" else ("soft", "not verified")


def description(measurement: Measurement, unit: Unit, *, with_boots: bool = True) -> str:
    """All that the picture shows of one measurement, for people who do not see it."""
    sentences = [f"{origin(measurement)}."]
    name = printable(measurement.profile.name, limit=64)
    sentences.append(f"{name}{heading(measurement, unit)}. {verdict(measurement, unit)[1]}")
    parts = measurement.breakdown
    if parts is not None:
        named = [(label, told(parts, name)) for name, label, _ in PARTS]
        listed = ", ".join(f"{label} {unit.text(size)}" for label, size in named if size is not None)
        rest = f"{UNACCOUNTED} {unit.text(parts.unaccounted_bytes)}"
        sentences.append(f"Parts: {', '.join(filter(None, (listed, rest)))}.")
    for boot in measurement.boots if with_boots else ():
        took = "" if boot.drop_bytes is None else f", took {unit.text(boot.drop_bytes)}"
        sentences.append(f"Start {BOOTS[boot.kind]}: {boot.outcome}{took}, {boot.ended_after_s:.0f} s.")
    return " ".join(sentences)
