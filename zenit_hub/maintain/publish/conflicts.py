"""Whether somebody else wrote what we write, between our first look and now."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from zenit_hub.maintain.publish.content import Rendered, Written
from zenit_hub.text import shown

_MAX_VALUE_LETTERS = 200


@dataclass(slots=True)
class FirstSeen:
    """What stood at the keys that we write when a revision was read first."""

    _values: dict[str, Written] = field(default_factory=dict)

    def conflict(self, revision: str, rendered: Rendered, name: Callable[[Hashable], str]) -> str | None:
        """Which keys hold another value by now that is not ours either, with all three; ``None``: none does."""
        first, now, ours = self._values.setdefault(revision, rendered.before), rendered.before, rendered.after
        foreign = [key for key in now if now[key] != first.get(key) and now[key] != ours.get(key)]
        told = (
            f"{name(key)} was {_told(first.get(key))}, is {_told(now[key])} now, yours is {_told(ours.get(key))}"
            for key in foreign
        )
        return "; ".join(told) or None

    def accept(self, revision: str, rendered: Rendered) -> None:
        """From here on what stands there now is what was seen first."""
        self._values[revision] = rendered.before


def _told(value: object) -> str:
    return "not there" if value is None else shown(value, limit=_MAX_VALUE_LETTERS)
