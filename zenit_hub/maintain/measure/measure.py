"""All profiles of a run, one after the other; a file for each as it is done.

The arguments that a measurement records are those that serving would set (:mod:`launches`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from zenit_hub import env
from zenit_hub.errors import MeasurementError
from zenit_hub.files import replace_file
from zenit_hub.installed import assumed_version
from zenit_hub.maintain.measure.boot import Task
from zenit_hub.maintain.measure.boots import Found, Plan, measure_boots, planned_boots
from zenit_hub.maintain.measure.facts import device_facts, memory_variables, version_facts
from zenit_hub.maintain.measure.launch import Order
from zenit_hub.maintain.measure.launches import Launch, Place, Settings, plan_launch
from zenit_hub.maintain.measure.results import Results, Stamp
from zenit_hub.maintain.measure.samplers import FOREIGN_LIMIT_BYTES
from zenit_hub.maintain.measure.subject import Subject
from zenit_hub.maintain.measure.watch import Watch
from zenit_hub.maintain.measure.workload import Shape
from zenit_hub.maintain.measurement import Contamination, Failure, MeasuredProfile, Measurement
from zenit_hub.section import BUDGET_KEY, PIN
from zenit_hub.text import gib, printable

NOT_MEASURED = (BUDGET_KEY, "measurements", "description")
"""What of a profile has no part in a launch."""

PICTURE_WIDTH_PX = 1440
"""Twice what a model card is wide, for screens of twice the density."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run over several profiles of one model."""

    subject: Subject
    place: Place
    settings: Settings
    results: Results
    scratch: Path
    watch: Watch

    def measure(self, profiles: Sequence[str]) -> list[Measurement]:
        """Each profile's measurement, written as it is done. Raises what stops the tool; files so far stay."""
        self._refuse_what_is_there(profiles)
        stamps = {profile: self.results.stamp(profile) for profile in profiles}
        self.watch.run_begins(profiles)
        return [self._one(profile, stamps[profile]) for profile in profiles]

    def _refuse_what_is_there(self, profiles: Sequence[str]) -> None:
        self.results.prepare()
        there = [name for name in profiles if self.results.there(name)]
        if there and not (self.settings.resume or self.settings.overwrite):
            raise MeasurementError(
                "there is a result already",
                got=", ".join(printable(self.results.file(name)) for name in there),
                next_step="Type --resume to keep what is done, --overwrite to measure again, or another --output.",
            )
        foreign = [n for n in there if self.results.foreign(n, overwrite=self.settings.overwrite)]
        if foreign:
            raise MeasurementError(
                "what is there is no result of a run",
                got=", ".join(printable(self.results.file(name)) for name in foreign),
                next_step="Move it away, or name another --output.",
            )

    def _one(self, profile: str, stamp: Stamp) -> Measurement:
        launch = plan_launch(self.subject, profile, self.place)
        done = self._done_before(launch) if self.settings.resume else None
        if done is not None:
            self.watch.profile_ends(done, str(self.results.file(profile)))
            return done
        settings = self.settings
        self.watch.profile_begins(profile, planned_boots(settings.boots, settings.verify))
        found = self._boots(launch) if launch.unfit is None else Found(failure=launch.unfit)
        measurement = self._measurement(launch, found)
        file = self.results.write(measurement, stamp)
        if measurement.requires_free_bytes is not None:
            self._draw(measurement, file)
        self.watch.profile_ends(measurement, str(file))
        return measurement

    def _draw(self, measurement: Measurement, file: Path) -> None:
        """The picture beside the file; a figure without one is still a figure."""
        from zenit_hub.maintain.measure.picture import png, svg

        try:
            drawn = svg([measurement])
            replace_file(file.with_suffix(".svg"), drawn.encode())
            replace_file(file.with_suffix(".png"), png(drawn, PICTURE_WIDTH_PX))
        except (MeasurementError, OSError) as error:
            self.watch.said(f"no picture: {error}")

    def _boots(self, launch: Launch) -> Found:
        subject, settings = self.subject, self.settings
        if subject.changed():
            return Found(failure=_CHANGED)
        caches = self._fresh_folder(launch.profile)
        plan = Plan(
            task=Task(
                order=Order(
                    command=self.place.command,
                    model=subject.model,
                    profile=launch.profile,
                    folder=caches,
                    revision=subject.revision,
                    environment=_engine_environment(caches, settings.token),
                ),
                shape=_shape(launch),
                timeout_s=settings.boot_timeout_s,
            ),
            measuring_boots=settings.boots,
            verify=settings.verify,
            pin_bytes=launch.pin_bytes,
            fresh_folder=lambda: self._fresh_folder("boot"),
        )
        bench = self.place.bench(self.place.platform, launch.cards)
        found = measure_boots(plan, bench, self.watch)
        if subject.changed():
            # What was measured stands nowhere any more.
            return replace_failure(found, _CHANGED)
        return found

    def _fresh_folder(self, name: str) -> Path:
        number = sum(1 for _ in self.scratch.iterdir())
        folder = self.scratch / f"{number}-{name}"
        folder.mkdir()
        return folder

    def _done_before(self, launch: Launch) -> Measurement | None:
        """An earlier result that this run would only repeat."""
        earlier = self.results.earlier(launch.profile)
        if earlier is None or earlier.verdict != "measured" or launch.unfit is not None:
            return None
        wanted = earlier.verified or not self.settings.verify
        same = (
            earlier.model.commit == self.subject.measured.commit
            and earlier.model.weights == self.subject.measured.weights
            and earlier.profile == self._profile(launch)
            and earlier.device.name == device_facts(_platform(self.place), launch.cards).name
            and _release(earlier.versions.vllm) == _release(assumed_version())
        )
        return earlier if wanted and same else None

    def _profile(self, launch: Launch) -> MeasuredProfile:
        chosen = launch.found.chosen
        values = self.subject.values(launch.profile)
        kept = {key: value for key, value in values.items() if key not in NOT_MEASURED}
        if chosen is None:
            return MeasuredProfile(launch.profile, kept)
        return MeasuredProfile(launch.profile, kept, chosen.layout.tensor, chosen.layout.pipeline)

    def _measurement(self, launch: Launch, found: Found) -> Measurement:
        from importlib.metadata import version

        said = next((seen.vllm_version for seen in found.boots if seen.vllm_version), None)
        pinned = {PIN: found.pin_bytes} if found.pin_bytes is not None else {}
        return Measurement(
            tool_version=version("zenit-hub"),
            created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            verdict=found.verdict,
            model=self.subject.measured,
            profile=self._profile(launch),
            device=device_facts(_platform(self.place), launch.cards),
            versions=version_facts(said or assumed_version()),
            arguments={**launch.found.filling.set, **pinned},
            environment={**memory_variables(self.place.environment), **launch.found.filling.env},
            requires_free_bytes=found.requires_free_bytes,
            kv_cache_memory_bytes=found.pin_bytes,
            boots=found.records,
            spread_bytes=found.spread_bytes,
            breakdown=found.breakdown,
            verification=found.verification,
            contamination=found.contamination if found.boots else Contamination(FOREIGN_LIMIT_BYTES),
            failure=found.failure,
        )


