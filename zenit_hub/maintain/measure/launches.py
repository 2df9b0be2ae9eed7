"""What a run launches: each profile as serving would start it here, and whether it can be measured.

What a launch would be is asked of the one decision path, with the profile forced.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zenit_hub import env
from zenit_hub.answer import Answer, answer
from zenit_hub.caller import Caller
from zenit_hub.compat import engine_facts
from zenit_hub.decision import Decision
from zenit_hub.device import look_at_cards, look_at_host
from zenit_hub.errors import MeasurementError
from zenit_hub.installed import assumed_platform, assumed_version
from zenit_hub.machine import Machine, Platform, Surroundings
from zenit_hub.maintain.measure.bench import Bench, bench_for
from zenit_hub.maintain.measure.boots import planned_boots
from zenit_hub.maintain.measure.subject import Subject
from zenit_hub.maintain.measurement import Failure
from zenit_hub.rules import fault
from zenit_hub.text import listed, printable
from zenit_hub.visible import Card

MUST_PIN = ("max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching")
"""Left to the engine, each depends on the card, and the figure would hold on no other."""

LARGEST_WINDOW_TOKENS = 2**26
"""A request that fills a larger one takes gigabytes of the tool's own memory."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the caller of a run says. ``boot_timeout_s`` also bounds the workload; ``token``: for the Hub."""

    boots: int = 2
    verify: bool = True
    boot_timeout_s: float = 3600.0
    resume: bool = False
    overwrite: bool = False
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run takes place; tests bring a stub's command and their own bench."""

    command: tuple[str, ...]
    platform: Platform = field(default_factory=assumed_platform)
    bench: Callable[[str, Sequence[Card]], Bench] = bench_for
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))


@dataclass(frozen=True, slots=True)
class Launch:
    """One profile as it would be served here."""

    profile: str
    found: Answer
    cards: tuple[Card, ...]
    unfit: Failure | None

    @property
    def pin_bytes(self) -> int | None:
        chosen = self.found.chosen
        return chosen.profile.pin_bytes if chosen else None


def chosen_profiles(subject: Subject, named: Sequence[str], everything: bool) -> tuple[str, ...]:
    """The profiles to measure. Raises :class:`MeasurementError` where the wish names none, or one that is not there."""
    declared = (*subject.section.profiles, *subject.section.invalid)
    unknown = [name for name in named if name not in declared]
    if unknown:
        raise MeasurementError(
            "the section declares no such profile", got=listed(unknown), allowed=listed(declared)
        )
    if not named and not everything and len(declared) > 1:
        raise MeasurementError(
            "which profile?", allowed=listed(declared), next_step="Type --profile NAME, or --all."
        )
    wanted = tuple(dict.fromkeys(named)) or declared
    misnamed = [name for name in wanted if fault("profileName", name) is not None]
    if misnamed:
        # A result is a file of that name, and the name may be a stranger's path.
        raise MeasurementError(
            "the section holds a profile whose name cannot be used",
            got=listed(misnamed),
            allowed="1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit, and not off",
            next_step="`zenit-hub validate` shows every error; --profile NAME leaves it out.",
        )
    return wanted


def plan_launch(subject: Subject, profile: str, place: Place) -> Launch:
    """What serving would do with the profile forced, and whether it can be measured here."""
    if profile in subject.section.invalid:
        return _unfit(
            profile, Answer(Decision("invalid")), subject.section.invalid[profile], "see `zenit-hub validate`"
        )
    environment = {**place.environment, env.PROFILE: profile}
    environment.pop(env.STRICT, None)
    around = Surroundings(place.platform, engine_facts(assumed_version()), environment)
    found = answer(subject.config, Caller(), around, _look(place.platform))
    chosen = found.chosen
    if chosen is not None and chosen.profile.max_model_len > LARGEST_WINDOW_TOKENS:
        why = f"a window of more than {LARGEST_WINDOW_TOKENS} tokens cannot be filled by one request"
        return _unfit(profile, found, why, "declare a smaller max_model_len")
    missing = [key for key in MUST_PIN if key not in subject.values(profile)]
    if missing:
        why = f"the profile leaves {', '.join(missing)} to the engine, whose defaults depend on the card"
        return _unfit(profile, found, why, "name them in the profile")
    if chosen is None or not chosen.memory_is_known:
        why = (chosen and chosen.ranks.unknown) or "the memory of the device is not known"
        return _unfit(profile, found, why, "`zenit-hub plan` shows what is seen")
    return Launch(profile, found, tuple(chosen.ranks.cards), None)


def _unfit(profile: str, found: Answer, why: str, advice: str) -> Launch:
    return Launch(profile, found, (), Failure("cannot_start", why, advice))


def _look(platform: Platform) -> Callable[[], Machine]:
    return look_at_host if platform == "cpu" else look_at_cards


@dataclass(frozen=True, slots=True)
class Outlook:
    """What measuring one profile would take. ``cannot``: why it is not possible here."""

    profile: str
    boots: int
    at_least_bytes: int
    free_bytes: int | None
    devices: tuple[str, ...]
    at_most_s: float
    cannot: str | None


def outlook(subject: Subject, profile: str, place: Place, settings: Settings) -> Outlook:
    """Starts nothing. ``at_least_bytes``: the weight files and the KV pin, per device."""
    launch = plan_launch(subject, profile, place)
    boots = planned_boots(settings.boots, settings.verify)
    weights_bytes = sum(file.size_bytes for file in subject.measured.weights)
    return Outlook(
        profile=profile,
        boots=boots,
        at_least_bytes=weights_bytes // max(1, len(launch.cards)) + (launch.pin_bytes or 0),
        free_bytes=min((card.free_bytes or 0 for card in launch.cards), default=None),
        devices=tuple(printable(card.name) for card in launch.cards),
        at_most_s=2 * boots * settings.boot_timeout_s,
        cannot=launch.unfit.message if launch.unfit else None,
    )
