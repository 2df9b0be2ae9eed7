"""A measurement as typed data: what ``measure`` writes, ``publish`` reads and the picture shows.

The form of the document is ``schema/measurement.schema.json``; the names here are the names there. Bytes are
per device and integers, times are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.document import read_document
from zenit_hub.maintain.finding import pointer
from zenit_hub.resources import MEASUREMENT_SCHEMA, schema
from zenit_hub.section import Layout
from zenit_hub.text import shown

VERSION = 1
VERSION_KEY = "measurement_version"
MAX_BYTES = 4 * 2**20
"""A larger file is no measurement: 600 samples of every boot take a tenth of it."""

Verdict = Literal["measured", "contaminated", "failed"]
BootKind = Literal["cold", "warm", "verification", "below"]
Outcome = Literal["answered", "failed", "contaminated", "disturbed"]
PhaseName = Literal["start", "loading", "compiling", "kv_cache", "graphs", "workload", "ending"]
Tried = Literal["answered", "failed", "not_tried"]
FailureKind = Literal[
    "kv_cache_too_small",
    "no_kv_cache_memory",
    "too_few_state_blocks",
    "not_admitted",
    "out_of_memory",
    "disturbed",
    "hang",
    "died",
    "no_answer",
    "section_changed",
    "cannot_start",
    "contaminated",
]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the engine did not answer. ``numbers``: what its message names, ``None`` where it names none."""

    kind: FailureKind
    message: str
    advice: str = ""
    numbers: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightFile:
    path: str
    size_bytes: int
    sha256: str | None = None
    blob_id: str | None = None


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    repo: str | None
    commit: str | None
    section_key: str
    config_sha256: str
    weights: tuple[WeightFile, ...]


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """``values``: the profile as it stood, without figure, entries and description."""

    name: str
    values: Mapping[str, Any]
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1

    @property
    def layout(self) -> Layout:
        return Layout(self.tensor_parallel_size, self.pipeline_parallel_size)


@dataclass(frozen=True, slots=True)
class MeasuredDevice:
    platform: Literal["cuda", "cpu"]
    name: str
    uuids: tuple[str, ...]
    count: int
    total_bytes: int
    compute_capability: str | None = None
    driver: str | None = None
    cuda: str | None = None


@dataclass(frozen=True, slots=True)
class Versions:
    vllm: str
    torch: str | None
    python: str
    platform: str


@dataclass(frozen=True, slots=True)
class Answers:
    requests: int
    answered: int
    prompt_tokens: int
    generated_tokens: int