_CHANGED = Failure(
    "section_changed",
    "the model's config.json was changed while it was being measured",
    "measure again, when nobody edits it",
)


def replace_failure(found: Found, failure: Failure) -> Found:
    """``found`` as one that gave no figure; its boots stay as a record."""
    return replace(found, verdict="failed", requires_free_bytes=None, verification=None, failure=failure)


def _release(version: str) -> str:
    """Without the label of a build: the engine and its package spell that one differently."""
    return version.partition("+")[0]


def _platform(place: Place) -> Literal["cuda", "cpu"]:
    return "cpu" if place.platform == "cpu" else "cuda"


def _engine_environment(caches: Path, token: str | None) -> dict[str, str]:
    """Caches of this profile alone: its first boot compiles, its second finds everything compiled."""
    return {
        **({env.HUB_TOKEN: token} if token else {}),  # the weights may be as private as the config
        "VLLM_CACHE_ROOT": str(caches / "vllm"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
    }


def _shape(launch: Launch) -> Shape:
    values: Mapping[str, Any] = launch.found.chosen.profile.arguments if launch.found.chosen else {}
    return Shape(
        window_tokens=values["max_model_len"],
        max_num_batched_tokens=values["max_num_batched_tokens"],
        max_num_seqs=values["max_num_seqs"],
    )


def summary(measurement: Measurement) -> str:
    """One line for people."""
    name = printable(measurement.profile.name)
    if measurement.requires_free_bytes is None:
        failure = measurement.failure
        why = f": {printable(failure.message, limit=400)}" if failure else ""
        then = f" ({printable(failure.advice, limit=200)})" if failure and failure.advice else ""
        return f"{name}: no figure{why}{then}"
    figure = (
        f"{name} needs {gib(measurement.requires_free_bytes)} free ({measurement.requires_free_bytes} bytes)"
    )
    if measurement.verified:
        return f"{figure}, verified"
    why = measurement.verification.reason if measurement.verification else "verification was left out"
    if measurement.disproved:
        return f"{name}: no figure that holds; a launch with no more free did not answer: {printable(why, limit=400)}"
    return f"{figure}, not verified: {printable(why, limit=400)}"
