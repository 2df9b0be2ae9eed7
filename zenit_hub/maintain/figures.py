"""What the figures of a section must hold to be worth something: pins, measurements, their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zenit_hub.maintain.finding import Note, error, warning
from zenit_hub.maintain.view import ProfileView, SectionView, layout_of
from zenit_hub.section import BUDGET_KEY, PIN, WINDOW, Layout
from zenit_hub.text import gib, printable

MEASURED_PINS = ("max_num_batched_tokens", "max_num_seqs", "enable_prefix_caching", PIN)
"""What vLLM would choose by card or version, and with it another memory need, if a profile left it open."""

_SAVING_SWITCHES = ("enforce_eager", "skip_mm_profiling")
"""No CUDA graphs, no dummy batch through the vision tower: each takes a gigabyte or two off a figure."""

_ENTRY_KEYS = ("device", BUDGET_KEY, "vllm")


def figure_notes(section: SectionView) -> Iterator[Note]:
    """Everything that is wrong with the figures of a section."""
    for profile in section.profiles:
        yield from _pins(profile)
        yield from _measurements(profile)
        yield from _largest(profile)
    yield from _wider_needs_less(section.profiles)


def _pins(profile: ProfileView) -> Iterator[Note]:
    if BUDGET_KEY not in profile.sound:
        return
    missing = [f"`{key}`" for key in MEASURED_PINS if key not in profile.written]
    if missing:
        what = (
            f"`{BUDGET_KEY}` holds only for pinned values, another card or version would choose others; "
            f"missing: {', '.join(missing)}"
        )
        yield error(profile.where, what, "add them with the values that the measurement ran with")
    needed_bytes, pin_bytes = profile.sound[BUDGET_KEY], profile.sound.get(PIN)
    if pin_bytes is not None and pin_bytes > needed_bytes:
        what = f"`{BUDGET_KEY}` {_size(needed_bytes)} is less than the KV cache in it, {_size(pin_bytes)}"
        yield warning(profile.at(BUDGET_KEY), what, "measure again, or correct the pin")


def _entries(profile: ProfileView) -> Iterator[tuple[int, Mapping[str, Any], Layout]]:
    for index, entry in enumerate(profile.sound.get("measurements", ())):
        yield index, entry, layout_of(entry, profile.layout)


def _measurements(profile: ProfileView) -> Iterator[Note]:
    seen: dict[tuple[str, Layout], int] = {}
    for index, entry, layout in _entries(profile):
        where = profile.at("measurements", index)
        missing = [f"`{key}`" for key in _ENTRY_KEYS if key not in entry]
        if missing:
            what = f"measurement {index} lacks {', '.join(missing)} and rates the profile on no card"
            yield warning(where, what, "add what is missing, or take the entry out")
        device = entry.get("device")
        first = index if device is None else seen.setdefault((device, layout), index)
        if first != index:
            card = f"{printable(device, limit=60)} with {layout} ranks"
            what = f"measurements {first} and {index} are both of {card}; a card and layout has one"
            yield error(where, what, "keep the current one")


def _largest(profile: ProfileView) -> Iterator[Note]:
    figures = [
        entry[BUDGET_KEY]
        for _, entry, layout in _entries(profile)
        if layout == profile.layout and BUDGET_KEY in entry
    ]
    if not figures:
        return
    largest_bytes = max(figures)
    if BUDGET_KEY not in profile.written:
        what = f"measured, but without `{BUDGET_KEY}`: on any other card the profile counts as not measured"
        fix = f"add `{BUDGET_KEY}`: {largest_bytes}, and pin what it was measured with"
        yield warning(profile.where, what, fix)
    elif profile.sound.get(BUDGET_KEY, largest_bytes) < largest_bytes:
        figure = _size(profile.sound[BUDGET_KEY])
        what = (
            f"`{BUDGET_KEY}` {figure} is below the largest measurement of its layout, {_size(largest_bytes)}"
        )
        yield error(profile.at(BUDGET_KEY), what, f"write {largest_bytes}")


def _wider_needs_less(profiles: tuple[ProfileView, ...]) -> Iterator[Note]:
    rated = [profile for profile in profiles if WINDOW in profile.sound and BUDGET_KEY in profile.sound]
    for wide in rated:
        narrower = [
            profile
            for profile in rated
            if profile.sound[WINDOW] < wide.sound[WINDOW]
            and profile.sound[BUDGET_KEY] > wide.sound[BUDGET_KEY]
            and (profile.layout, _kv_type(profile)) == (wide.layout, _kv_type(wide))
        ]
        if narrower:
            yield _inversion(wide, narrower)


def _inversion(wide: ProfileView, narrower: list[ProfileView]) -> Note:
    unexplained = [profile for profile in narrower if not _asks_less(wide, profile)]
    other = max(unexplained or narrower, key=lambda profile: int(profile.sound[BUDGET_KEY]))
    needs, others = (_size(profile.sound[BUDGET_KEY]) for profile in (wide, other))
    what = (
        f"the window of {wide.sound[WINDOW]} tokens needs {needs}, less than the narrower "
        f"`{printable(other.name, limit=64)}` of {other.sound[WINDOW]} tokens, {others}"
    )
    note = error if unexplained else warning
    return note(wide.at(BUDGET_KEY), what, "measure both again on the same card with the same vLLM")


def _asks_less(wide: ProfileView, narrow: ProfileView) -> bool:
    """Whether something beside the window explains that the wider profile needs less memory."""
    if any(wide.sound.get(key) is True and narrow.sound.get(key) is not True for key in _SAVING_SWITCHES):
        return True
    if _number(wide, "max_num_batched_tokens") < _number(narrow, "max_num_batched_tokens"):
        return True
    fewer_sequences = _number(wide, "max_num_seqs") < _number(narrow, "max_num_seqs")
    return fewer_sequences and _number(wide, PIN) < _number(narrow, PIN)


def _number(profile: ProfileView, key: str) -> int:
    value: int = profile.sound.get(key, 0)
    return value


def _kv_type(profile: ProfileView) -> str:
    kv_type: str = profile.sound.get("kv_cache_dtype", "auto")
    return kv_type


def _size(size_bytes: float) -> str:
    exact = int(size_bytes)
    return f"{printable(exact, limit=40)} ({printable(gib(exact), limit=40)})"