@dataclass(frozen=True, slots=True)
class Phase:
    name: PhaseName
    start_s: float


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of the engine. ``samples``: pairs of seconds and bytes taken on the worst device."""

    kind: BootKind
    outcome: Outcome
    free_bytes: int | None = None
    drop_bytes: int | None = None
    own_peak_bytes: int | None = None
    foreign_bytes: int | None = None
    ready_after_s: float | None = None
    ended_after_s: float = 0.0
    answers: Answers | None = None
    phases: tuple[Phase, ...] = ()
    samples: tuple[tuple[float, int], ...] = ()
    sampled_hz: float | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of the figure; ``None``: the engine does not tell. All together are ``total_bytes``."""

    weights_bytes: int | None
    kv_cache_bytes: int | None
    activation_peak_bytes: int | None
    cuda_graphs_bytes: int | None
    contexts_bytes: int | None
    unaccounted_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Verification:
    method: Literal["cgroup", "ballast", "none"]
    free_bytes: int | None
    outcome: Tried
    below_free_bytes: int | None
    below_outcome: Tried
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Contamination:
    limit_bytes: int
    contaminated_boots: int = 0
    largest_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One profile on one card model and layout."""

    tool_version: str
    created: str
    verdict: Verdict
    model: MeasuredModel
    profile: MeasuredProfile
    device: MeasuredDevice
    versions: Versions
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    requires_free_bytes: int | None
    kv_cache_memory_bytes: int | None
    boots: tuple[Boot, ...]
    spread_bytes: int | None
    breakdown: Breakdown | None
    verification: Verification | None
    contamination: Contamination
    failure: Failure | None

    @property
    def verified(self) -> bool:
        """Whether a launch with no more free than the figure answered."""
        return self.verification is not None and self.verification.outcome == "answered"

    @property
    def disproved(self) -> bool:
        """Whether a launch with no more free than the figure did not answer."""
        return self.verification is not None and self.verification.outcome == "failed"


def to_json(measurement: Measurement) -> str:
    """The document, as it is written to a file: the same measurement gives the same bytes."""
    document = {VERSION_KEY: VERSION, **asdict(measurement)}
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    # Half a surrogate pair, as in the name of a file that is not UTF-8, is no text; as JSON's escape it is.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return _with_samples_on_a_line(text) + "\n"


def read_measurement(data: bytes, name: str) -> Measurement:
    """A document's bytes as a measurement. Raises :class:`MeasurementError` that says what is wrong with ``name``."""
    if len(data) > MAX_BYTES:
        raise MeasurementError(
            f"{name} is no measurement", got=f"more than {MAX_BYTES} bytes", next_step="Measure it again."
        )
    # As strictly as a config is read: a receipt says the same to every reader, or it is none.
    document = read_document(data)
    odd = [f"{pointer(place)} is {text}" for place, text in document.not_numbers]
    odd += [f"{pointer(note.where)} {note.message}".strip() for note in document.notes]
    if document.value is None or VERSION_KEY not in document.value:
        raise MeasurementError(
            f"{name} is no measurement",
            allowed="what `zenit-hub measure` wrote",
            next_step="Measure it again.",
        )
    fault = odd[0] if odd else first_fault(document.value)
    if fault is not None:
        raise MeasurementError(f"{name} is no measurement: {fault}", next_step="Measure it again.")
    try:
        return from_document(document.value)
    except OverflowError:
        raise MeasurementError(
            f"{name} is no measurement: a number in it is too large", next_step="Measure it again."
        ) from None


def first_fault(document: Mapping[str, Any]) -> str | None:
    """The first thing that the schema refuses, in words; ``None`` where it accepts the document."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    worst = best_match(Draft202012Validator(schema(MEASUREMENT_SCHEMA)).iter_errors(document))
    if worst is None:
        return None
    where = ".".join(str(step) for step in worst.absolute_path) or "the document"
    return f"{where} is not what the schema allows (got {shown(worst.instance)})"


def from_document(document: Mapping[str, Any]) -> Measurement:
    """A document that the schema accepts, as typed data."""
    fields = {key: value for key, value in document.items() if key != VERSION_KEY}
    for key in ("requires_free_bytes", "kv_cache_memory_bytes"):
        if fields[key] is not None:
            fields[key] = int(fields[key])  # 24.0 is an integer to the schema, and no figure for a config
    model = fields["model"]
    return Measurement(
        **{
            **fields,
            "model": MeasuredModel(
                **{**model, "weights": tuple(WeightFile(**file) for file in model["weights"])}
            ),
            "profile": MeasuredProfile(**fields["profile"]),
            "device": MeasuredDevice(**{**fields["device"], "uuids": tuple(fields["device"]["uuids"])}),
            "versions": Versions(**fields["versions"]),
            "boots": tuple(_boot(boot) for boot in fields["boots"]),
            "breakdown": Breakdown(**fields["breakdown"]) if fields["breakdown"] else None,
            "verification": Verification(**fields["verification"]) if fields["verification"] else None,
            "contamination": Contamination(**fields["contamination"]),
            "failure": Failure(**fields["failure"]) if fields["failure"] else None,
        }
    )


def _boot(boot: Mapping[str, Any]) -> Boot:
    return Boot(
        **{
            **boot,
            "answers": Answers(**boot["answers"]) if boot["answers"] else None,
            "phases": tuple(Phase(**phase) for phase in boot["phases"]),
            "samples": tuple((float(when_s), int(taken)) for when_s, taken in boot["samples"]),
            "failure": Failure(**boot["failure"]) if boot["failure"] else None,
        }
    )


def _with_samples_on_a_line(text: str) -> str:
    """Each ``[seconds, bytes]`` on one line: a receipt is read by people too."""
    import re

    return re.sub(r"\[\n\s+(-?[\d.e+-]+),\n\s+(-?[\d.e+-]+)\n\s+\]", r"[\1, \2]", text)
