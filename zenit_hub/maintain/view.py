"""A section in the form in which its meaning is looked at: what is written, and what of it is sound."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from zenit_hub.maintain.finding import Note, Place
from zenit_hub.section import ARCHITECTURE_ID, CONFIG_KEY, LAYOUT_FIELDS, ONE_DEVICE, WINDOW, Layout

ALIGNED_BLOCK_TOKENS: Mapping[str, int] = {ARCHITECTURE_ID: 2064}
"""Architecture → tokens of its KV block after alignment with the recurrent pages (specification, section 7).
Known for what was run on a card; elsewhere the block follows from a model that nobody loads here."""


@dataclass(frozen=True, slots=True)
class ProfileView:
    """``written`` is the profile as it stands, ``sound`` what of it passed the schema."""

    name: str
    where: Place
    written: Mapping[str, Any]
    sound: Mapping[str, Any]

    @property
    def window(self) -> int | None:
        """The profile's window in tokens."""
        window: int | None = self.sound.get(WINDOW)
        return window

    @property
    def layout(self) -> Layout:
        return layout_of(self.sound, ONE_DEVICE)

    def at(self, *below: str | int) -> Place:
        return (*self.where, *below)


@dataclass(frozen=True, slots=True)
class SectionView:
    """``config`` is ``None`` for a section that stands in a file by itself."""

    where: Place
    body: Mapping[str, Any]
    declared: frozenset[str]
    profiles: tuple[ProfileView, ...]
    config: Mapping[str, Any] | None

    @property
    def architectures(self) -> tuple[str, ...]:
        """What the section speaks for."""
        named = self.body.get("architectures")
        if isinstance(named, list):
            return tuple(named)
        return (ARCHITECTURE_ID,) if self.where == (CONFIG_KEY,) else self.own_architectures

    @property
    def own_architectures(self) -> tuple[str, ...]:
        """What the config says that the model is; empty where vLLM fills it in from the model type."""
        own = (self.config or {}).get("architectures")
        return tuple(name for name in own if isinstance(name, str)) if isinstance(own, list) else ()

    @property
    def block_tokens(self) -> int | None:
        """Tokens of the model's aligned KV block, where its architecture is a known one."""
        known = (ALIGNED_BLOCK_TOKENS.get(name) for name in self.architectures)
        return next((tokens for tokens in known if tokens is not None), None)


def layout_of(values: Mapping[str, Any], default: Layout) -> Layout:
    """The ranks that a profile or a measurement names; ``default`` where it names none."""
    tensor, pipeline = (values.get(key) for key in LAYOUT_FIELDS)
    if tensor is None and pipeline is None:
        return default
    return Layout(int(tensor or 1), int(pipeline or 1))


def view_section(
    body: Mapping[str, Any],
    where: Place,
    config: Mapping[str, Any] | None,
    faults: Iterable[Note],
    declared: frozenset[str],
) -> SectionView:
    """``body`` with every value put aside that a fault points at or into.

    ``declared``: all profile names of the section, of which ``body`` may hold only the first ones.
    """
    touched = {fault.where[:depth] for fault in faults for depth in range(len(fault.where) + 1)}
    profiles = body.get("profiles")
    return SectionView(
        where=where,
        body={key: value for key, value in body.items() if (*where, key) not in touched},
        declared=declared,
        profiles=tuple(
            ProfileView(
                name=name,
                where=(*where, "profiles", name),
                written=values,
                sound={k: v for k, v in values.items() if (*where, "profiles", name, k) not in touched},
            )
            for name, values in (profiles.items() if isinstance(profiles, dict) else ())
            if isinstance(values, dict)
        ),
        config=config,
    )
