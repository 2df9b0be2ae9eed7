"""The decision: section × machine × caller → one profile, and why. Pure; nothing is looked up here.

The order of the rules is the order of the functions: forced, by the caller's length, by memory, default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from zenit_hub import cautions, env
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate, Verdict, candidate
from zenit_hub.decision import Caution, Considered, Decision
from zenit_hub.errors import ProfileNotDeclared
from zenit_hub.machine import Surroundings
from zenit_hub.section import ONE_DEVICE, Profile, Section
from zenit_hub.text import listed, printable
from zenit_hub.visible import Sight


def decide(section: Section, caller: Caller, around: Surroundings, sight: Sight | None) -> Decision:
    """Choose. ``sight`` is ``None`` where no memory was looked at (another platform, nodes apart).

    Raises :class:`~zenit_hub.errors.ProfileNotDeclared` where ``ZENIT_SERVING_PROFILE`` names none.
    """
    weigh = _weigher(caller, around, sight)
    forced = env.forced_profile(around.environment)
    field_ = _Field.of(section, weigh, caller, sight, forced)
    if forced is not None:
        decision = _forced(section, forced, weigh, caller)
    else:
        decision = (
            _by_length(field_, weigh, caller) or _by_memory(field_, section) or _by_default(field_, section)
        )
    looked_at = decision.chosen or field_.base
    told = [*decision.cautions, *cautions.about_sight(looked_at, caller)]
    if caller.wants_auto_length and decision.chosen is not None:
        told.append(cautions.auto_length(decision.chosen))
    if field_.count_unknown:
        told.append(cautions.unknown_device_count())
    return replace(decision, considered=field_.considered(section), cautions=tuple(told), base=field_.base)


Weigh = Callable[..., Candidate]


def _weigher(caller: Caller, around: Surroundings, sight: Sight | None) -> Weigh:
    def weigh(profile: Profile, *, drop_pin: bool = caller.wants_auto_length) -> Candidate:
        return candidate(profile, caller, around.engine, sight, drop_pin=drop_pin)

    return weigh


@dataclass(frozen=True, slots=True)
class _Field:
    """Who takes part, and what became of those who do not."""

    parts: tuple[Candidate, ...]
    out: Mapping[str, Considered]
    base: Candidate
    count_unknown: bool
    requested_tokens: int | None

    @classmethod
    def of(
        cls, section: Section, weigh: Weigh, caller: Caller, sight: Sight | None, forced: str | None
    ) -> _Field:
        able: list[Candidate] = []
        out: dict[str, Considered] = {}
        for profile in section.profiles.values():
            weighed = weigh(profile)
            verdict = _unable(weighed, caller)
            if verdict is None:
                able.append(weighed)
            else:
                out[profile.name] = _seen(weighed, verdict)
        parts = _of_layout(able, caller, sight, forced)
        taking = {part.profile.name for part in parts}
        out |= {c.profile.name: _seen(c, "other_layout") for c in able if c.profile.name not in taking}
        several = any(c.layout.ranks > 1 and c.profile.name in out for c in able)
        unseen = caller.why_apart is None and (sight is None or sight.count is None)
        base = weigh(Profile(name="", max_model_len=1, arguments={}, layout=caller.layout or ONE_DEVICE))
        count_unknown = several and caller.layout is None and unseen
        return cls(tuple(parts), out, base, count_unknown, caller.requested_tokens)

    @property
    def memory_is_known(self) -> bool:
        return self.base.memory_is_known

    @property
    def rated(self) -> list[Candidate]:
        """Those of which memory can say whether they fit."""
        return [c for c in self.parts if c.requirement_bytes is not None and c.memory_is_known]

    def considered(self, section: Section) -> dict[str, Considered]:
        """Every declared profile, in the section's order."""
        seen = {**self.out, **{c.profile.name: _seen(c, self._verdict(c)) for c in self.parts}}
        seen |= {name: Considered("invalid") for name in section.invalid}
        return {name: seen[name] for name in (*section.profiles, *section.invalid)}

    def _verdict(self, part: Candidate) -> Verdict | None:
        if self.requested_tokens is not None and part.profile.max_model_len < self.requested_tokens:
            return "too_short"
        return part.verdict


def _seen(weighed: Candidate, verdict: Verdict | None) -> Considered:
    return Considered(
        verdict=verdict,
        max_model_len=weighed.profile.max_model_len,
        requires_free_bytes=weighed.requirement_bytes,
        budget_bytes=weighed.budget_bytes,
        short_bytes=weighed.short_bytes if verdict == "too_large" else None,
    )


def _unable(weighed: Candidate, caller: Caller) -> Verdict | None:
    if weighed.profile.unknown_requirements:
        return "unknown_requirement"
    if weighed.lacks_capability:
        return "compute_capability"
    layout = caller.layout
    if layout is not None and weighed.profile.layout not in (layout, ONE_DEVICE):
        return "other_layout"
    return None


