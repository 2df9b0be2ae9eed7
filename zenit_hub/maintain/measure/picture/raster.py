"""The picture as PNG, drawn by resvg with a font that comes along: a fresh container has none."""

from __future__ import annotations

from pathlib import Path

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.picture.sheet import FONTS

MAX_WIDTH_PX = 4096
_FAMILY = "Inter"
_COVERED = 0x052F
"""Latin, Greek and Cyrillic end here; what follows stands in no font that comes along."""
_SIGNS = frozenset("…−–—‘’“”·×≤≥≈²³⁰✓→")
_INSTALL = "pip install 'zenit-hub[tools]'"


def png(svg_text: str, width_px: int) -> bytes:
    """``svg_text`` in its light colours, ``width_px`` wide.

    Raises :class:`MeasurementError` where what draws it is missing (the ``tools`` extra), and for a text or width
    that cannot be drawn. Letters that the font lacks are looked for in this machine's fonts; one that no font has
    shows as a box.
    """
    if not 1 <= width_px <= MAX_WIDTH_PX:
        raise MeasurementError(
            "no picture of that width", got=width_px, allowed=f"1 to {MAX_WIDTH_PX} pixels"
        )
    font = _font()
    try:
        import resvg_py
    except ImportError as error:
        raise _missing("resvg-py") from error
    foreign = any(ord(letter) > _COVERED and letter not in _SIGNS for letter in svg_text)
    try:
        drawn = resvg_py.svg_to_bytes(
            svg_string=svg_text.replace(FONTS, _FAMILY),
            width=width_px,
            skip_system_fonts=not foreign,
            font_files=[str(font)],
            font_family=_FAMILY,
            sans_serif_family=_FAMILY,
        )
    except ValueError as error:
        raise MeasurementError("the picture cannot be drawn", got=str(error)) from error
    return bytes(drawn)


def _font() -> Path:
    """Without a font resvg leaves all text out and says nothing, so one has to be there."""
    try:
        import fontpkg_inter
    except ImportError as error:
        raise _missing("fontpkg-inter") from error
    upright = [
        file
        for file in sorted((Path(fontpkg_inter.__file__).parent / "files").glob("*.ttf"))
        if "Italic" not in file.name
    ]
    if not upright:
        raise _missing("fontpkg-inter")
    return upright[0]


def _missing(package: str) -> MeasurementError:
    return MeasurementError(
        f"a PNG cannot be drawn without {package}", next_step=f"Type `{_INSTALL}`; the SVG needs nothing."
    )
