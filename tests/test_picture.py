"""The README's picture: in step with the program, and readable."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tools import picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def drawn() -> str:
    return picture.picture()


def texts(svg: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(f"{SVG}text"))


def rows(svg: str) -> list[str]:
    """What stands on each line, its runs put together."""
    found: dict[float, list[str]] = {}
    for text in texts(svg):
        found.setdefault(float(text.attrib["y"]), []).append(text.text or "")
    return [" ".join(parts) for _, parts in sorted(found.items())]


def test_it_has_not_drifted(drawn: str) -> None:
    """If it has: ``python -m tools.picture``."""
    assert picture.FILE.read_text("utf-8") == drawn


def test_the_check_is_a_command_for_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 1 and what to type, where the file shows something else."""
    monkeypatch.setattr(picture, "FILE", picture.ROOT / "README.md")
    monkeypatch.setattr(sys, "argv", ["picture", "--check"])

    assert picture.main() == 1


def test_it_shows_the_command_its_answer_and_the_log(drawn: str) -> None:
    """The chosen row, why, and the four lines of the plug-in."""
    shown = "\n".join(rows(drawn))

    assert "$ zenit-hub plan zenit-altay --machine card.json" in shown
    assert "→ million 1010000 29.75 GiB fits" in shown
    assert "the widest window that fits the free memory." in shown
    assert shown.count("ZENIT_MODEL_OWNED_SERVING_PROFILES_V1") == 4


def test_no_line_leaves_the_paper(drawn: str) -> None:
    """Every run is as wide as its letters, wherever it begins."""
    width = float(ET.fromstring(drawn).attrib["width"])
    for text in texts(drawn)[1:]:
        length = float(text.attrib["textLength"])
        assert length == pytest.approx(len(text.text or "") * picture.ADVANCE)
        assert float(text.attrib["x"]) + length <= width - picture.MARGIN + 0.1


def luminance(colour: str) -> float:
    """Relative, as WCAG has it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("half", ["light", "dark"])
def test_every_style_stands_out_from_its_paper(drawn: str, half: str) -> None:
    """By 4.5 to 1 in light and in dark."""
    style = ET.fromstring(drawn).find(f"{SVG}style")
    assert style is not None
    light, _, dark = (style.text or "").partition("@media (prefers-color-scheme:dark)")
    fills = dict(re.findall(r"\.(\w+)\{fill:(#[0-9a-f]{6})", light if half == "light" else dark))
    paper = luminance(fills.pop("paper"))
    for name, colour in fills.items():
        bright, dim = sorted((luminance(colour), paper), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, name
    assert {text.attrib["class"] for text in texts(drawn)} <= fills.keys()


def test_it_is_the_same_from_any_folder(tmp_path: Path, drawn: str) -> None:
    """Whatever the shell says about colours, widths and serving."""
    script = "from tools import picture; import sys; sys.stdout.write(picture.picture())"
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(picture.ROOT), "NO_COLOR": "1", "COLUMNS": "40"}
        | {"ZENIT_SERVING_PROFILE": "off", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert told.stdout == drawn
