"""The picture as PNG."""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

import pytest

from tests.measurements import a_measurement
from tests.pictures import drawn, root_of
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.picture import png, svg


def size_of(data: bytes) -> tuple[int, int]:
    """Width and height as a PNG's head has them."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@pytest.mark.parametrize(
    "case", ["usual", "four hours", "failed", "strangers", "1 KiB and 10 TiB", "64 profiles"]
)
def test_every_picture_becomes_a_png(case: str) -> None:
    """As wide as asked, in proportion."""
    text = drawn(case)
    root = root_of(text)
    width, height = size_of(png(text, 180))

    assert width == 180
    assert height == pytest.approx(float(root.get("height") or 0) / 4, abs=1)


def test_the_png_has_its_text_without_a_font_on_the_machine() -> None:
    """Every line of it makes a difference; the same text gives the same bytes."""
    text = svg([a_measurement()])
    bare = re.sub(r"<text.*?</text>", "", text)
    heading = text.replace("needs 24.00 GiB free", "needs 24.01 GiB free")

    assert len(png(text, 300)) > 1.5 * len(png(bare, 300))
    assert png(text, 300) == png(text, 300) != png(heading, 300)


@pytest.mark.parametrize("missing", ["resvg_py", "fontpkg_inter"])
def test_what_draws_it_is_missing(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to type."""
    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(MeasurementError, match=r"without .*Type `pip install 'zenit-hub\[tools\]'`"):
        png(svg([a_measurement()]), 720)


def test_a_font_package_without_its_font_is_an_error_and_no_picture_without_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The library would leave all text out and say nothing."""
    import fontpkg_inter

    monkeypatch.setattr(fontpkg_inter, "__file__", str(tmp_path / "__init__.py"))

    with pytest.raises(MeasurementError, match="without fontpkg-inter"):
        png(svg([a_measurement()]), 720)


@pytest.mark.parametrize("width_px", [0, -1, 4097])
def test_a_width_that_nobody_needs_is_refused(width_px: int) -> None:
    """Up to 4096 pixels."""
    with pytest.raises(MeasurementError, match="1 to 4096 pixels"):
        png(svg([a_measurement()]), width_px)


def test_what_is_no_svg_is_refused() -> None:
    """With the library's reason, as an error of ours."""
    with pytest.raises(MeasurementError, match="cannot be drawn"):
        png("<svg", 720)
