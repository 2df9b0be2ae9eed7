"""Which cards a launch sees: ``CUDA_VISIBLE_DEVICES`` as CUDA reads it, then vLLM's ``--device-ids``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from zenit_hub import env
from zenit_hub.machine import Device, Host, Machine, Slice
from zenit_hub.text import printable, whole


@dataclass(frozen=True, slots=True)
class Card:
    """One device that a rank runs on. Bytes are ``None`` where they are unknown; ``error`` says why."""

    index: int | None
    uuid: str | None
    name: str
    compute_capability: tuple[int, int] | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    error: str | None = None
    orderable: bool = False
    """Named by an index, which CUDA may count otherwise than NVML."""
    node: str | None = None

    @property
    def where(self) -> str:
        """The node, for the end of a sentence; nothing for a card of this machine."""
        return f" on {printable(self.node)}" if self.node else ""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An entry that names no single card."""

    entry: str
    why: str


@dataclass(frozen=True, slots=True)
class Sight:
    """The visible devices in order. ``unknown`` says why nothing at all could be seen."""

    cards: tuple[Card | Unresolved, ...] = ()
    unknown: str | None = None
    shared: bool = False
    """The one card stands for any number of ranks: the host's memory on the CPU platform."""
    could_be: tuple[Card, ...] = ()
    """With unlike cards and no order set: all that an index could mean."""
    anywhere: bool = False
    """Any rank may come onto any of the cards, as Ray places it: each of them must do."""

    @property
    def count(self) -> int | None:
        """How many devices are visible; ``None`` where nobody knows."""
        if self.unknown is not None:
            return None
        return sum(isinstance(card, Card) for card in self.cards)


_COUNT = re.compile(r"\s*([+-]?[0-9]+)")
_UUID_KINDS = ("GPU-", "MIG-")
_MAX_DIGITS = 18


def see_host(machine: Machine) -> Sight:
    """The CPU platform: the host's memory is the device."""
    if machine.host is None:
        return Sight(unknown=machine.host_error or "the host's memory could not be read", shared=True)
    host = machine.host
    card = Card(None, None, "cpu", None, host.total_bytes, host.available_bytes)
    return Sight(cards=(card,), shared=True)


def see_cards(
    machine: Machine, environment: Mapping[str, str], device_ids: Sequence[int | str] | None
) -> Sight:
    """The CUDA platform."""
    if machine.driver_error is not None:
        return Sight(unknown=machine.driver_error)
    every = tuple(_card(device, machine.host) for device in machine.devices)
    if machine.cluster:
        # The nodes have said which they are; this node's settings hold for this node.
        return Sight(cards=every, anywhere=True)
    visible = _visible(environment.get(env.VISIBLE_DEVICES), machine, every)
    if device_ids:
        visible = tuple(_by_id(identifier, visible, machine) for identifier in device_ids)
    ordered = environment.get(env.DEVICE_ORDER) == env.BUS_ORDER
    unlike = len({(device.name, device.compute_capability) for device in machine.devices}) > 1
    could_be = (
        every if unlike and not ordered and any(isinstance(c, Card) and c.orderable for c in visible) else ()
    )
    return Sight(cards=visible, could_be=could_be)


def _visible(setting: str | None, machine: Machine, every: tuple[Card, ...]) -> tuple[Card | Unresolved, ...]:
    if setting is None:
        return every
    seen: list[Card | Unresolved] = []
    for entry in setting.split(","):
        found = _entry(entry, machine, every)
        if found is None:
            break
        if isinstance(found, Card) and any(
            isinstance(other, Card) and (other.index, other.uuid) == (found.index, found.uuid)
            for other in seen
        ):
            return ()
        seen.append(found)
        if isinstance(found, Unresolved):
            break
    return tuple(seen)


def _entry(entry: str, machine: Machine, every: tuple[Card, ...]) -> Card | Unresolved | None:
    """One entry of the list; ``None`` where CUDA stops reading."""
    word = entry.strip()
    if word.startswith(_UUID_KINDS):
        return _by_uuid(word, machine)
    number = _COUNT.match(entry)
    if number is None or len(number[1]) > _MAX_DIGITS or not 0 <= int(number[1]) < len(every):
        return None
    return every[int(number[1])]


