"""Which cards stand beside the figures; scales, units and text that fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.measurements import GIB, MIB, a_measurement
from tests.pictures import KIB, TIB, of_size, on_host, shown, texts
from zenit_hub.maintain.card.cards import COMMON_CARDS
from zenit_hub.maintain.measure.picture import svg
from zenit_hub.maintain.measure.picture.cards import card_rows
from zenit_hub.maintain.measure.picture.scale import (
    Unit,
    byte_label,
    byte_ticks,
    time_labels,
    time_ticks,
    unit_for,
)
from zenit_hub.maintain.measure.picture.sheet import fitted, width_of, wrapped
from zenit_hub.maintain.measurement import MeasuredProfile


def test_common_cards_near_the_figure_stand_beside_it() -> None:
    """Those from half to twice of it, the smallest first, with the card that was measured on."""
    rows = card_rows([a_measurement()])

    assert [row.total_bytes for row in rows] == sorted(row.total_bytes for row in rows)
    assert {row.label: row.said for row in rows} == {
        "L4": "too small",
        "RTX 4090": "too small",
        "RTX 3090": "too small",
        "RTX 5090": "measured",
        "L40S": "fits",
    }


def test_a_card_fits_by_the_decisions_own_arithmetic() -> None:
    """98 % of what is free, and never more than the utilization."""
    card = next(card for card in COMMON_CARDS if card.label == "L40S")
    values = {"gpu_memory_utilization": 1.0, "kv_cache_memory_bytes": GIB}

    def said(needed_bytes: int, utilization: float = 1.0) -> str:
        profile = MeasuredProfile("p", {**values, "gpu_memory_utilization": utilization})
        whole = replace(a_measurement(breakdown=None), requires_free_bytes=needed_bytes, profile=profile)
        return next(row.said for row in card_rows([whole]) if row.label == "L40S")

    most = card.idle_free_bytes * 98 // 100
    assert (said(most), said(most + 1)) == ("fits", "too small")
    assert (said(card.total_bytes // 2, 0.5), said(card.total_bytes // 2 + 1, 0.5)) == ("fits", "too small")


@pytest.mark.parametrize("size_bytes", [KIB, GIB, 100 * GIB, 10 * TIB])
def test_some_card_stands_beside_every_figure(size_bytes: int) -> None:
    """The next larger one, or the largest of all; never more than six."""
    labels = [row.label for row in card_rows([of_size(size_bytes)]) if row.label != "RTX 5090"]

    assert 1 <= len(labels) <= 5


def test_a_card_much_larger_than_the_figure_is_cut() -> None:
    """So that the parts stay readable; its size is written in it."""
    text = svg([of_size(GIB)])

    assert 'class="gap"' in text
    assert "22.03 GiB" in "\n".join(texts(text))


def test_what_a_host_gives_is_not_held_against_cards() -> None:
    """The CPU platform takes other memory for other things."""
    assert [row.label for row in card_rows([on_host()])] == ["this host"]
    assert "fits" not in shown(on_host())


# --- scales and words


@pytest.mark.parametrize(
    ("maximum_s", "labels"),
    [
        (0.5, ["0", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s"]),
        (29, ["0", "5 s", "10 s", "15 s", "20 s", "25 s"]),
        (150, ["0", "30 s", "60 s", "90 s", "120 s", "150 s"]),
        (300, ["0", "1 min", "2 min", "3 min", "4 min", "5 min"]),
        (14400, ["0", "1 h", "2 h", "3 h", "4 h"]),
    ],
)
def test_time_is_marked_in_round_steps(maximum_s: float, labels: list[str]) -> None:
    """At most six beside the origin, in one unit."""
    assert time_labels(time_ticks(maximum_s)) == labels


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (31_943_819_264, "29.75 GiB"),
        (999 * GIB, "999.00 GiB"),
        (10 * TIB, "10.00 TiB"),
        (512 * MIB, "512.00 MiB"),
        (1, "1 bytes"),
        (0, "0 bytes"),
    ],
)
def test_a_picture_has_the_unit_of_its_largest_figure(size_bytes: int, text: str) -> None:
    """GiB as long as people count in it."""
    assert unit_for(size_bytes).text(size_bytes) == text


def test_one_unit_for_all_but_what_would_show_as_nothing() -> None:
    """Figures can be added up; 3 MiB are not 0.00 GiB."""
    unit = Unit("GiB", GIB)

    assert [unit.text(size) for size in (0, 3 * MIB, 6 * MIB, -GIB)] == [
        "0.00 GiB",
        "3.00 MiB",
        "0.01 GiB",
        "−1.00 GiB",
    ]
    assert [byte_label(tick, unit) for tick in byte_ticks(31 * GIB, unit)] == [
        "0",
        "10 GiB",
        "20 GiB",
        "30 GiB",
    ]


def test_text_is_cut_to_its_place() -> None:
    """With a mark; what fits stays; a sentence is broken between words first."""
    assert fitted("short", 200) == "short"
    assert fitted("W" * 300, 100).endswith("W…")
    assert width_of(fitted("W" * 300, 100)) <= 100
    assert fitted("anything", 0) == "…"
    assert wrapped("one two three four", 70, 2) == ["one two", "three…"]
    assert wrapped("one", 70, 2) == ["one"]
    assert list(wrapped("", 70, 2)) in ([""], [])


def test_a_measured_card_keeps_the_name_that_people_use() -> None:
    """Known ones by their label, others without what every name begins with."""
    whole = a_measurement()
    unknown = replace(whole, device=replace(whole.device, name="NVIDIA RTX PRO 6000"))

    assert {row.label for row in card_rows([unknown])} > {"RTX PRO 6000", "RTX 5090"}
