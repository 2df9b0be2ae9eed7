"""The section of a ``config.json`` as typed data: the one place that knows its keys.

Whether a value is allowed is said by ``schema/serving_profiles.schema.json`` alone; here its checked
values become fields. What JSON Schema cannot say (the size of a plan, the engine's KV types) is added.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from zenit_hub.resources import schema
from zenit_hub.rules import fault, kind
from zenit_hub.text import shown
from zenit_hub.windows import window_limit

ARCHITECTURE_ID = "LomonosovZenitAltayForConditionalGeneration"
CONFIG_KEY = "lomonosov_serving_profiles"
NEUTRAL_KEY = "serving_profiles"
BUDGET_KEY = "requires_free_bytes"
PIN = "kv_cache_memory_bytes"
UTILIZATION = "gpu_memory_utilization"
WINDOW = "max_model_len"

ENGINE_FIELDS = (
    WINDOW,
    "kv_cache_dtype",
    "max_num_batched_tokens",
    "max_num_seqs",
    PIN,
    "enable_prefix_caching",
    "async_scheduling",
    "enforce_eager",
    "skip_mm_profiling",
    UTILIZATION,
    "swap_space",
)
"""The engine arguments that a profile may name, in the order in which they are said."""

LAYOUT_FIELDS = ("tensor_parallel_size", "pipeline_parallel_size")

MAX_PLAN_BYTES = 4096
"""An environment string of 128 KiB makes every spawn fail; a plan stays far below it."""

_CAPABILITY_DIGITS = 3


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks of one engine: tensor × pipeline."""

    tensor: int = 1
    pipeline: int = 1

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline

    def __str__(self) -> str:
        return f"{self.tensor} × {self.pipeline}"


ONE_DEVICE = Layout()


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one run on one card found. ``requires_free_bytes`` is per device."""

    device: str | None
    layout: Layout
    requires_free_bytes: int | None
    vllm: str | None
    receipt: str | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """One checked profile; ``arguments`` holds what it names of :data:`ENGINE_FIELDS`."""

    name: str
    max_model_len: int
    arguments: Mapping[str, Any]
    layout: Layout = ONE_DEVICE
    requires_free_bytes: int | None = None
    requires_compute_capability: tuple[int, int] | None = None
    cuda_alloc_conf: str | None = None
    noosphere_mode: str | None = None
    position_plan: Mapping[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    description: str = ""
    unknown_keys: tuple[str, ...] = ()

    @property
    def pin_bytes(self) -> int | None:
        """The KV cache per device that the profile asks for, in bytes."""
        pin: int | None = self.arguments.get(PIN)
        return pin

    @property
    def unknown_requirements(self) -> tuple[str, ...]:
        """Conditions of a later version of the section, which this one cannot check."""
        return tuple(key for key in self.unknown_keys if key.startswith("requires_"))


@dataclass(frozen=True, slots=True)
class Section:
    """A section that applies: its valid profiles, and why the others dropped out."""

    profiles: Mapping[str, Profile]
    invalid: Mapping[str, str]
    default_profile: str | None = None
    repo: str | None = None
    unknown_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoSection:
    """The config carries none, or is of a repo whose section would speak for another model."""


@dataclass(frozen=True, slots=True)
class OtherArchitecture:
    """The section speaks for ``architectures``; the config is of none of them."""

    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InvalidSection:
    """Nothing of the section can be used."""

    why: str


Reading = Section | NoSection | OtherArchitecture | InvalidSection


def section_key(config: Mapping[str, Any]) -> str | None:
    """The key under which the section stands: the family's own name before the neutral one."""
    return next((key for key in (CONFIG_KEY, NEUTRAL_KEY) if config.get(key) is not None), None)


def read_section(
    config: Mapping[str, Any], kv_cache_dtypes: Iterable[str], *, longer_allowed: bool = False
) -> Reading:
    """The section of a config. ``kv_cache_dtypes``: what the engine's ``--kv-cache-dtype`` accepts.

    A window beyond what the config itself allows drops out, as vLLM would refuse that start, unless
    ``longer_allowed``.
    """
    key = section_key(config)
    if key is None or config.get("speculators_config") is not None:
        return NoSection()
    body = config[key]
    why = _unusable(body)
    if why is not None:
        return InvalidSection(why)
    own = _strings(config.get("architectures"))
    spoken_for = tuple(body.get("architectures") or ((ARCHITECTURE_ID,) if key == CONFIG_KEY else own))
    if not set(spoken_for) & set(own) and not (key == NEUTRAL_KEY and "architectures" not in body):
        return OtherArchitecture(spoken_for)
    section = _typed_section(body, frozenset(kv_cache_dtypes))
    return section if longer_allowed else _within_the_config(section, config)


def _within_the_config(section: Section, config: Mapping[str, Any]) -> Section:
    limit = window_limit(config)
    if limit is None:
        return section
    why = (
        f"{WINDOW} is more than the {int(limit.tokens)} tokens that {'.'.join(limit.where)} allows, "
        f"and vLLM refuses such a start"
    )
    beyond = {name: why for name, profile in section.profiles.items() if profile.max_model_len > limit.tokens}
    kept = {name: profile for name, profile in section.profiles.items() if name not in beyond}
    return replace(section, profiles=kept, invalid={**section.invalid, **beyond})


def valid_arguments(arguments: Mapping[str, Any]) -> bool:
    """Whether ``arguments`` are engine arguments that a section could set, each within its range."""
    if not arguments.keys() <= {*ENGINE_FIELDS, *LAYOUT_FIELDS}:
        return False
    return fault("profile", {WINDOW: 1, **arguments}) is None


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, (list, tuple)) else ()


