"""The stacked parts of each figure as bars, beside the sizes of cards that people have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zenit_hub.maintain.measure.picture.cards import CardRow
from zenit_hub.maintain.measure.picture.scale import Axis, Unit, unit_for
from zenit_hub.maintain.measure.picture.sheet import MARGIN, WIDTH, Sheet, fitted, width_of
from zenit_hub.maintain.measure.picture.words import (
    PARTS,
    UNACCOUNTED,
    devices,
    drawn_bytes,
    failure_words,
    figure_bytes,
    status,
    told,
    window,
)
from zenit_hub.maintain.measurement import Breakdown, Measurement

LEFT, RIGHT = 148, WIDTH - 140
_BAR, _LOW_BAR = 40, 26
_CARD, _CARD_ROW = 26, 34
_ROOM_FOR_CARDS = 1.6
"""How far the scale goes beyond the largest figure."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of a bar, in bytes from its left end. ``colour`` ``None``: striped."""

    label: str
    amount_bytes: int
    start_bytes: int
    end_bytes: int
    colour: str | None


def bar_axis(measurements: Sequence[Measurement], rows: Sequence[CardRow]) -> Axis:
    """One scale for all bars of a picture. Larger cards are cut, so that the parts stay readable."""
    figures = max([drawn_bytes(m) for m in measurements])
    cards = max([row.total_bytes for row in rows], default=0)
    return Axis(LEFT, RIGHT, max(figures, min(cards, figures * _ROOM_FOR_CARDS or cards), 1))


def segments(measurement: Measurement) -> Iterator[_Segment]:
    """The stack from the left; a negative rest lies over the end of the others."""
    parts = measurement.breakdown
    if parts is None:
        needed_bytes = figure_bytes(measurement)
        if needed_bytes is not None:
            yield _Segment("not told apart", needed_bytes, 0, needed_bytes, "grey")
        return
    at = 0
    for name, label, colour in PARTS:
        amount = told(parts, name)
        if amount:
            yield _Segment(label, amount, at, at + amount, colour)
            at += amount
    rest = parts.unaccounted_bytes
    if rest:
        yield _Segment(UNACCOUNTED, rest, min(at, at + rest), max(at, at + rest), None)


