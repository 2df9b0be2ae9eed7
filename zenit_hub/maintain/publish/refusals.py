"""What may not be published, each with the reason and what to type. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from zenit_hub.maintain.figures import MEASURED_PINS
from zenit_hub.maintain.meaning import Asked
from zenit_hub.maintain.measurement import Measurement, WeightFile, to_json
from zenit_hub.maintain.publish.compare import changed_values, changed_weights
from zenit_hub.maintain.publish.entries import ENTRIES, label, layout_in, new_entry, profile_of
from zenit_hub.maintain.receipt import AGAIN, receipt_notes
from zenit_hub.maintain.validate import validate
from zenit_hub.rules import fault as schema_fault
from zenit_hub.section import ONE_DEVICE, PIN, WINDOW, section_key
from zenit_hub.text import listed, printable, shown


def refusal(
    config: Mapping[str, Any],
    weights: Sequence[WeightFile],
    measurement: Measurement,
    *,
    allow_unverified: bool = False,
) -> str | None:
    """Why ``measurement`` may not be published into ``config``, in one sentence with what to type.

    ``weights``: the weight files of the repo at the commit that ``config`` is of, as
    :data:`~zenit_hub.maintain.measure.subject.WEIGHT_SUFFIXES` tells them (of a file in LFS its SHA-256,
    of another one its blob id).
    """
    why = (
        _unsound(measurement)
        or _unverified(measurement, allow_unverified)
        or _unfit(config, measurement)
        or _outdated(config, weights, measurement)
    )
    return None if why is None else f"{label(measurement)}: {why}"


def fault(data: bytes, repo: str | None = None) -> str | None:
    """The first error that ``validate`` finds in a ``config.json``, in one sentence.

    Asked of the changed file before it is sent: whatever this module overlooked is not published.
    """
    for finding in validate(data, Asked(repo=repo)).findings:
        if finding.level == "error":
            where = f"{finding.path}: " if finding.path else ""
            line = f" (line {finding.line})" if finding.line is not None else ""
            return f"{where}{finding.message}{line}; {finding.fix}"
    return None


def _unsound(measurement: Measurement) -> str | None:
    """The run itself."""
    if measurement.verdict == "contaminated":
        return "other processes moved memory during every try; measure it again on a quiet device"
    if measurement.verdict == "failed":
        failure = measurement.failure
        why = f": {printable(failure.message)}" if failure is not None else ""
        advice = failure.advice if failure is not None else ""
        return f"it was not measured{why}; {printable(advice) or 'mend that and measure it again'}"
    if measurement.requires_free_bytes is None or measurement.kv_cache_memory_bytes is None:
        return "it names no figure, or no KV cache that it was measured with; measure it again"
    pin = measurement.profile.values.get(PIN)
    if pin is not None and pin != measurement.kv_cache_memory_bytes:
        return f"the pin of {measurement.kv_cache_memory_bytes} bytes is not the profile's, {shown(pin)}; {AGAIN}"
    notes = receipt_notes(json.loads(to_json(measurement)))
    wrong = next((note for note in notes if note.level == "error"), None)
    return f"{wrong.message}; {wrong.fix}" if wrong is not None else None


def _unverified(measurement: Measurement, allowed: bool) -> str | None:
    verification = measurement.verification
    if verification is not None and verification.outcome == "failed":
        return "a launch with no more free than the figure failed; measure it again"
    if measurement.verified or allowed:
        return None
    reason = printable(verification.reason) if verification is not None else ""
    return (
        f"no launch was held to the figure{f' ({reason})' if reason else ''}; measure it with verification, "
        f"or publish it marked as unverified with --allow-unverified"
    )


def _unfit(config: Mapping[str, Any], measurement: Measurement) -> str | None:
    """The section's side: is there a profile of that name that can carry the figure."""
    name = measurement.profile.name
    key = section_key(config)
    if key is None:
        return "the config carries no serving profiles; `zenit-hub init` proposes a section"
    profile = profile_of(config, name)
    if profile is None:
        body = config[key]
        profiles = body.get("profiles") if isinstance(body, dict) else None
        declared = f"declared: {listed(list(profiles)[:10])}" if isinstance(profiles, dict) else "none is"
        return f"the section declares no such profile, {declared}; a publication adds none"
    invalid = schema_fault("profile", profile)
    if invalid is not None:
        return f"the profile is not valid: {invalid}; `zenit-hub validate` shows every error"
    missing = [key for key in MEASURED_PINS if key not in profile and key != PIN]
    if missing:
        return f"a figure holds only for pinned values; add {listed(missing)} to the profile and measure it again"
    if PIN not in profile and measurement.profile.layout != layout_in(profile, ONE_DEVICE):
        return (
            f"the profile pins no {PIN}, and what was measured with {measurement.profile.layout} ranks is no "
            f"pin for its own {layout_in(profile, ONE_DEVICE)}; publish a measurement of that first"
        )
    why = schema_fault("profile", {WINDOW: 1, ENTRIES: [new_entry(measurement, "receipt.json", ONE_DEVICE)]})
    return f"a section cannot hold it: {why}; measure it again" if why else None


def _outdated(
    config: Mapping[str, Any], weights: Sequence[WeightFile], measurement: Measurement
) -> str | None:
    profile = profile_of(config, measurement.profile.name) or {}
    values = changed_values(profile, measurement)
    if values is not None:
        return f"the profile has changed since it was measured: {values}; measure it again"
    if not measurement.model.weights:
        return (
            "it names no weight files, so that nobody can see whether they are the repo's; measure it again"
        )
    files = changed_weights(weights, measurement.model.weights)
    return f"the weights have changed since they were measured: {files}; measure it again" if files else None
