"""Whatever is measured: the picture is sound, small, legible and the same every time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measurements import a_boot, a_measurement
from tests.pictures import DRAWN, ODD, SVG, drawn, failed, lines, root_of, with_boots
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.picture import svg
from zenit_hub.maintain.measure.picture.sheet import WIDTH
from zenit_hub.maintain.measurement import Breakdown, Failure, MeasuredProfile, Measurement, to_json

odd = pytest.mark.parametrize("case", ODD)


@odd
def test_it_is_a_small_svg_of_nothing_but_shapes_and_text(case: str) -> None:
    """Well-formed; no scripts, no links, nothing from elsewhere, not a megabyte."""
    text = drawn(case)
    tags = {element.tag.removeprefix(SVG) for element in root_of(text).iter()}
    outside = text.replace('xmlns="http://www.w3.org/2000/svg"', "")

    assert tags <= DRAWN
    assert not re.search(r"https?:|href=|@import|@font-face|data:", outside)
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert len(text) < 200_000


@odd
def test_everything_stands_on_the_paper(case: str) -> None:
    """No coordinate outside, none that is no number; every text begins and ends within the page."""
    root = root_of(drawn(case))
    height = float(root.get("height") or 0)
    for element in root.iter():
        for key in ("x", "x1", "x2", "cx", "width"):
            assert 0 <= float(element.get(key, "0")) <= WIDTH, ElementTree.tostring(element)
        for key in ("y", "y1", "y2", "cy", "height"):
            assert 0 <= float(element.get(key, "0")) <= height, ElementTree.tostring(element)
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.get("d", ""))]
        assert all(0 <= x <= WIDTH for x in numbers[::2])
        assert all(0 <= y <= height for y in numbers[1::2])
    for left, right, _ in (place for places in lines(root).values() for place in places):
        assert left > 0
        assert right < WIDTH


@odd
def test_no_text_lies_on_another(case: str) -> None:
    """What stands on one line keeps apart in the widest common font."""
    for places in lines(root_of(drawn(case))).values():
        ordered = sorted(places)
        for (_, end, first), (start, _, second) in pairwise(ordered):
            assert end <= start, f"{first!r} runs into {second!r}"


@odd
def test_text_is_large_enough_for_a_phone(case: str) -> None:
    """At half of its width the smallest still has 8 pixels."""
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', drawn(case))]

    assert min(sizes) >= 16


@odd
def test_the_same_measurements_give_the_same_bytes(case: str) -> None:
    """Nothing comes from a clock, a hash or an address."""
    assert drawn(case) == svg(tuple(replace(each) for each in ODD[case]))


def test_another_process_draws_the_same(tmp_path: Path) -> None:
    """Whatever its hash seed."""
    (tmp_path / "m.json").write_text(to_json(a_measurement()), encoding="utf-8")
    code = (
        "import sys; from pathlib import Path; from zenit_hub.maintain.measurement import read_measurement as r; "
        "from zenit_hub.maintain.measure.picture import svg; "
        "sys.stdout.buffer.write(svg([r(Path(sys.argv[1]).read_bytes(), 'm')]).encode())"
    )
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.json")],
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        check=True,
    )

    assert child.stdout.decode("utf-8") == svg([a_measurement()])


@settings(max_examples=40, deadline=None)
@given(name=st.text(max_size=90), other=st.text(max_size=200))
def test_no_string_breaks_it(name: str, other: str) -> None:
    """Any text as profile, repo, device, version and reason."""
    whole = failed(failure=Failure("died", other, name))
    odd_one = replace(
        whole,
        model=replace(whole.model, repo=other),
        profile=MeasuredProfile(name, {}),
        device=replace(whole.device, name=other),
        versions=replace(whole.versions, vllm=name),
    )

    assert root_of(svg([odd_one])).tag == f"{SVG}svg"
    assert root_of(svg([odd_one, a_measurement()])).tag == f"{SVG}svg"


@pytest.mark.parametrize(
    "whole",
    [
        a_measurement(requires_free_bytes=10**400),
        with_boots(replace(a_boot(), ended_after_s=float("inf"))),
        with_boots(replace(a_boot(), samples=((0.0, 1), (1.0, 10**400)))),
        a_measurement(breakdown=Breakdown(10**400, None, None, None, None, 0, 10**400)),
    ],
)
def test_numbers_that_no_machine_has_are_refused(whole: Measurement) -> None:
    """JSON can hold 10^400 and infinity; the paper cannot."""
    with pytest.raises(MeasurementError, match="the measurement of m256k holds a number"):
        svg([whole])


def test_nothing_is_no_picture() -> None:
    """An empty run has none."""
    with pytest.raises(MeasurementError, match="no measurement to draw"):
        svg([])