@dataclass(frozen=True, slots=True)
class BarPanel:
    """Bars on one sheet, of one scale, in one unit. What draws returns where the next thing begins."""

    sheet: Sheet
    sizes: Axis
    unit: Unit

    def bar(self, measurement: Measurement, top: float, height: float = _BAR) -> None:
        """The stack, with names in what is wide enough."""
        figure = figure_bytes(measurement) is not None
        faint, words = ("", "on") if figure else (' opacity="0.5"', "ink")
        found = list(segments(measurement))
        if not found:
            dashes = ' fill-opacity="0" stroke-width="1" stroke-dasharray="5 5" rx="3"'
            self.sheet.rect((LEFT, top, RIGHT - LEFT, height), "box", dashes)
        for segment in found:
            left, end = self.sizes.at(segment.start_bytes), self.sizes.at(segment.end_bytes)
            fill = "edge" if segment.colour is None else f"{segment.colour} edge"
            stripes = self.sheet.hatch if segment.colour is None else ""
            box = (left, top, max(end - left, 2), height)
            self.sheet.rect(box, fill, f'{stripes} stroke-width="1"{faint}')
            if segment.colour is not None and width_of(segment.label) + 10 <= end - left:
                at = ((left + end) / 2, top + height / 2 + 6)
                self.sheet.text(at, segment.label, words, anchor="middle")

    def callouts(self, measurement: Measurement, top: float) -> float:
        """Name and amount of each part, each with a line down to its place in the bar."""
        found = list(segments(measurement))
        column = (WIDTH - 2 * MARGIN) / max(len(found), 1)
        for index, segment in enumerate(found):
            x = MARGIN + column * (index + 0.5)
            self.sheet.text((x, top + 14), segment.label, "soft", anchor="middle")
            self.sheet.text((x, top + 34), self.unit.text(segment.amount_bytes), "ink bold", anchor="middle")
            middle = (self.sizes.at(segment.start_bytes) + self.sizes.at(segment.end_bytes)) / 2
            way = [(x, top + 41), (x, top + 46), (middle, top + 62), (middle, top + 68)]
            self.sheet.path(way, "line weak", ' stroke-width="1.2"')
        return top + 68

    def cards(self, rows: Sequence[CardRow], top: float, mark_bytes: int | None = None) -> float:
        """One outline a card, and the figure's line through all."""
        mark = None if mark_bytes is None else self.sizes.at(mark_bytes)
        for index, row in enumerate(rows):
            self._card(row, top + index * _CARD_ROW, mark)
        end = top + len(rows) * _CARD_ROW
        if mark is not None:
            dashes = ' stroke-width="1.5" stroke-dasharray="4 4"'
            self.sheet.line((mark, top - 12), (mark, end - 4), "strong", dashes)
        return end

    def _card(self, row: CardRow, top: float, mark: float | None) -> None:
        """A card: its outline, its size in it or behind it and out of the way of the figure's line."""
        baseline, end = top + 18.5, self.sizes.at(row.total_bytes)
        self.sheet.text((MARGIN, baseline), fitted(row.label, LEFT - MARGIN - 8))
        self.sheet.rect((LEFT, top, max(end - LEFT, 2), _CARD), "box", ' stroke-width="1" rx="3"')
        if row.total_bytes > self.sizes.maximum:
            self._cut(end - 26, top)
        size = unit_for(row.total_bytes).text(row.total_bytes)
        if LEFT + width_of(size) + 20 > end:
            self.sheet.text((end + 8, baseline), size, "soft")
        elif mark is not None and mark < LEFT + width_of(size) + 18:
            self.sheet.text((mark + 10, baseline), size)
        else:
            self.sheet.text((LEFT + 10, baseline), size)
        self.sheet.text((RIGHT + 10, baseline), row.said, row.tone)

    def _cut(self, x: float, top: float) -> None:
        """A slanted gap: this outline goes on."""
        low, high = top + _CARD + 3, top - 3
        self.sheet.path([(x, low), (x + 8, high), (x + 15, high), (x + 7, low)], "gap")
        self.sheet.line((x, low), (x + 8, high), "weak")
        self.sheet.line((x + 7, low), (x + 15, high), "weak")

    def row(self, measurement: Measurement, top: float, *, with_device: bool) -> float:
        """One of several profiles: a line of words, its bar, its sum."""
        needed_bytes, (tone, word) = figure_bytes(measurement), status(measurement)
        amount = "no figure" if needed_bytes is None else self.unit.text(needed_bytes)
        room = WIDTH - 2 * MARGIN - width_of(amount, bold=True) - 12
        name = fitted(measurement.profile.name, room * 0.6, bold=True)
        facts = [window(measurement), devices(measurement) if with_device else ""]
        beside = fitted(" · ".join(filter(None, facts)), room - width_of(name, bold=True) - 20)
        self.sheet.runs((MARGIN, top + 15), (name, "ink bold"), (beside, "soft"))
        self.sheet.text((WIDTH - MARGIN, top + 15), amount, "ink bold", anchor="end")
        self.sheet.text((MARGIN, top + 42), word, tone)
        self.bar(measurement, top + 24, _LOW_BAR)
        if not any(segments(measurement)):
            reason = fitted(failure_words(measurement), RIGHT - LEFT - 20)
            self.sheet.text((LEFT + 10, top + 42), reason, "soft")
        if measurement.breakdown is None:
            return top + 72
        self.sheet.text((LEFT, top + 70), _sum(measurement.breakdown, self.unit), "soft")
        return top + 94


def _sum(parts: Breakdown, unit: Unit) -> str:
    """``14.90 + 12.11 + … GiB``: the amounts in the legend's order, a dash for what the engine does not tell."""
    amounts = [told(parts, name) for name, _, _ in PARTS]
    terms = ["–" if amount is None else unit.bare(amount) for amount in amounts]
    sign = "−" if parts.unaccounted_bytes < 0 else "+"
    return f"{' + '.join(terms)} {sign} {unit.bare(abs(parts.unaccounted_bytes))} {unit.name}"
