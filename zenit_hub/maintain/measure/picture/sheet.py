"""The paper under the picture: shapes, text that fits its place, colours for light and dark.

Coordinates are SVG units; at its natural size the picture is :data:`WIDTH` pixels wide.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from zenit_hub.text import printable

Point = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, top, width, height."""

WIDTH = 720
MARGIN = 28
TEXT_SIZE = 16
"""The smallest text. On a phone the picture is half as wide: 8 px there."""

FONTS = '-apple-system,BlinkMacSystemFont,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'

COLOURS = {
    "yellow": "#F0E442",
    "blue": "#56B4E9",
    "orange": "#E69F00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "grey": "#CBD0D6",
}
"""Fills that people tell apart with every kind of colour vision (after Okabe and Ito; those that turn grey differ in
lightness), light enough for dark text and visible on white and on black. None stands alone: what it means is
written beside it."""

_LIGHT = {
    "page": "fill:#ffffff;stroke:#d1d9e0",
    "ink": "fill:#1f2328",
    "soft": "fill:#59636e",
    "good": "fill:#1a7f37",
    "bad": "fill:#cf222e",
    "grid": "stroke:#dde3e9",
    "box": "fill:#f0f3f6;stroke:#818b98",
    "gap": "fill:#ffffff",
    "edge": "stroke:#ffffff",
    "strong": "stroke:#1f2328",
    "weak": "stroke:#7d8590",
    "sign": "stroke:#ffffff",
}
_DARK = {
    "page": "fill:#0d1117;stroke:#3d444d",
    "ink": "fill:#f0f6fc",
    "soft": "fill:#9aa4af",
    "good": "fill:#3fb950",
    "bad": "fill:#f85149",
    "grid": "stroke:#2a3038",
    "box": "fill:#1c222a;stroke:#737b85",
    "gap": "fill:#0d1117",
    "edge": "stroke:#0d1117",
    "strong": "stroke:#f0f6fc",
    "weak": "stroke:#8b949e",
    "sign": "stroke:#0d1117",
}


class Sheet:
    """Elements in the order in which they are painted. ``key`` makes its ids its own on a page with several."""

    def __init__(self, key: str) -> None:
        self.key = key
        self._elements: list[str] = []

    def rect(self, box: Box, classes: str, more: str = "") -> None:
        """``more``: further attributes, as for all shapes."""
        x, y, width, height = box
        self._elements.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(width, 0))}" '
            f'height="{number(max(height, 0))}" class="{classes}"{more}/>'
        )

    def line(self, start: Point, end: Point, classes: str, more: str = "") -> None:
        (x1, y1), (x2, y2) = start, end
        self._elements.append(
            f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
            f'class="{classes}"{more}/>'
        )

    def path(self, points: Iterable[Point], classes: str, more: str = "") -> None:
        """A line through ``points``, or what it encloses where the class fills."""
        steps = " ".join(f"{number(x)} {number(y)}" for x, y in points)
        self._elements.append(f'<path d="M{steps}" class="{classes}"{more}/>')

    def dot(self, centre: Point, radius: float, classes: str) -> None:
        x, y = centre
        self._elements.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{classes}"/>'
        )

    def text(
        self, at: Point, text: str, classes: str = "ink", size: int = TEXT_SIZE, anchor: str = "start"
    ) -> None:
        """``text`` with its baseline at ``at``: any string, one line, escaped here and nowhere else."""
        if not text:
            return
        place = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self._elements.append(
            f'<text x="{number(at[0])}" y="{number(at[1])}" font-size="{size}" class="{classes}"{place}>'
            f"{clean(text)}</text>"
        )

    def runs(self, at: Point, first: tuple[str, str], second: tuple[str, str]) -> None:
        """Two texts with their classes, the second behind the first however wide that comes out."""
        (text, classes), (behind, its_classes) = first, second
        self._elements.append(
            f'<text x="{number(at[0])}" y="{number(at[1])}" font-size="{TEXT_SIZE}">'
            f'<tspan class="{classes}">{clean(text)}</tspan>'
            f'<tspan class="{its_classes}" dx="10">{clean(behind)}</tspan></text>'
        )

    @property
    def hatch(self) -> str:
        """The attribute that fills a shape with stripes."""
        return f' fill="url(#{self.key}-stripes)"'

    def document(self, height: float, title: str, description: str) -> str:
        """The whole as an SVG document with its text alternative."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {number(height)}" width="{WIDTH}" '
            f'height="{number(height)}" role="img" aria-labelledby="{self.key}-title {self.key}-desc">'
        )
        lines = [
            head,
            f'<title id="{self.key}-title">{clean(title)}</title>',
            f'<desc id="{self.key}-desc">{clean(description)}</desc>',
            f"<style>{_style()}</style>",
            _stripes(self.key),
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{number(height - 1)}" rx="10" class="page"/>',
            *self._elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _style() -> str:
    fixed = [
        f"text{{font-family:{FONTS}}}",
        ".bold{font-weight:700}",
        ".on{fill:#111418}",
        ".line{fill:none;stroke-linejoin:round;stroke-linecap:round}",
        ".page{stroke-width:1}",
    ]
    fills = [f".{name}{{fill:{colour}}}" for name, colour in COLOURS.items()]
    light = [f".{name}{{{rule}}}" for name, rule in _LIGHT.items()]
    dark = [f".{name}{{{rule}}}" for name, rule in _DARK.items()]
    return "".join([*fixed, *fills, *light, "@media (prefers-color-scheme:dark){", *dark, "}"])


def _stripes(key: str) -> str:
    return (
        f'<defs><pattern id="{key}-stripes" width="7" height="7" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><rect width="7" height="7" fill="#E4E7EB"/>'
        '<rect width="3" height="7" fill="#6E7781"/></pattern></defs>'
    )


def number(value: float) -> str:
    """A coordinate with one decimal: the same on every machine."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"


