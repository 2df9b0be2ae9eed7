"""A described machine (``plan --machine``): nothing of the real one enters the decision."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from zenit_hub.compat import PROFILE_FIELDS, EngineFacts, engine_facts
from zenit_hub.errors import MachineFileError
from zenit_hub.files import read_limited
from zenit_hub.limits import MAX_CONFIG_BYTES
from zenit_hub.machine import PLATFORMS, Device, Host, Machine, Platform, Slice, Surroundings
from zenit_hub.nvml_words import in_words
from zenit_hub.section import parse_capability
from zenit_hub.text import printable, shown

_MAX_BYTES = 1 << 63
"""More than any device holds: NVML's own figures have 64 bits."""

_WHOLE = "the machine file"


@dataclass(frozen=True, slots=True)
class DescribedMachine:
    """Everything that a decision takes from a machine file."""

    around: Surroundings
    machine: Machine
    device_ids: tuple[int | str, ...] | None


def read_machine_file(path: Path, installed_version: str) -> DescribedMachine:
    """Read ``path``. Raises :class:`MachineFileError`; ``installed_version`` counts where the file names none."""
    try:
        data = read_limited(path, MAX_CONFIG_BYTES)
        content = json.loads(data.decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not JSON ({error})"
        raise MachineFileError(
            f"the machine file {printable(path)} cannot be read: {why}",
            next_step="See `zenit-hub plan --help` for its form.",
        ) from None
    if not isinstance(content, dict):
        raise _wrong(_WHOLE, content, "an object")
    return _described(content, installed_version)


def _described(content: Mapping[str, Any], installed_version: str) -> DescribedMachine:
    platform = _get(content, "platform", str, "cuda")
    if platform not in PLATFORMS:
        raise _wrong("platform", platform, ", ".join(get_args(Platform)))
    version = _get(content, "vllm_version", str, None) or installed_version
    environment = _get(content, "env", dict, {})
    for name, value in environment.items():
        if not isinstance(value, str):
            raise _wrong(f"env.{printable(name)}", value, "a string")
    driver_error = _get(content, "driver_error", str, None)
    machine = Machine(
        source="machine",
        devices=tuple(
            _device(entry, place) for place, entry in enumerate(_get(content, "devices", list, []))
        ),
        driver_error=driver_error and in_words(driver_error),
        host=_host(content),
    )
    device_ids = _get(content, "device_ids", list, None)
    return DescribedMachine(
        around=Surroundings(platform, _engine(content, version), MappingProxyType(environment)),
        machine=machine,
        device_ids=None if device_ids is None else tuple(device_ids),
    )


def _engine(content: Mapping[str, Any], version: str) -> EngineFacts:
    facts = engine_facts(version)
    absent = _get(content, "engine_fields_absent", list, None)
    if absent is not None:
        if not all(isinstance(name, str) for name in absent):
            raise _wrong("engine_fields_absent", absent, "a list of names")
        facts = replace(facts, fields_absent=frozenset(absent) & PROFILE_FIELDS)
    defaults = _get(content, "engine_defaults", dict, {})
    utilization = defaults.get("gpu_memory_utilization", 1)
    if not isinstance(utilization, (int, float)) or isinstance(utilization, bool) or not 0 < utilization <= 1:
        raise _wrong("engine_defaults.gpu_memory_utilization", utilization, "a number above 0 and up to 1")
    return replace(facts, defaults=MappingProxyType({**facts.defaults, **defaults}))


def _device(entry: Any, place: int) -> Device:
    if not isinstance(entry, dict):
        raise _wrong(f"devices.{place}", entry, "an object")
    total_bytes = _bytes(entry, "total_bytes", place)
    reserved_bytes = _bytes(entry, "reserved_bytes", place) or 0
    error = _get(entry, "memory_error", str, None)
    return Device(
        index=_get(entry, "index", int, place),
        uuid=_get(entry, "uuid", str, ""),
        name=_get(entry, "name", str, ""),
        compute_capability=parse_capability(_get(entry, "compute_capability", str, "")),
        total_bytes=None if total_bytes is None else max(0, total_bytes - reserved_bytes),
        free_bytes=_bytes(entry, "free_bytes", place),
        error=error and in_words(error),
        integrated=_get(entry, "integrated", bool, False),
        slices=tuple(_slice(part, place) for part in _get(entry, "mig", list, None) or ()),
    )


def _slice(entry: Any, place: int) -> Slice:
    if not isinstance(entry, dict):
        raise _wrong(f"devices.{place}.mig", entry, "a list of objects")
    error = _get(entry, "memory_error", str, None)
    return Slice(
        uuid=_get(entry, "uuid", str, ""),
        total_bytes=_bytes(entry, "total_bytes", place),
        free_bytes=_bytes(entry, "free_bytes", place),
        name=_get(entry, "name", str, None),
        error=error and in_words(error),
    )


def _host(content: Mapping[str, Any]) -> Host | None:
    host = _get(content, "host", dict, None)
    if host is None:
        return None
    total_bytes, available_bytes = _bytes(host, "mem_total_bytes"), _bytes(host, "mem_available_bytes")
    if total_bytes is None or available_bytes is None:
        return None
    return Host(total_bytes, available_bytes)


def _bytes(entry: Mapping[str, Any], key: str, place: int | None = None) -> int | None:
    value: int | None = _get(entry, key, int, None)
    if value is not None and not 0 <= value <= _MAX_BYTES:
        raise _wrong(key if place is None else f"devices.{place}.{key}", value, "bytes, 0 to 2^63")
    return value


def _get(entry: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    """``entry[key]`` where it is of ``kind``; ``null`` and absence are the default."""
    value = entry.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        names = {
            str: "a string",
            int: "a whole number",
            dict: "an object",
            list: "a list",
            bool: "true or false",
        }
        raise _wrong(key, value, names[kind])
    return value


def _wrong(where: str, got: object, allowed: str) -> MachineFileError:
    return MachineFileError(
        f"{where} is wrong" if where == _WHOLE else f"the machine file's {where} is wrong",
        got=shown(got, limit=80),
        allowed=allowed,
        next_step="See `zenit-hub plan --help` for its form.",
    )
