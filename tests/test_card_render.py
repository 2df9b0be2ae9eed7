"""The block of the model card: what it says, that strangers' strings change none of it, and that it is in date."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard, constants
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.card_pages import blocks, parts, tables
from tests.measurements import a_measurement
from tests.rigs.hub import LoopbackHub
from tests.stage import GIB, PAIR, config, needs, unrated
from tests.test_card_escape import NASTY
from zenit_hub.errors import CardError
from zenit_hub.maintain.card import render
from zenit_hub.maintain.card.render import gib_down, gib_up, receipt_paths, render_block
from zenit_hub.maintain.measurement import Verification, to_json
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END, block_of, with_block
from zenit_hub.text import printable

pytest_plugins = ("tests.rigs.hub.fixtures",)

FOLDER = Path(__file__).parents[1] / "model_card"
EXAMPLE = json.loads((FOLDER / "config.example.json").read_text("utf-8"))
RTX_5090, RTX_4090 = "NVIDIA GeForce RTX 5090", "NVIDIA GeForce RTX 4090"
RECEIPT = "wide/nvidia-geforce-rtx-5090-0123456789ab.json"
PIN = {"kv_cache_memory_bytes": GIB}


def entry(device: str, gib: float, **more: object) -> dict[str, object]:
    return {"device": device, "requires_free_bytes": int(gib * GIB), "vllm": "0.33.0", **more}


MEASURED = config(
    {
        "wide": needs(
            29,
            200_000,
            **PIN,
            description="One request over the whole window",
            measurements=[
                entry(RTX_5090, 28.5, receipt=RECEIPT),
                entry("NVIDIA L40S", 29, receipt="wide/nvidia-l40s-0123456789ab.json", vllm="0.32.0"),
            ],
        ),
        "pair": needs(16, 150_000, **PIN, **PAIR, measurements=[entry(RTX_4090, 16, **PAIR)]),
        "small": unrated(10_000),
    },
    default_profile="wide",
    repo="org/model",
)


def unverified(name: str = "wide") -> bytes:
    measurement = replace(
        a_measurement(name), verification=Verification("none", None, "not_tried", None, "not_tried", "no")
    )
    return to_json(measurement).encode()


def row(table: list[list[str]], first: str) -> list[str]:
    (found,) = [cells for cells in table if cells[0].startswith(first)]
    return found


# --- what it says


def test_a_reader_finds_his_card_and_what_it_gets() -> None:
    """The first table of the example: the million on 32 GB and more, an unmeasured window on 24 GB."""
    by_card, by_memory, *_ = tables(render_block(EXAMPLE, "org/model"))

    assert row(by_card, "RTX 5090") == ["RTX 5090, 32 GB", "1,010,000 million", "yes: 1.0 GiB to spare"]
    assert row(by_card, "RTX 3090 / RTX 4090") == [
        "RTX 3090 / RTX 4090, 24 GB",
        "262,144 262k",
        "not measured, may not start",
    ]
    assert len(by_card) == 1 + 8
    assert by_memory[1:] == [
        ["30.4 GiB or more", "1,010,000 million", "yes"],
        ["less", "262,144 262k", "not measured, may not start"],
    ]


def test_the_commands_are_there_to_be_copied() -> None:
    serve, other = blocks(render_block(EXAMPLE, "org/model"), "fence")

    assert "pip install zenit-hub\nvllm serve org/model\n" in serve
    for line in (
        "vllm serve org/model --max-model-len 262144",
        "ZENIT_SERVING_PROFILE=million vllm serve org/model",
        "zenit-hub plan org/model",
        "ZENIT_SERVING_PROFILE=off vllm serve org/model",
    ):
        assert line in other.splitlines()


def test_measured_stated_and_not_measured_are_told_apart() -> None:
    """The example has one figure, of which no measurement is published; nothing is made up."""
    block = render_block(EXAMPLE, None)
    measured = tables(block)[2]

    assert row(measured, "million") == [
        "million (default)",
        "1,010,000",
        "29.75 GiB",
        "the publisher's figure, without a receipt",
    ]
    assert row(measured, "393k") == ["393k", "393,216", "–", "not measured"]
    assert "goes by the publisher's own figure" in block
    assert "never by memory: `393k`." in block


def test_each_figure_has_its_card_its_vllm_and_its_receipt() -> None:
    """On its own card a yes says that it was measured there."""
    block = render_block(MEASURED, "org/model")
    by_card, _, measured, _ = tables(block)

    assert row(measured, "wide")[2:] == [
        "29.00 GiB",
        f"{RTX_5090}, vLLM 0.33.0: 28.50 GiB (receipt)\n NVIDIA L40S, vLLM 0.32.0: 29.00 GiB (receipt)",
    ]
    assert row(measured, "pair") == [
        "pair, 2 GPUs",
        "150,000",
        "16.00 GiB",
        f"{RTX_4090} × 2, vLLM 0.33.0: 16.00 GiB",
    ]
    assert row(by_card, "RTX 5090")[2].startswith("yes, measured: ")
    assert row(by_card, "H100")[2].startswith("yes: ")
    assert "goes by what was measured on another GPU" in block
    assert [link.attrs["href"] for link in parts(block, "link_open")] == [
        f"serving_profiles/{RECEIPT}",
        "serving_profiles/wide/nvidia-l40s-0123456789ab.json",
    ]


def test_several_cards_have_rows_of_their_own() -> None:
    """Where one is not enough, and only then."""
    by_card, by_memory, *_ = tables(render_block(MEASURED, "org/model"))

    assert row(by_card, "2 × RTX 4090") == [
        "2 × RTX 4090, 24 GB each",
        "150,000 pair",
        "yes, measured: 7.1 GiB to spare on each",
    ]
    assert not [cells for cells in by_card if cells[0].startswith("2 × H100")]
    assert row(by_memory, "2 GPUs") == ["2 GPUs: 16.4 GiB to 29.6 GiB", "150,000 pair", "yes"]
    assert by_memory[0][0] == "Free memory, on each GPU"


def test_a_gpu_that_is_too_small_for_a_share_is_told() -> None:
    """The million takes 95 % at most: 30.4 GiB free on a card of 31 GiB are not enough."""
    block = render_block(EXAMPLE, None)

    assert (
        "*Large enough* for `million` is a GPU of 31.32 GiB, because it may take 95 % of one at most."
        in block
    )


def test_what_does_not_fit_says_what_it_needs() -> None:
    by_card, by_memory, *_ = tables(render_block(config({"big": needs(40, 9000, **PIN)}), None))

    assert row(by_card, "L4,")[1:] == ["9,000 big", "no: the GPU is too small"]
    assert row(by_card, "L40S,")[2] == "yes: 3.6 GiB to spare"
    assert by_memory[-1] == ["less", "9,000 big", "no, vLLM tries it all the same"]


def test_without_any_default_vllm_is_on_its_own() -> None:
    by_card, by_memory, *_ = tables(render_block(config({"a": unrated(5)}), None))

    assert by_card[1][1:] == ["none", "vLLM's own values"]
    assert by_memory[1:] == [["any", "none", "vLLM's own values"]]


def test_a_figure_of_another_repo_says_so() -> None:
    """A derived repo inherits the section."""
    assert "were measured on `org/model`, not on this repo" in render_block(MEASURED, "other/finetune")
    assert "were measured on" not in render_block(MEASURED, "org/model")
    assert "vllm serve org/model\n" in render_block(MEASURED, None)


def test_a_figure_that_nobody_verified_is_marked() -> None:
    """Its receipt tells; a verified one, or one that is not there, is not marked."""
    path = f"serving_profiles/{RECEIPT}"
    receipts = {path: unverified(), "serving_profiles/wide/nvidia-l40s-0123456789ab.json": b"{}"}

    block = render_block(MEASURED, None, receipts, receipts)
    assert row(tables(block)[2], "wide")[3].splitlines()[0].endswith("28.50 GiB (receipt), not verified")
    assert block.count("not verified") == 1
    verified = {path: to_json(a_measurement("wide")).encode()}
    assert "not verified" not in render_block(MEASURED, None, verified, verified)


def test_a_picture_is_shown_where_one_stands_beside_the_receipt() -> None:
    """Of two forms the one that every page shows."""
    svg, png = (f"serving_profiles/{RECEIPT.removesuffix('.json')}{suffix}" for suffix in (".svg", ".png"))

    assert parts(render_block(MEASURED, None), "image") == []
    for files, shown in (({svg}, svg), ({png, svg}, png)):
        (image,) = parts(render_block(MEASURED, None, files), "image")
        assert image.attrs["src"] == shown
        assert image.content.startswith(RTX_5090)


def test_the_receipts_that_are_wanted_are_named() -> None:
    assert receipt_paths(MEASURED) == (
        f"serving_profiles/{RECEIPT}",
        "serving_profiles/wide/nvidia-l40s-0123456789ab.json",
    )


@pytest.mark.parametrize(
    ("size_bytes", "up", "down"),
    [
        (32595733943, "30.4 GiB", "30.3 GiB"),
        (3 * GIB, "3.0 GiB", "3.0 GiB"),
        (3 * GIB + 1, "3.1 GiB", "3.0 GiB"),
        (0, "0.0 GiB", "0.0 GiB"),
    ],
)
def test_a_floor_is_rounded_up_and_what_one_has_down(size_bytes: int, up: str, down: str) -> None:
    """30.36 GiB as "30.3" would send people to buy too little."""
    assert (gib_up(size_bytes), gib_down(size_bytes)) == (up, down)
    assert gib_up(32595733943, steps=100) == "30.36 GiB"
    assert gib_up(3 * GIB + 1, steps=100) == "3.01 GiB"


# --- what it cannot be made to say


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(NASTY) | st.text("|`*_<>[]()!#&\\~:@${}% -x", min_size=1, max_size=40))
def test_no_string_of_the_section_changes_the_page(hostile: str) -> None:
    """The same tables, links and blocks as with plain words; the words are read as they were written."""
    value = printable(hostile)[:128]
    plain, odd = (render_block(_with_strings(word), None) for word in ("word", value))

    assert [[len(cells) for cells in table] for table in tables(odd)] == [
        [len(cells) for cells in table] for table in tables(plain)
    ]
    for kind in ("link_open", "image", "html_inline"):
        assert [p.attrs for p in parts(odd, kind)] == [p.attrs for p in parts(plain, kind)]
    assert blocks(odd, "html_block") == blocks(plain, "html_block")
    assert blocks(odd, "fence") == blocks(plain, "fence")
    assert MARK_BEGIN not in odd
    assert MARK_END not in odd
    assert block_of(with_block(f"{MARK_BEGIN}\n{MARK_END}\n".encode(), odd)) == odd


def _with_strings(word: str) -> dict[str, Any]:
    measured = entry(word, 20, receipt=RECEIPT, vllm=word[:64])
    return config({"wide": needs(20, 9000, **PIN, description=word, measurements=[measured])})


@pytest.mark.parametrize(
    "repo", ["", "a b/c", "org/model;rm -rf", "org/model\n", "$(x)/y", "a/b/c", "org/../x"]
)
def test_what_is_no_hub_id_does_not_reach_the_commands(repo: str) -> None:
    with pytest.raises(CardError, match="no Hub repo"):
        render_block(EXAMPLE, repo)


@pytest.mark.parametrize(
    "receipt", ["../x.json", "/etc/passwd", "a/../../x.json", "https://x.example/a.json"]
)
def test_a_receipt_outside_the_folder_is_no_link(receipt: str) -> None:
    """The schema refuses the profile already; there is nothing to show then."""
    measured = config({"a": needs(20, 9000, measurements=[entry("X", 20, receipt=receipt)])})

    with pytest.raises(CardError):
        render_block(measured, None)


# --- its form


def test_the_same_arguments_give_the_same_bytes() -> None:
    """No date, no order of a set, no version of this machine."""
    files = [f"serving_profiles/{RECEIPT.removesuffix('.json')}.png", "README.md"]

    assert render_block(MEASURED, "org/model", files) == render_block(MEASURED, "org/model", files[::-1])


@pytest.mark.parametrize("of", [EXAMPLE, MEASURED], ids=["example", "measured"])
def test_the_lines_are_clean(of: dict[str, Any]) -> None:
    """No trailing space, no two empty lines, no line feed at the end."""
    block = render_block(of, None)

    assert [line for line in block.split("\n") if line != line.rstrip()] == []
    assert "\n\n\n" not in block
    assert block == block.strip("\n")


def test_the_card_is_one_that_the_hub_accepts(hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """``ModelCard`` reads its header as before, and the Hub's check of the YAML passes."""
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    header = b"---\nlibrary_name: vllm\nversion: 1.10  # as it is\n---\n# A model\n"
    card = ModelCard(with_block(header, render_block(MEASURED, None), init_card=True).decode())

    card.validate()
    assert card.data.library_name == "vllm"
    assert block_of(card.content.encode()) == render_block(MEASURED, None)
    assert ("POST", "/api/validate-yaml") in [(asked.method, asked.path) for asked in hub.requests]


def test_without_jinja2_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    render._template.cache_clear()
    try:
        with pytest.raises(CardError, match="jinja2") as raised:
            render_block(EXAMPLE, None)
    finally:
        render._template.cache_clear()
    assert "pip install 'zenit-hub[tools]'" in str(raised.value)


# --- the rendered example


def test_the_example_in_model_card_is_in_date() -> None:
    """Else: zenit-hub card model_card/config.example.json --write."""
    readme = (FOLDER / "README.md").read_bytes()

    assert block_of(readme) == render_block(EXAMPLE, None)


def test_the_example_is_a_model_card_with_a_header() -> None:
    card = ModelCard((FOLDER / "README.md").read_text("utf-8"))

    assert card.data.to_dict()["tags"] == ["serving-profiles"]