def clean(text: str) -> str:
    """Any string as the content of an XML element: one line, nothing that XML forbids, nothing that ends it."""
    return escape(printable(text, limit=20_000))


# --- text has no width before somebody's font draws it


_SHARES = {
    character: share
    for share, characters in (
        (0.3, "'Iijl"),
        (0.35, " ,.:;|·"),
        (0.4, "()/[\\]ft"),
        (0.45, "!r"),
        (0.5, '"-_`–'),
        (0.55, "*?s"),
        (0.6, "FJLckvxyz"),
        (0.65, "$0123456789EPSTabdeghnopqu{}"),
        (0.7, "ABKRVXYZ"),
        (0.75, "CU"),
        (0.8, "&DGHNOQ"),
        (0.85, "#+<=>^w~×−"),
        (0.95, "M"),
        (1.0, "%@Wm…"),
    )
    for character in characters
}
"""What a letter takes of its size: the wider of DejaVu Sans, the widest common font, and Inter, that of the PNG."""

_BOLD = 1.14


def width_of(text: str, size: float = TEXT_SIZE, bold: bool = False) -> float:
    """What ``text`` takes at most; other fonts take up to a sixth less."""
    return sum(map(_share, text)) * size * (_BOLD if bold else 1)


def _share(character: str) -> float:
    wide = unicodedata.east_asian_width(character) in {"W", "F"} or ord(character) > 0xFFFF
    return _SHARES.get(character, 1.1 if wide else 0.8)


def fitted(text: str, width: float, size: float = TEXT_SIZE, bold: bool = False) -> str:
    """A stranger's string, cut to ``width`` with a mark."""
    line = printable(text, limit=200)
    if width_of(line, size, bold) <= width:
        return line
    while line and width_of(f"{line}…", size, bold) > width:
        line = line[:-1]
    return f"{line.rstrip()}…"


def wrapped(text: str, width: float, lines: int, size: float = TEXT_SIZE) -> Sequence[str]:
    """A stranger's sentence on at most ``lines`` lines; what does not fit is cut with a mark."""
    words = printable(text, limit=1000).split(" ")
    found: list[str] = []
    while words and len(found) < lines - 1:
        line = words.pop(0)
        while words and width_of(f"{line} {words[0]}", size) <= width:
            line = f"{line} {words.pop(0)}"
        if width_of(line, size) > width:
            words.insert(0, line)
            break
        found.append(line)
    return [*found, fitted(" ".join(words), width, size)] if words else found