def _of_layout(
    able: Sequence[Candidate], caller: Caller, sight: Sight | None, forced: str | None
) -> list[Candidate]:
    """Those whose devices are there and offered: a second card is not taken where one is enough."""
    visible = sight.count if sight is not None else None
    if caller.layout is not None:
        return [
            c
            for c in able
            if c.profile.layout == ONE_DEVICE or visible is None or c.shared or visible >= c.devices
        ]
    singles = [c for c in able if c.layout.ranks == 1]
    there = [c for c in able if c.layout.ranks == 1 or (visible is not None and visible >= c.devices)]
    wanted = caller.requested_tokens or 0
    holding = [c for c in singles if c.profile.max_model_len >= wanted]
    if any(c.verdict == "fits" or not c.memory_is_known for c in holding):
        return [c for c in there if c.layout.ranks == 1 or c.profile.name == forced]
    return there


def _forced(section: Section, name: str, weigh: Weigh, caller: Caller) -> Decision:
    profile = section.profiles.get(name)
    if profile is None:
        why = f" (it is invalid: {section.invalid[name]})" if name in section.invalid else ""
        raise ProfileNotDeclared(
            f"{env.PROFILE} names a profile that is not declared{why}",
            got=printable(name),
            allowed=listed(section.profiles) or "none: no profile of the section is valid",
            next_step=f"Type {env.PROFILE}=<one of them>, or {env.PROFILE}={env.OFF} to start without profiles.",
        )
    chosen = weigh(profile)
    told: list[Caution] = []
    wanted = caller.requested_tokens
    if wanted is not None and wanted > profile.max_model_len:
        chosen = weigh(profile, drop_pin=True)
        told.append(cautions.forced_too_narrow(profile, wanted))
    told += _does_not_fit(chosen)
    if chosen.lacks_capability:
        told.append(cautions.lacks_capability(chosen))
    return Decision("forced", chosen, cautions=tuple(told))


def _by_length(field_: _Field, weigh: Weigh, caller: Caller) -> Decision | None:
    wanted = caller.requested_tokens
    if wanted is None or not field_.parts:
        return None
    holding = sorted(
        (c for c in field_.parts if c.profile.max_model_len >= wanted),
        key=lambda c: (c.stands_in, c.profile.max_model_len, c.tie),
    )
    if holding:
        chosen = holding[0]
        if chosen.fits is False:
            chosen = next((c for c in holding if c.fits), chosen)
        return Decision("requested_length", chosen, cautions=_does_not_fit(chosen))
    widest = min(field_.parts, key=lambda c: (-c.profile.max_model_len, c.stands_in, c.tie))
    chosen = weigh(widest.profile, drop_pin=True)
    caution = cautions.beyond_widest(widest.profile, wanted)
    return Decision("requested_beyond_widest", chosen, cautions=(caution, *_does_not_fit(chosen)))


def _by_memory(field_: _Field, section: Section) -> Decision | None:
    rated = field_.rated
    if not field_.memory_is_known or not rated:
        return None
    fitting = [c for c in rated if c.verdict == "fits"]
    if fitting:
        chosen = min(fitting, key=lambda c: (c.stands_in, -c.profile.max_model_len, c.tie))
        return Decision("widest_fitting", chosen, cautions=_default_left(field_, chosen, section))
    narrowest_rated = min(c.profile.max_model_len for c in rated)
    unrated = [
        c for c in field_.parts if c.verdict == "unrated" and c.profile.max_model_len < narrowest_rated
    ]
    least = min(rated, key=lambda c: (c.stands_in, c.requirement_bytes or 0, -c.profile.max_model_len, c.tie))
    if unrated:
        chosen = min(unrated, key=lambda c: (c.stands_in, c.profile.max_model_len, c.tie))
        told = (cautions.unrated_fallback(chosen, least), *_default_left(field_, chosen, section))
        return Decision("unrated_fallback", chosen, cautions=told)
    told = (cautions.nothing_fits(least), *_default_left(field_, least, section))
    return Decision("nothing_fits", least, cautions=told)


def _by_default(field_: _Field, section: Section) -> Decision:
    chosen = next((c for c in field_.parts if c.profile.name == section.default_profile), None)
    if chosen is None:
        return Decision("no_default")
    return Decision("default", chosen, cautions=_does_not_fit(chosen))


def _default_left(field_: _Field, chosen: Candidate, section: Section) -> tuple[Caution, ...]:
    default = next((c for c in field_.parts if c.profile.name == section.default_profile), None)
    if default is None or default.profile.name == chosen.profile.name or not default.is_known_not_to_fit:
        return ()
    return (cautions.default_does_not_fit(default, chosen),)


def _does_not_fit(chosen: Candidate) -> tuple[Caution, ...]:
    return (cautions.chosen_does_not_fit(chosen),) if chosen.fits is False else ()
