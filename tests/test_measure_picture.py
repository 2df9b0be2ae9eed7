"""The picture of measurements: what stands in it, and for whom."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.measurements import FIGURE_BYTES, GIB, a_boot, a_measurement
from tests.pictures import (
    ODD,
    SVG,
    contaminated,
    failed,
    long_boot,
    on_host,
    root_of,
    shown,
    texts,
    told,
    with_boots,
)
from zenit_hub.maintain.measure.picture import svg
from zenit_hub.maintain.measure.picture.curve import shown_boots
from zenit_hub.maintain.measure.picture.sheet import COLOURS, WIDTH
from zenit_hub.maintain.measurement import Breakdown, MeasuredProfile, Verification


def test_the_figure_and_where_it_comes_from_head_the_picture() -> None:
    """Profile, figure, repo, window, card, version; then how far to trust it; the day at the foot."""
    heading, origin, verdict, *_, foot = texts(svg([a_measurement()]))

    assert heading == "m256k needs 24.00 GiB free"
    assert origin == "org/model · 262,144 tokens · RTX 5090 · vLLM 0.32.0"
    assert verdict == "Verified: answers with exactly this much free, not with 1 % less."
    assert foot.startswith("Measured 2026-12-01 with zenit-hub 0.1.0")


def test_several_devices_are_said_with_the_figure() -> None:
    """It holds for each of them."""
    whole = a_measurement()
    two = replace(whole, device=replace(whole.device, count=2))

    assert "m256k needs 24.00 GiB free on each of 2" in shown(two)
    assert "2 × RTX 5090" in shown(two)


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (None, "Not verified: nobody tried a launch with no more free than this."),
        (
            Verification("none", None, "not_tried", None, "not_tried", "no cgroup"),
            "Not verified: nobody tried",
        ),
        (
            Verification("ballast", 1, "failed", None, "not_tried"),
            "Verification failed: with exactly this much",
        ),
        (Verification("ballast", 1, "answered", 1, "answered"), "1 % less was enough, too."),
        (Verification("ballast", 1, "answered", None, "not_tried"), "answers with exactly this much free."),
    ],
)
def test_how_far_a_figure_was_tried_is_said(check: Verification | None, sentence: str) -> None:
    """Only what was tried is claimed."""
    assert sentence in shown(a_measurement(verification=check))


def test_every_part_has_its_name_and_amount() -> None:
    """Directly at its place in the bar, not by its colour alone; together they are the total."""
    names = ("weights", "KV cache", "activations", "CUDA graphs", "processes", "unaccounted")
    named = [
        pair for pair in pairwise(texts(svg([a_measurement()]))) if pair[0] in names and "GiB" in pair[1]
    ]
    amounts = [amount for _, amount in named]

    assert tuple(name for name, _ in named) == names
    assert amounts == ["15.00 GiB", "6.00 GiB", "1.00 GiB", "0.20 GiB", "0.68 GiB", "1.12 GiB"]
    assert sum(float(amount.split()[0]) for amount in amounts) == 24


def test_what_the_engine_does_not_tell_is_left_out_and_not_nought() -> None:
    """On the CPU platform there are no graphs to tell of."""
    parts = Breakdown(15 * GIB, None, None, None, None, 9 * GIB, 24 * GIB)
    found = shown(on_host(breakdown=parts))

    assert "CUDA graphs" not in found
    assert "unaccounted\n9.00 GiB" in found


def test_a_negative_rest_is_shown_as_it_is() -> None:
    """The parts were not there at one time: striped over their end, with its sign."""
    text = svg(ODD["negative rest"])

    assert "unaccounted\n−6.00 GiB" in "\n".join(texts(text))
    assert 'stripes)" stroke-width' in text


def test_a_figure_without_a_breakdown_is_one_plain_bar() -> None:
    """Nothing is made up."""
    assert "not told apart\n24.00 GiB" in shown(a_measurement(breakdown=None))


def test_each_kind_of_start_has_its_line_and_its_outcome() -> None:
    """The drop of those that make the figure, the answer of those that try it."""
    verify = replace(a_boot("verification"), free_bytes=FIGURE_BYTES)
    below = replace(a_boot("below"), outcome="failed")
    found = shown(with_boots(a_boot(), a_boot("warm", 23 * GIB), verify, below))

    assert re.search(r"cold\n.*24\.00 GiB\n.*warm\n", found, re.DOTALL)
    assert re.search(r"warm\n.*23\.00 GiB\n.*verify\n.*answered\n.*1 % less\n.*failed", found, re.DOTALL)


def test_of_many_starts_those_that_count_are_drawn_and_the_rest_is_counted() -> None:
    """Of each kind the largest that answered; of those that never did, the last."""
    disturbed = replace(a_boot("cold", GIB), outcome="contaminated")
    whole = with_boots(disturbed, a_boot("cold", 5 * GIB), a_boot("warm", GIB), a_boot("warm", 2 * GIB))

    assert [boot.drop_bytes for boot in shown_boots(whole)] == [5 * GIB, 2 * GIB]
    assert "2 more starts not drawn" in shown(whole)
    assert "not drawn" not in shown(a_measurement())


def test_no_peak_is_lost_where_samples_share_a_column() -> None:
    """Eight thousand samples become a line of at most four points a pixel that still reaches the top."""
    text = svg([with_boots(long_boot(), requires_free_bytes=None, verdict="failed")])
    curve = max(re.findall(r'<path d="M([^"]*)" class="line strong"', text), key=len)
    heights = [float(number) for number in curve.split()[1::2]]
    bottom = max(heights)

    assert len(heights) < 4 * WIDTH
    assert sum(bottom - height > 0.5 * (bottom - min(heights)) for height in heights) <= 2


def test_what_lies_beyond_the_samples_is_not_filled() -> None:
    """One sample is a dot, not a level."""
    text = svg(ODD["one sample"])

    assert "fill-opacity" not in text
    assert "<circle" in text


def test_a_failed_measurement_says_so_and_why() -> None:
    """The engine's own words and what to do; no figure and no card."""
    found = shown(failed())

    assert "m256k: no figure" in found
    assert "Failed: the window does not fit the KV cache." in found
    assert "12.11 GiB KV cache is needed, 8.38 GiB is available" in found
    assert "Free memory." in found
    assert "needs" not in found.replace("is needed", "")
    assert "L40S" not in found