def _by_id(
    identifier: int | str, visible: tuple[Card | Unresolved, ...], machine: Machine
) -> Card | Unresolved:
    word = str(identifier).strip()
    if word.isascii() and word.isdecimal():
        if len(word) <= _MAX_DIGITS and int(word) < len(visible):
            return visible[int(word)]
        return Unresolved(word, f"device id {printable(word)} is past the {len(visible)} visible device(s)")
    if word.startswith(_UUID_KINDS):
        return _by_uuid(word, machine)
    return Unresolved(word, f"device id {printable(word)} is neither an index nor a UUID")


def _by_uuid(prefix: str, machine: Machine) -> Card | Unresolved:
    """A card or a slice by its UUID, whole or abbreviated."""
    wanted = prefix.lower()
    found = [
        replace(_card(device, machine.host), orderable=False)
        for device in machine.devices
        if device.uuid.lower().startswith(wanted)
    ]
    found += [
        _slice_card(device, part)
        for device in machine.devices
        for part in device.slices
        if part.uuid.lower().startswith(wanted)
    ]
    if len(found) == 1:
        return found[0]
    why = "names no visible device" if not found else f"names {len(found)} devices"
    return Unresolved(prefix, f"{printable(prefix)} {why}")


def _card(device: Device, host: Host | None) -> Card:
    """What a rank on this card gets: its slice on a MIG card, the host's memory on an integrated one."""
    if device.slices:
        known = [part for part in device.slices if part.free_bytes is not None]
        least = min(known, key=lambda part: part.free_bytes or 0) if known else device.slices[0]
        return replace(_slice_card(device, least), orderable=True)
    total_bytes, free_bytes, error = device.total_bytes, device.free_bytes, device.error
    if device.integrated:
        total_bytes, free_bytes = (host.total_bytes, host.available_bytes) if host else (None, None)
        error = None if host else "an integrated GPU, and the host's memory could not be read"
    elif error is None and not (total_bytes and free_bytes is not None):
        error = "no memory figures are given"
    if error is not None:
        total_bytes = free_bytes = None
    return Card(
        device.index,
        device.uuid or None,
        device.name,
        device.compute_capability,
        total_bytes,
        free_bytes,
        error,
        True,
        device.node,
    )


def _slice_card(device: Device, part: Slice) -> Card:
    error = part.error
    if error is None and (part.free_bytes is None or not part.total_bytes):
        error = "no memory figures are given for this slice"
    known = error is None
    return Card(
        device.index,
        part.uuid,
        part.name or device.name,
        device.compute_capability,
        part.total_bytes if known else None,
        part.free_bytes if known else None,
        error,
    )


@dataclass(frozen=True, slots=True)
class Ranks:
    """The devices under the ranks of one launch. ``unknown`` says why their memory is not known."""

    cards: tuple[Card, ...] = ()
    unknown: str | None = None
    unresolved: bool = False
    ambiguous: bool = False
    capabilities: tuple[tuple[int, int], ...] = ()


def ranks(sight: Sight, count: int) -> Ranks:
    """The devices of ``count`` ranks: the first visible ones, of unlike cards in unknown order the fullest."""
    if sight.unknown is not None:
        return Ranks(unknown=sight.unknown)
    if sight.shared:
        return Ranks(cards=tuple(card for card in sight.cards if isinstance(card, Card)))
    taken = sight.cards if sight.anywhere else sight.cards[:count]
    unresolved = next((card for card in taken if isinstance(card, Unresolved)), None)
    if unresolved is not None:
        return Ranks(unknown=unresolved.why, unresolved=True)
    if not taken:
        return Ranks(unknown="no device is visible")
    cards, ambiguous = _fullest([card for card in taken if isinstance(card, Card)], sight.could_be)
    capabilities = [card.compute_capability for card in (*cards, *(sight.could_be if ambiguous else ()))]
    unknown = next(
        (f"{printable(card.name or 'the device')}: {card.error}" for card in cards if card.error), None
    )
    if len(taken) < count:
        unknown = f"the launch needs {whole(count)} devices and {len(taken)} are visible"
    return Ranks(tuple(cards), unknown, False, ambiguous, tuple(c for c in capabilities if c is not None))


def _fullest(taken: list[Card], could_be: tuple[Card, ...]) -> tuple[list[Card], bool]:
    """Replace the cards that an index names by those with the least free memory that it could mean."""
    named = [card for card in taken if not card.orderable]
    free = [card for card in could_be if card.index not in {other.index for other in named}]
    wanted = len(taken) - len(named)
    if not wanted or len(free) <= wanted:
        return taken, False
    free.sort(key=lambda card: -1 if card.free_bytes is None else card.free_bytes)
    return [*named, *free[:wanted]], True
