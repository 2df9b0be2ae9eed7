"""The block of the model card: facts and template → Markdown.

The template (``model_card/block.md.jinja``) holds the sentences, this module what they are filled with. Every
string that the template puts in is escaped on its way, unless it was made here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from zenit_hub.errors import CardError, MeasurementError
from zenit_hub.maintain.card import escape
from zenit_hub.maintain.card.cards import CommonCard
from zenit_hub.maintain.card.escape import Safe
from zenit_hub.maintain.card.facts import Facts, gather, usable_section
from zenit_hub.maintain.measurement import read_measurement
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END
from zenit_hub.maintain.publish.receipts import in_repo, picture_path
from zenit_hub.read import hub_repo
from zenit_hub.resources import card_template
from zenit_hub.section import Measurement, Profile, Section
from zenit_hub.text import gib, printable

if TYPE_CHECKING:
    from jinja2 import Template

PICTURES = (".png", ".svg")
"""Of a picture in both forms the first is shown: pages do not show every SVG."""

_ANY_REPO = "ORG/MODEL"
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*|_[A-Za-z0-9._/-]+")


@dataclass(frozen=True, slots=True)
class _Shelf:
    """What the repo holds beside config and card."""

    files: frozenset[str]
    receipts: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement as the card tells it. ``verified`` is ``None`` where the receipt is not there to say so."""

    entry: Measurement
    link: Safe | None = None
    picture: Safe | None = None
    verified: bool | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """A profile with its figures."""

    profile: Profile
    is_default: bool
    figures: tuple[Figure, ...]


