"""One decision path: the hook, ``plan``, ``doctor`` and the tests all come through :func:`answer`.

``read → section → look → decide → fill``, once. What differs between its callers comes in as arguments:
where the config was found, who the caller is, and how to look at the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from zenit_hub import env
from zenit_hub.apply import Filling, fill
from zenit_hub.caller import Caller
from zenit_hub.candidate import Candidate
from zenit_hub.decide import decide
from zenit_hub.decision import Caution, Decision, Reason
from zenit_hub.machine import PROBED_PLATFORMS, Machine, Surroundings
from zenit_hub.section import InvalidSection, NoSection, OtherArchitecture, Section, read_section
from zenit_hub.text import printable
from zenit_hub.visible import Sight, see_cards, see_host

Look = Callable[[], Machine]
"""Look at the memory. Called once at most, and only where memory can decide something."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A ``config.json`` that is there and cannot be used."""

    why: str


@dataclass(frozen=True, slots=True)
class NotHub:
    """A model in cloud storage: its config is not looked at."""

    model: str


Config = Mapping[str, Any] | Unreadable | NotHub | None
"""A model's config as it was found; ``None``: there is none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a launch does, with all that led to it."""

    decision: Decision
    filling: Filling = field(default_factory=Filling)
    cautions: tuple[Caution, ...] = ()
    machine: Machine | None = None
    dropped_out: bool = False

    @property
    def reason(self) -> Reason:
        return self.decision.reason

    @property
    def chosen(self) -> Candidate | None:
        return self.decision.chosen

    @property
    def refusal(self) -> str | None:
        """Why a strict launch would not start; ``None`` where it would."""
        if self.reason in ("unreadable", "invalid") or self.dropped_out or self.decision.fits is False:
            codes = {
                "config_unreadable",
                "section_invalid",
                "profile_invalid",
                "nothing_fits",
                "chosen_does_not_fit",
            }
            told = [caution.message for caution in self.cautions if caution.code in codes]
            return " ".join(told) or "the choice does not fit"
        return None


def answer(
    config: Config,
    caller: Caller,
    around: Surroundings,
    look: Look,
    device_ids: Sequence[int | str] | None = None,
) -> Answer:
    """Decide and fill. Raises :class:`~zenit_hub.errors.ProfileNotDeclared`, nothing else on any input."""
    if env.forced_profile(around.environment) == env.OFF:
        return Answer(Decision("off"))
    if config is None:
        return Answer(Decision("no_section"))
    if isinstance(config, NotHub):
        return Answer(Decision("not_hub"))
    if isinstance(config, Unreadable):
        caution = Caution(
            "config_unreadable",
            f"the model's config.json cannot be used: {config.why}. vLLM starts without profiles.",
        )
        return Answer(Decision("unreadable"), cautions=(caution,))
    overrides = caller.value("hf_overrides")
    seen = {**config, **overrides} if isinstance(overrides, Mapping) else config
    longer_allowed = env.longer_windows(around.environment)
    reading = read_section(seen, around.engine.kv_cache_dtypes, longer_allowed=longer_allowed)
    if isinstance(reading, NoSection):
        return Answer(Decision("no_section"))
    if isinstance(reading, OtherArchitecture):
        return Answer(Decision("other_architecture"))
    if isinstance(reading, InvalidSection):
        caution = Caution(
            "section_invalid",
            f"the serving profiles cannot be used: {reading.why}. vLLM starts without them; "
            f"`zenit-hub validate` shows every error.",
        )
        return Answer(Decision("invalid"), cautions=(caution,))
    return _of_section(reading, caller, around, look, device_ids)


def _of_section(
    section: Section, caller: Caller, around: Surroundings, look: Look, device_ids: Sequence[int | str] | None
) -> Answer:
    machine: Machine | None = None
    sight: Sight | None = None
    if around.platform in PROBED_PLATFORMS and caller.why_apart is None:
        machine = look()
        sight = (
            see_host(machine)
            if around.platform == "cpu"
            else see_cards(machine, around.environment, device_ids)
        )
    decision = decide(section, caller, around, sight)
    filling = fill(decision, section, caller, around)
    said = (*_about_section(section), *decision.cautions, *filling.cautions)
    return Answer(decision, filling, said, machine, dropped_out=bool(section.invalid))


def _about_section(section: Section) -> list[Caution]:
    cautions = [
        Caution(
            "profile_invalid",
            f"profile {printable(name, limit=80)} drops out: {why}. `zenit-hub validate` shows every error.",
        )
        for name, why in section.invalid.items()
    ]
    unknown = [
        *section.unknown_keys,
        *(f"{p.name}.{key}" for p in section.profiles.values() for key in p.unknown_keys),
    ]
    if unknown:
        shown = ", ".join(printable(key, limit=80) for key in unknown[:20])
        more = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
        cautions.append(
            Caution("unknown_key", f"keys that this version does not know are ignored: {shown}{more}.")
        )
    return cautions
