"""Memory over time: the curves of one profile's starts, and below them what the engine did when."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zenit_hub.maintain.measure.picture.scale import (
    Axis,
    Unit,
    byte_label,
    byte_ticks,
    time_labels,
    time_ticks,
)
from zenit_hub.maintain.measure.picture.sheet import MARGIN, WIDTH, Point, Sheet, width_of
from zenit_hub.maintain.measure.picture.words import BOOTS, figure_bytes
from zenit_hub.maintain.measurement import Boot, BootKind, Measurement, PhaseName

LEFT, RIGHT = 148, WIDTH - 140
_HEIGHT = 210
_ROW, _STRIP = 34, 24

PHASES: dict[PhaseName, tuple[str, str]] = {
    "start": ("start", "yellow"),
    "loading": ("loading", "blue"),
    "compiling": ("compiling", "grey"),
    "kv_cache": ("KV cache", "orange"),
    "graphs": ("graphs", "purple"),
    "workload": ("workload", "green"),
}
"""Name and colour: the colour of the part that the phase takes, as in the bars below."""

_DASHES: dict[BootKind, str] = {"cold": "", "warm": "9 5", "verification": "", "below": "2 4"}
_OUTCOMES = {"failed": "failed", "contaminated": "contaminated", "disturbed": "disturbed"}


@dataclass(frozen=True, slots=True)
class _Span:
    """What the engine did from ``start_s`` to ``end_s``."""

    name: PhaseName
    start_s: float
    end_s: float


def shown_boots(measurement: Measurement) -> Sequence[Boot]:
    """One start of each kind, in order: the one with the largest drop of those that answered, else the last."""
    chosen = []
    for kind in BOOTS:
        boots = [boot for boot in measurement.boots if boot.kind == kind]
        answered = [boot for boot in boots if boot.outcome == "answered"]
        chosen += [max(answered, key=lambda boot: boot.drop_bytes or 0)] if answered else boots[-1:]
    return chosen


def draw_curve(sheet: Sheet, measurement: Measurement, unit: Unit, top: float) -> float:
    """The panel from ``top`` on; returns where it ends."""
    boots = shown_boots(measurement)
    sheet.text((MARGIN, top + 18), "Memory over time", "ink bold", 18)
    left_out = len(measurement.boots) - len(boots)
    if left_out:
        more = f"{left_out} more start{'s' if left_out > 1 else ''} not drawn"
        sheet.text((WIDTH - MARGIN, top + 18), more, "soft", anchor="end")
    if not any(boot.samples for boot in boots):
        sheet.text((MARGIN, top + 48), "Nothing was sampled.", "soft")
        return top + 72
    plot_top, plot_end = top + 38, top + 38 + _HEIGHT
    end_s = max(max(boot.ended_after_s, *(when for when, _ in boot.samples or ((0.0, 0),))) for boot in boots)
    peak = max((taken for boot in boots for _, taken in boot.samples), default=0)
    times = Axis(LEFT, RIGHT, end_s if end_s > 0 else 1.0)
    sizes = Axis(plot_end, plot_top, max(peak, figure_bytes(measurement) or 0, 1) * 1.06)
    strips_end = plot_end + 14 + _ROW * len(boots) - (_ROW - _STRIP)
    _grid(sheet, times, sizes, unit, strips_end + 8)
    _curves(sheet, boots, times, sizes)
    _figure(sheet, measurement, sizes, unit)
    for index, boot in enumerate(boots):
        _strip(sheet, boot, times, unit, plot_end + 14 + index * _ROW)
    return _legend(sheet, strips_end + 50)


def _grid(sheet: Sheet, times: Axis, sizes: Axis, unit: Unit, end: float) -> None:
    for amount in byte_ticks(int(sizes.maximum), unit):
        y = sizes.at(amount)
        sheet.line((LEFT, y), (RIGHT, y), "grid")
        sheet.text((LEFT - 10, y + 6), byte_label(amount, unit), "soft", anchor="end")
    ticks = time_ticks(times.maximum)
    for when, label in zip(ticks, time_labels(ticks), strict=True):
        sheet.line((times.at(when), sizes.end), (times.at(when), end), "grid")
        sheet.text((times.at(when), end + 17), label, "soft", anchor="middle")


def _curves(sheet: Sheet, boots: Sequence[Boot], times: Axis, sizes: Axis) -> None:
    sampled = [boot for boot in boots if boot.samples]
    main = max(sampled, key=lambda boot: (boot.kind in {"cold", "warm"}, boot.drop_bytes or 0))
    samples = sorted(main.samples)
    for span in _spans(main):
        start_s, end_s = max(span.start_s, samples[0][0]), min(span.end_s, samples[-1][0])
        if span.name in PHASES and start_s < end_s:
            within = _within(samples, start_s, end_s)
            curve = _thinned([(times.at(when), sizes.at(taken)) for when, taken in within])
            feet = [(curve[-1][0], sizes.start), (curve[0][0], sizes.start)]
            sheet.path([*curve, *feet], PHASES[span.name][1], ' fill-opacity="0.45"')
    # The strongest last: starts that run alike lie on each other.
    for boot in sorted(sampled, key=lambda boot: (boot is main, boot.kind in {"cold", "warm"})):
        points = _thinned([(times.at(when), sizes.at(taken)) for when, taken in sorted(boot.samples)])
        if len(points) == 1:
            sheet.dot(points[0], 4, "ink" if boot is main else "soft")
        else:
            sheet.path(points, *_pen(boot))


def _pen(boot: Boot) -> tuple[str, str]:
    """Classes and attributes of a start's line: the ones that make the figure strong, the trials lighter."""
    strong = boot.kind in {"cold", "warm"}
    dash = f' stroke-dasharray="{_DASHES[boot.kind]}"' if _DASHES[boot.kind] else ""
    return f"line {'strong' if strong else 'weak'}", f' stroke-width="{2.4 if strong else 1.8}"{dash}'


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Of each column of one unit the first, highest, lowest and last point: no peak is lost."""
    columns: dict[int, list[int]] = {}
    for index, (x, _) in enumerate(points):
        columns.setdefault(int(x), []).append(index)
    kept: set[int] = set()
    for indices in columns.values():
        by_height = sorted(indices, key=lambda index: points[index][1])
        kept |= {indices[0], by_height[0], by_height[-1], indices[-1]}
    return [points[index] for index in sorted(kept)]


def _within(
    samples: Sequence[tuple[float, int]], start_s: float, end_s: float
) -> Sequence[tuple[float, float]]:
    """The curve from ``start_s`` to ``end_s``, with what it is at both ends."""
    inside = [(when, float(taken)) for when, taken in samples if start_s < when < end_s]
    return [(start_s, _level(samples, start_s)), *inside, (end_s, _level(samples, end_s))]


def _level(samples: Sequence[tuple[float, int]], at_s: float) -> float:
    """Between the two samples around ``at_s``."""
    before = max(sample for sample in samples if sample[0] <= at_s)
    after = min(sample for sample in samples if sample[0] >= at_s)
    width_s = after[0] - before[0]
    share = (at_s - before[0]) / width_s if width_s > 0 else 0
    return before[1] + (after[1] - before[1]) * share


def _spans(boot: Boot) -> Iterator[_Span]:
    phases = sorted(boot.phases, key=lambda phase: phase.start_s)
    ends = [*(phase.start_s for phase in phases[1:]), boot.ended_after_s]
    for phase, end_s in zip(phases, ends, strict=False):
        if end_s > phase.start_s:
            yield _Span(phase.name, phase.start_s, end_s)


def _figure(sheet: Sheet, measurement: Measurement, sizes: Axis, unit: Unit) -> None:
    needed_bytes = figure_bytes(measurement)
    if needed_bytes is not None:
        y = sizes.at(needed_bytes)
        sheet.line((LEFT, y), (RIGHT + 4, y), "strong", ' stroke-width="1.5" stroke-dasharray="4 4"')
        sheet.text((RIGHT + 10, y + 6), unit.text(needed_bytes), "ink bold")


def _strip(sheet: Sheet, boot: Boot, times: Axis, unit: Unit, top: float) -> None:
    """One start: its line's style, its phases, what came of it."""
    baseline = top + 17.5
    sheet.text((MARGIN, baseline), BOOTS[boot.kind], "ink")
    sheet.path([(108, top + _STRIP / 2), (138, top + _STRIP / 2)], *_pen(boot))
    spans = [span for span in _spans(boot) if span.name in PHASES]
    if not spans:
        width = max(times.at(boot.ended_after_s) - LEFT, 2)
        sheet.rect((LEFT, top, width, _STRIP), "box", ' stroke-width="1"')
    for span in spans:
        label, colour = PHASES[span.name]
        left, width = times.at(span.start_s), times.at(span.end_s) - times.at(span.start_s)
        sheet.rect((left, top, max(width, 1.5), _STRIP), f"{colour} edge", ' stroke-width="1"')
        if width_of(label) + 8 <= width:
            sheet.text((left + width / 2, baseline), label, "on", anchor="middle")
    if boot.outcome == "answered":
        made = "answered" if boot.kind in {"verification", "below"} or boot.drop_bytes is None else None
        sheet.text((RIGHT + 10, baseline), made or unit.text(boot.drop_bytes or 0), "ink")
    else:
        tone = "soft" if boot.kind == "below" else "bad"
        sheet.text((RIGHT + 10, baseline), _OUTCOMES[boot.outcome], tone)


def _legend(sheet: Sheet, top: float) -> float:
    """The phases in their order, on one line; returns where the panel ends."""
    swatch, names = 20, list(PHASES.values())
    taken = sum(width_of(label) + swatch for label, _ in names)
    gap = (WIDTH - 2 * MARGIN - taken) / (len(names) - 1)
    x: float = MARGIN
    for label, colour in names:
        sheet.rect((x, top - 1, 14, 14), colour, ' rx="2"')
        sheet.text((x + swatch, top + 12), label, "soft")
        x += swatch + width_of(label) + gap
    return top + 22