def receipt_paths(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The receipts that the section names, as paths from the top of the repo. Raises :class:`CardError`."""
    return tuple(
        in_repo(entry.receipt)
        for profile in usable_section(config).profiles.values()
        for entry in profile.measurements
        if entry.receipt is not None
    )


def picture_paths(receipt: str) -> tuple[str, ...]:
    """Where the picture of a receipt may stand, both from the top of the repo."""
    return tuple(picture_path(receipt, suffix) for suffix in PICTURES)


def render_block(
    config: Mapping[str, Any],
    repo: str | None,
    files: Collection[str] = (),
    receipts: Mapping[str, bytes] | None = None,
) -> str:
    """The Markdown between the two markers, without them and without a line feed at its end.

    ``config`` is the model's parsed config.json, ``repo`` the Hub id that people type (``None``: the section's
    own). ``files``: the repo's paths; a picture is shown where its file is among them. ``receipts``: of
    :func:`receipt_paths` those that the repo has, with their content; it tells which figures were never
    verified. The same arguments give the same bytes, whoever renders. Raises
    :class:`~zenit_hub.errors.CardError` where there is no section to show, ``repo`` is none, or jinja2 is missing.
    """
    if repo is not None and hub_repo(repo) != repo:
        raise CardError("this is no Hub repo", got=printable(repo), allowed="an id like org/model")
    facts = gather(config)
    shelf = _Shelf(frozenset(files), receipts or {})
    profiles = tuple(_told(profile, facts.section, shelf) for profile in facts.section.profiles.values())
    widest = _widest_first(profiles)
    block = _template().render(
        facts=facts,
        profiles=profiles,
        pictures=[f for told in widest for f in told.figures if f.picture],
        repo=repo or facts.section.repo or _ANY_REPO,
        measured_on=facts.section.repo if repo and facts.section.repo not in (None, repo) else None,
        several=any(told.profile.layout.ranks > 1 for told in profiles),
        on_request=_on_request(facts),
        widest=widest[0].profile,
        narrowest=widest[-1].profile,
        bases={row.outcome.basis for row in facts.cards if row.outcome.fits},
        integrated=[row.cards[0] for row in facts.cards if row.cards[0].integrated],
    )
    lines = [line.rstrip() for line in block.splitlines()]
    text = "\n".join(lines).strip("\n")
    if MARK_BEGIN in text or MARK_END in text:
        raise CardError("a string of the section holds a marker of the card")
    return text


def _told(profile: Profile, section: Section, shelf: _Shelf) -> Told:
    figures = tuple(_figure(entry, shelf) for entry in profile.measurements if entry.requires_free_bytes)
    return Told(profile, profile.name == section.default_profile, figures)


def _figure(entry: Measurement, shelf: _Shelf) -> Figure:
    if entry.receipt is None:
        return Figure(entry)
    path = in_repo(entry.receipt)
    picture = next((each for each in picture_paths(path) if each in shelf.files), None)
    return Figure(
        entry,
        link=escape.relative_link(path),
        picture=escape.relative_link(picture) if picture else None,
        verified=_verified(shelf.receipts.get(path)),
    )


def _verified(receipt: bytes | None) -> bool | None:
    if receipt is None:
        return None
    try:
        return read_measurement(receipt, "the receipt").verified
    except MeasurementError:
        return None


def _widest_first(profiles: tuple[Told, ...]) -> list[Told]:
    return sorted(profiles, key=lambda told: -told.profile.max_model_len)


def _on_request(facts: Facts) -> list[str]:
    """Profiles without a figure that memory never chooses."""
    chosen = {step.outcome.name for step in facts.steps} | {row.outcome.name for row in facts.cards}
    return [
        profile.name
        for profile in facts.section.profiles.values()
        if profile.requires_free_bytes is None and not profile.measurements and profile.name not in chosen
    ]


# --- how figures look


def gib_up(size_bytes: int, *, steps: int = 10) -> Safe:
    """A floor that a person must reach: to the tenth of a GiB (``steps=100``: the hundredth), never too little."""
    return _in_steps(-(-size_bytes * steps // 2**30), steps)


def gib_down(size_bytes: int) -> Safe:
    """What a person has: to the tenth of a GiB, never more than it is."""
    return _in_steps(size_bytes * 10 // 2**30, 10)


def _in_steps(count: int, steps: int) -> Safe:
    return Safe(f"{count // steps}.{count % steps:0{len(str(steps)) - 1}} GiB")


def grouped(number: int) -> Safe:
    """``1,010,000``."""
    return Safe(f"{number:,}")


def unbroken(text: str) -> Safe:
    """``text`` on one line of its cell, broken at ``/`` at most: narrow screens break ``RTX 5090`` otherwise."""
    return Safe(escape.text(text).replace(" ", "&nbsp;").replace("&nbsp;/&nbsp;", " / "))


def _plain(word: str) -> Safe:
    """A word of a command in a block of code, where no character reference would be read."""
    if not _WORD.fullmatch(word):
        raise CardError("this cannot stand in a command of the card", got=printable(word))
    return Safe(word)


def _row_label(cards: tuple[CommonCard, ...]) -> Safe:
    return unbroken(cards[0].label if len(cards) == 1 else cards[0].row)


_FILTERS: dict[str, Callable[..., Safe]] = {
    "capability": lambda pair: Safe("{}.{}".format(*pair)),
    "code": escape.code,
    "digits": lambda number: Safe(f"{number:d}"),
    "gib": lambda size_bytes: Safe(gib(size_bytes)),
    "gib_down": gib_down,
    "gib_up": gib_up,
    "gib_up_exact": partial(gib_up, steps=100),
    "grouped": grouped,
    "percent": lambda share: Safe(f"{share:.4g}"),
    "plain": _plain,
    "row_label": _row_label,
    "unbroken": unbroken,
}


@cache
def _template() -> Template:
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError:
        raise CardError(
            "rendering a model card needs jinja2, which is not installed",
            next_step="Type `pip install 'zenit-hub[tools]'`.",
        ) from None
    environment = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # its escaping is for HTML; what goes out is escaped for Markdown by `finalize`
        finalize=lambda value: value if isinstance(value, Safe) else escape.text(value),
    )
    environment.filters |= _FILTERS
    return environment.from_string(card_template())
