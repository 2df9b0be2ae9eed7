"""Measurements as a picture for a model card: SVG that follows light and dark, and PNG.

``svg``        this module: the order of the panels
``curve``      memory over time
``bars``       the parts of the figures as bars, the cards beside them
``cards``      which cards, and what is said of each
``words``      headings, verdicts, the text alternative
``scale``      bytes and seconds as places and labels
``sheet``      shapes, text that fits, colours
``raster``     SVG → PNG

Everything is drawn from the measurements alone: the same ones give the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.picture import words
from zenit_hub.maintain.measure.picture.bars import BarPanel, bar_axis, segments
from zenit_hub.maintain.measure.picture.cards import CardRow, card_rows, cards_in_words
from zenit_hub.maintain.measure.picture.curve import draw_curve
from zenit_hub.maintain.measure.picture.raster import png
from zenit_hub.maintain.measure.picture.scale import Unit, unit_for
from zenit_hub.maintain.measure.picture.sheet import MARGIN, WIDTH, Sheet, fitted, width_of, wrapped
from zenit_hub.maintain.measurement import Measurement
from zenit_hub.text import printable

__all__ = ["png", "svg"]

_TITLE_SIZE = 26
_ROOM = WIDTH - 2 * MARGIN
_LARGEST = 2**63
"""Of bytes and of seconds. JSON can hold more, and infinity."""


def svg(measurements: Sequence[Measurement]) -> str:
    """One measurement: its curves and its bar. Several: a bar each, in the order given.

    Raises :class:`MeasurementError` for none at all, and for numbers that no machine has.
    """
    if not measurements:
        raise MeasurementError("there is no measurement to draw")
    for measurement in measurements:
        if not all(-_LARGEST <= value <= _LARGEST for value in _numbers(measurement)):
            name = printable(measurement.profile.name, limit=64)
            raise MeasurementError(f"the measurement of {name} holds a number that cannot be drawn")
    return _one(measurements[0]) if len(measurements) == 1 else _several(measurements)


def _numbers(measurement: Measurement) -> Iterator[float]:
    """Every number that becomes a place on the paper."""
    yield from (
        measurement.requires_free_bytes or 0,
        measurement.device.total_bytes,
        measurement.device.count,
    )
    if measurement.breakdown is not None:
        yield from (amount or 0 for amount in astuple(measurement.breakdown))
    for boot in measurement.boots:
        yield from (boot.drop_bytes or 0, boot.foreign_bytes or 0, boot.ended_after_s)
        yield from (phase.start_s for phase in boot.phases)
        for sample in boot.samples:
            yield from sample


def _one(measurement: Measurement) -> str:
    unit = unit_for(words.drawn_bytes(measurement) or _peak(measurement))
    rows = card_rows([measurement])
    title = f"{printable(measurement.profile.name, limit=64)}{words.heading(measurement, unit)}"
    told = f"{words.description(measurement, unit)} {cards_in_words(rows)}"
    sheet = Sheet(_key(title, told))
    top = _head(sheet, measurement, unit)
    top = draw_curve(sheet, measurement, unit, top)
    if any(segments(measurement)):
        top = _parts(sheet, measurement, rows, unit, top)
    return sheet.document(_foot(sheet, [measurement], top), title, told)


def _parts(sheet: Sheet, measurement: Measurement, rows: Sequence[CardRow], unit: Unit, top: float) -> float:
    figure = words.figure_bytes(measurement)
    beside = "common cards when idle" if measurement.device.platform == "cuda" else "this host's memory"
    said = f"What takes it, beside {beside}" if figure is not None else "What it took; no figure to go by"
    sheet.text((MARGIN, top + 34), said, "ink bold", 18)
    panel = BarPanel(sheet, bar_axis([measurement], rows), unit)
    bar = panel.callouts(measurement, top + 52)
    panel.bar(measurement, bar)
    sheet.text((MARGIN, bar + 26), fitted(measurement.profile.name, 108, bold=True), "ink bold")
    return panel.cards(rows, bar + 54, figure)


def _several(measurements: Sequence[Measurement]) -> str:
    unit = unit_for(max(map(words.drawn_bytes, measurements)))
    rows = card_rows(measurements)
    title = "Memory that must be free, per device"
    each_told = [words.description(each, unit, with_boots=False) for each in measurements]
    told = " ".join([*each_told, cards_in_words(rows)])
    sheet = Sheet(_key(title, told))
    sheet.text((MARGIN, 48), title, "ink bold", _TITLE_SIZE)
    sheet.text((MARGIN, 76), fitted(_shared(measurements), _ROOM, 17), "soft", 17)
    top = _legend(sheet, 96) + 20
    panel = BarPanel(sheet, bar_axis(measurements, rows), unit)
    several_devices = len({words.devices(each) for each in measurements}) > 1
    for measurement in measurements:
        top = panel.row(measurement, top, with_device=several_devices)
    on_cards = all(each.device.platform == "cuda" for each in measurements)
    said = "Beside common cards when idle" if on_cards else "Beside what they ran on"
    sheet.text((MARGIN, top + 20), said, "ink bold", 18)
    top = panel.cards(rows, top + 36)
    return sheet.document(_foot(sheet, measurements, top), title, told)


def _shared(measurements: Sequence[Measurement]) -> str:
    """Repos, devices and vLLM versions, once each; devices only where there is one."""
    facts = [*dict.fromkeys(map(words.repo, measurements))]
    devices = dict.fromkeys(map(words.devices, measurements))
    facts += devices if len(devices) == 1 else ()
    return " · ".join([*facts, *dict.fromkeys(map(words.engine, measurements))])


def _head(sheet: Sheet, measurement: Measurement, unit: Unit) -> float:
    said = words.heading(measurement, unit)
    room = _ROOM - width_of(said, _TITLE_SIZE, bold=True)
    name = fitted(measurement.profile.name, room, _TITLE_SIZE, bold=True)
    sheet.text((MARGIN, 48), f"{name}{said}", "ink bold", _TITLE_SIZE)
    sheet.text((MARGIN, 76), fitted(words.origin(measurement), _ROOM, 17), "soft", 17)
    tone, sentence = words.verdict(measurement, unit)
    _sign(sheet, MARGIN + 9, 98, tone)
    sheet.text((MARGIN + 26, 104), fitted(sentence, _ROOM - 26, 17), tone if tone != "soft" else "ink", 17)
    top = 104.0
    failure = measurement.failure
    if failure is not None:
        lines = wrapped(failure.message, _ROOM - 26, 3)
        advice = wrapped(failure.advice, _ROOM - 26, 2)
        for line in [*lines, *advice]:
            top += 22
            sheet.text((MARGIN + 26, top), line, "soft" if line in lines else "ink")
    return top + 26


_SIGNS: dict[words.Tone, Sequence[Sequence[tuple[float, float]]]] = {
    "good": [[(-4, 0), (-1, 3.5), (4.5, -3.5)]],
    "soft": [[(-4, 0), (4, 0)]],
    "bad": [[(-3.5, -3.5), (3.5, 3.5)], [(-3.5, 3.5), (3.5, -3.5)]],
}
"""A tick, a dash, a cross: the tone as a shape, for people to whom red and green are one."""


def _sign(sheet: Sheet, x: float, y: float, tone: words.Tone) -> None:
    sheet.dot((x, y), 9, tone)
    for stroke in _SIGNS[tone]:
        sheet.path([(x + right, y + down) for right, down in stroke], "line sign", ' stroke-width="2.2"')


def _legend(sheet: Sheet, top: float) -> float:
    """The parts in the order in which they are stacked, three a line."""
    entries = [(label, colour) for _, label, colour in words.PARTS] + [(words.UNACCOUNTED, "")]
    for index, (label, colour) in enumerate(entries):
        x, y = MARGIN + (index % 3) * _ROOM / 3, top + (index // 3) * 26
        sheet.rect((x, y, 16, 16), colour, f'{"" if colour else sheet.hatch} rx="2"')
        sheet.text((x + 24, y + 13.5), label, "soft")
    return top + 52


def _foot(sheet: Sheet, measurements: Sequence[Measurement], top: float) -> float:
    """Since when the figures stand; returns the picture's height."""
    days = sorted({each.created[:10] for each in measurements})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    tool = measurements[-1].tool_version
    said = f"Measured {when} with zenit-hub {tool} · per device, 1 GiB = 2³⁰ bytes"
    sheet.text((MARGIN, top + 30), fitted(said, _ROOM), "soft")
    return top + 52


def _peak(measurement: Measurement) -> int:
    return max((taken for boot in measurement.boots for _, taken in boot.samples), default=0)


def _key(*texts: str) -> str:
    """Ids that differ between pictures on one page, the same for the same picture."""
    return f"m{hashlib.sha256(chr(0).join(texts).encode()).hexdigest()[:10]}"