def test_a_contaminated_measurement_is_no_figure_however_much_was_seen() -> None:
    """Its parts are faint, and no card is held against it."""
    text = svg([contaminated()])
    found = "\n".join(texts(text))

    assert "m256k: no figure" in found
    assert "Contaminated: other processes moved 6.00 GiB during every try." in found
    assert "What it took; no figure to go by" in found
    assert 'opacity="0.5"' in text
    assert "fits" not in found


# --- several


def test_several_profiles_have_a_bar_each_in_their_order() -> None:
    """Name, window, figure, verdict, and the parts as a sum; the failed one with its reason."""
    wide = a_measurement("wide", verification=None)
    found = shown(a_measurement("narrow"), wide, failed(profile=MeasuredProfile("broken", {})))

    assert found.index("narrow") < found.index("wide") < found.index("broken")
    assert found.count("15.00 + 6.00 + 1.00 + 0.20 + 0.68 + 1.12 GiB") == 2
    assert "not verified" in found
    assert "broken\nno figure\nfailed\nthe window does not fit the KV cache" in found
    assert "L40S\n44.42 GiB\n2 of 2 fit" in found
    assert "L4\n22.03 GiB\n0 of 2 fit" in found


def test_unlike_devices_are_named_with_their_profiles() -> None:
    """Like ones once, in the head."""
    whole = a_measurement()
    other = replace(whole, device=replace(whole.device, name="NVIDIA H200", count=2))

    assert "262,144 tokens · 2 × H200" in shown(whole, other).replace("m256k", "")
    assert shown(whole, whole).splitlines()[1] == "org/model · RTX 5090 · vLLM 0.32.0"


# --- for everybody


def test_people_who_do_not_see_it_get_it_in_words() -> None:
    """Role, title and description: figure, verdict, parts, starts and cards."""
    text = svg([a_measurement()])
    root = root_of(text)
    named = (root.get("aria-labelledby") or "").split()
    ids = {element.get("id") for element in root.iter() if element.get("id")}

    assert root.get("role") == "img"
    assert len(named) == 2
    assert set(named) <= ids
    for part in (
        "m256k needs 24.00 GiB free",
        "Verified: answers",
        "KV cache 6.00 GiB",
        "unaccounted 1.12 GiB",
        "Start cold: answered, took 24.00 GiB, 60 s.",
        "L40S 44.42 GiB: fits",
    ):
        assert part in told(text)


def test_ids_differ_between_pictures_on_one_page() -> None:
    """Inlined twice, one does not take the stripes and titles of the other."""
    first, second = (root_of(svg([a_measurement(name)])) for name in ("a", "b"))
    ids = [{element.get("id") for element in root.iter()} - {None} for root in (first, second)]

    assert not ids[0] & ids[1]


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_text_can_be_read_in_light_and_in_dark() -> None:
    """WCAG AA, 4.5 to 1: every colour of text on its page and in its box, and the words in the bars."""
    light, dark = re.split(r"@media \(prefers-color-scheme:dark\)", svg([a_measurement()]))
    for style in (light, dark):
        fills = dict(re.findall(r"\.(\w+)\{fill:(#\w{6})", style))
        for text in ("ink", "soft", "good", "bad"):
            assert contrast(fills[text], fills["page"]) >= 4.5, text
        assert contrast(fills["ink"], fills["box"]) >= 4.5
    for colour in COLOURS.values():
        assert contrast("#111418", colour) >= 4.5


def test_the_page_has_its_own_ground() -> None:
    """A page that is dark while the browser is light, or the other way round, does not swallow the text."""
    root = root_of(svg([a_measurement()]))
    page = next(element for element in root.iter(f"{SVG}rect") if element.get("class") == "page")

    assert float(page.get("width") or 0) == WIDTH - 1