def _unusable(body: object) -> str | None:
    """Why nothing of the section can be used, or ``None``."""
    if not isinstance(body, dict):
        return f"it must be an object, got {kind(body)}"
    version = body.get("schema_version", 1)
    if isinstance(version, bool) or version != 1:
        return f"schema_version {shown(version)} is not known here, allowed: 1"
    profiles = body.get("profiles")
    if not isinstance(profiles, dict):
        return f"profiles must be an object of profiles, got {kind(profiles)}"
    bounds = schema()["properties"]["profiles"]
    if not bounds["minProperties"] <= len(profiles) <= bounds["maxProperties"]:
        allowed = f"{bounds['minProperties']} to {bounds['maxProperties']}"
        return f"profiles holds {len(profiles)} profiles, allowed: {allowed}"
    rest = {key: value for key, value in body.items() if key in schema()["properties"] and key != "profiles"}
    return fault("section", rest)


def _typed_section(body: Mapping[str, Any], kv_cache_dtypes: frozenset[str]) -> Section:
    profiles: dict[str, Profile] = {}
    invalid: dict[str, str] = {}
    for name, values in body["profiles"].items():
        profile = _typed_profile(name, values, kv_cache_dtypes)
        if isinstance(profile, Profile):
            profiles[name] = profile
        else:
            invalid[name] = profile
    return Section(
        profiles=profiles,
        invalid=invalid,
        default_profile=body.get("default_profile"),
        repo=body.get("repo"),
        unknown_keys=tuple(key for key in body if key not in schema()["properties"]),
    )


def _typed_profile(name: str, values: object, kv_cache_dtypes: frozenset[str]) -> Profile | str:
    """The profile, or why it drops out."""
    if fault("profileName", name) is not None:
        return "a name is 1 to 64 of A-Z a-z 0-9 . _ -, begins with a letter or digit and is not off"
    if not isinstance(values, dict):
        return f"a profile must be an object, got {kind(values)}"
    keys = schema()["$defs"]["profile"]["properties"]
    known = {key: value for key, value in values.items() if key in keys}
    unknown = [key for key in values if key not in keys]
    if isinstance(known.get("measurements"), list):
        known["measurements"], more = _known_entries(known["measurements"])
        unknown += more
    why = fault("profile", known)
    if why is not None:
        return why
    plan = known.get("position_plan", {})
    plan_bytes = len(compact(plan).encode())
    if plan_bytes > MAX_PLAN_BYTES:
        return f"position_plan takes {plan_bytes} bytes as compact JSON, allowed: {MAX_PLAN_BYTES}"
    dtype = known.get("kv_cache_dtype")
    if dtype is not None and dtype not in kv_cache_dtypes:
        known_names = ", ".join(sorted(kv_cache_dtypes))
        return f"kv_cache_dtype: this engine does not know {shown(dtype)}, it knows {known_names}"
    return _profile(name, known, tuple(unknown))


def _known_entries(entries: list[Any]) -> tuple[list[Any], list[str]]:
    """The measurements without the keys that this version does not know, and the places of those."""
    keys = schema()["$defs"]["measurement"]["properties"]
    unknown = [
        f"measurements.{place}.{key}"
        for place, entry in enumerate(entries)
        if isinstance(entry, dict)
        for key in entry
        if key not in keys
    ]
    if not unknown:
        return entries, []
    known = [{k: v for k, v in e.items() if k in keys} if isinstance(e, dict) else e for e in entries]
    return known, unknown


def _profile(name: str, known: Mapping[str, Any], unknown_keys: tuple[str, ...]) -> Profile:
    layout = _layout(known, ONE_DEVICE)
    capability = known.get("requires_compute_capability")
    return Profile(
        name=name,
        max_model_len=_whole(known[WINDOW]),
        arguments={key: _whole(known[key]) for key in ENGINE_FIELDS if key in known},
        layout=layout,
        requires_free_bytes=_whole(known.get(BUDGET_KEY)),
        requires_compute_capability=capability and parse_capability(capability),
        cuda_alloc_conf=known.get("cuda_alloc_conf"),
        noosphere_mode=known.get("noosphere_mode"),
        position_plan=known.get("position_plan", {}),
        measurements=tuple(
            Measurement(
                device=entry.get("device"),
                layout=_layout(entry, layout),
                requires_free_bytes=_whole(entry.get(BUDGET_KEY)),
                vllm=entry.get("vllm"),
                receipt=entry.get("receipt"),
            )
            for entry in known.get("measurements", ())
        ),
        description=known.get("description", ""),
        unknown_keys=unknown_keys,
    )


def _layout(values: Mapping[str, Any], default: Layout) -> Layout:
    tensor, pipeline = (values.get(key) for key in LAYOUT_FIELDS)
    if tensor is None and pipeline is None:
        return default
    return Layout(_whole(tensor or 1), _whole(pipeline or 1))


def parse_capability(text: str) -> tuple[int, int] | None:
    """``"8.9"`` → ``(8, 9)``; ``None`` where it is no capability."""
    major, _, minor = text.partition(".")
    if not all(part.isdecimal() and len(part) <= _CAPABILITY_DIGITS for part in (major, minor)):
        return None
    return int(major), int(minor)


def _whole(value: Any) -> Any:
    """JSON does not tell 4096 from 4096.0; the engine does."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def compact(value: object) -> str:
    """Compact JSON, the form in which a plan travels."""
    return json.dumps(value, separators=(",", ":"))
