"""Measurements as files of a repo: what is read from this machine, and what is made of a repo's files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.measurements import CARD, GIB
from tests.rigs.publishing import README, REPO, config_of, content_of, measured, text_of
from zenit_hub.errors import MeasurementError, PublicationError
from zenit_hub.maintain.measurement import MAX_BYTES, Verification, WeightFile, to_json
from zenit_hub.maintain.publish.content import Measurements, load
from zenit_hub.maintain.publish.snapshot import Snapshot

COMMIT = "c" * 40


def snapshot(config: dict[str, Any], **changes: Any) -> Snapshot:
    """A repo that holds the measured weights."""
    read = {"config.json": text_of(config), "README.md": README}
    whole = Snapshot(COMMIT, read, frozenset(read), {}, measured("s32k").model.weights)
    return replace(whole, **changes)


def write(folder: Path, profile: str = "m256k", **changes: Any) -> Path:
    file = folder / f"{profile}.json"
    file.write_text(to_json(measured(profile, **changes)))
    return file


# --- reading files


def test_a_measurement_is_its_own_receipt(tmp_path: Path) -> None:
    """Byte for byte, under a name that its content makes."""
    file = write(tmp_path)
    found = load([file], REPO)
    (path,) = found.paths

    assert path.startswith("serving_profiles/m256k/nvidia-geforce-rtx-5090-")
    assert found.receipts[0].files[path] == file.read_bytes()


def test_pictures_beside_it_go_along(tmp_path: Path) -> None:
    """Of the same name, SVG and PNG; nothing else of the folder does."""
    file = write(tmp_path)
    for name in ("m256k.svg", "m256k.png", "m256k.txt", "other.svg"):
        (tmp_path / name).write_bytes(name.encode())
    found = load([file], REPO)
    receipt = found.paths[0].removesuffix(".json")

    assert found.paths == (f"{receipt}.json", f"{receipt}.svg", f"{receipt}.png")
    assert found.receipts[0].files[f"{receipt}.svg"] == b"m256k.svg"


def test_a_profile_that_no_section_can_name_is_refused_with_its_file(tmp_path: Path) -> None:
    """Of many files people must know which; the name itself is shown without its control characters."""
    text = to_json(measured("m256k")).replace('"name": "m256k"', '"name": "../\\u001b[31m"')
    (tmp_path / "odd.json").write_text(text)

    with pytest.raises(PublicationError, match=r"odd\.json: a receipt's folder .*got \.\./\\u001b\[31m"):
        load([tmp_path / "odd.json"], REPO)


def test_what_is_no_measurement_is_named(tmp_path: Path) -> None:
    """The file, and what it should be."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(MeasurementError, match=r"other\.json is no measurement.*zenit-hub measure"):
        load([write(tmp_path), other], REPO)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The system's own words."""
    with pytest.raises(FileNotFoundError):
        load([tmp_path / "absent.json"], REPO)


def test_a_picture_that_is_too_large(tmp_path: Path) -> None:
    """Refused before anything is sent."""
    file = write(tmp_path)
    (tmp_path / "m256k.png").write_bytes(b"\0" * (MAX_BYTES + 1))
    with pytest.raises(PublicationError, match=r"m256k\.png is too large"):
        load([file], REPO)


# --- what a commit says


@pytest.mark.parametrize(
    ("measurements", "title"),
    [
        ([measured("m256k")], f"Measured: m256k on {CARD}"),
        ([measured("m256k"), measured("s32k", 11)], f"Measured: 2 profiles on {CARD}"),
        ([measured("m256k"), measured("m256k", device="L40S")], "Measured: m256k on 2 cards"),
        ([measured("m256k", device="x" * 200)], f"Measured: m256k on {'x' * 53}"),
    ],
)
def test_the_title_is_one_short_line(measurements: list[Any], title: str) -> None:
    """Profile or their number, card or their number, within what a history shows."""
    assert content_of(measurements).message.title == title


# --- rendering


def test_everything_that_is_not_ours_stays() -> None:
    """Config and card around what is written."""
    before = snapshot(config_of("s32k", "m256k"))
    rendered = content_of([measured("m256k")]).render(before)
    config = json.loads(rendered.files["config.json"])
    section = config.pop("lomonosov_serving_profiles")

    assert config == {k: v for k, v in config_of("s32k").items() if k != "lomonosov_serving_profiles"}
    assert section["profiles"]["s32k"] == config_of("s32k")["lomonosov_serving_profiles"]["profiles"]["s32k"]
    head, tail = README.split(b"old\n")
    assert rendered.files["README.md"].startswith(head)
    assert rendered.files["README.md"].endswith(tail)


def test_rendering_what_is_rendered_changes_nothing() -> None:
    """So a second publication finds nothing to publish."""
    content = content_of([measured("m256k"), measured("s32k", 11)])
    once = content.render(snapshot(config_of("s32k", "m256k")))
    again = content.render(snapshot({}, read=once.files, paths=frozenset(once.files)))

    assert again.files == once.files
    assert again.before == again.after == once.after
    assert again.lines == ()


def test_the_keys_that_are_written() -> None:
    """Figure, pin, and the entry of this card: before and after."""
    rendered = content_of([measured("m256k", 24)]).render(snapshot(config_of("s32k", "m256k")))
    changed = {key: value for key, value in rendered.after.items() if rendered.before[key] != value}

    assert [key[:2] for key in changed] == [("m256k", "requires_free_bytes"), ("m256k", "measurements")]
    assert changed["m256k", "requires_free_bytes"] == 24 * GIB
    assert "m256k · requires_free_bytes" in {content_of([]).shown(key) for key in changed}


def test_an_unverified_figure_needs_leave_and_is_remarked() -> None:
    """Refused without ``--allow-unverified``; with it a person is told before it is sent."""
    untried = measured(
        "m256k", verification=Verification("none", None, "not_tried", None, "not_tried", "no root")
    )
    here = snapshot(config_of("s32k", "m256k"))
    with pytest.raises(PublicationError, match="--allow-unverified"):
        content_of([untried]).render(here)

    rendered = content_of([untried], allow_unverified=True).render(here)
    (remark,) = rendered.remarks
    assert "m256k" in remark
    assert "never tried" in remark


def test_other_weights_are_refused_and_unknown_ones_are_not_compared() -> None:
    """Both hashes are shown; offline there is nothing to compare."""
    config = config_of("s32k", "m256k")
    others = (WeightFile("model.safetensors", 9, "d" * 64, None),)
    with pytest.raises(PublicationError, match="the weights have changed since they were measured"):
        content_of([measured("m256k")]).render(snapshot(config, weights=others))

    assert content_of([measured("m256k")]).render(snapshot(config, weights=None)).lines


def test_a_result_that_validate_would_refuse_is_not_sent() -> None:
    """A wider window that needs less than a narrower one: one of both figures is wrong."""
    config = config_of("s32k", "m256k")
    config["lomonosov_serving_profiles"]["profiles"]["s32k"]["requires_free_bytes"] = 25 * GIB
    with pytest.raises(PublicationError, match="would not be valid"):
        content_of([measured("m256k", 24)]).render(snapshot(config))


def test_receipts_of_the_section_are_read_for_the_card() -> None:
    """They say which figures were never verified; a config without a section names none."""
    content = content_of([measured("m256k")])
    rendered = content.render(snapshot(config_of("s32k", "m256k")))

    assert content.needs(rendered.files["config.json"]) == content.paths
    assert content.needs(text_of(config_of("s32k"))) == ()
    assert content.needs(b"{}") == content.needs(b"\xff") == content.needs(b'{"a": 1, "a": 2}') == ()


def test_the_card_gets_every_path_and_every_receipt() -> None:
    """Those of the repo and the new ones."""
    seen: dict[str, Any] = {}

    def block(config: dict[str, Any], repo: str, files: frozenset[str], receipts: dict[str, bytes]) -> str:
        seen.update(repo=repo, files=files, receipts=receipts)
        return "block"

    content = content_of([measured("m256k")], block=block)
    here = snapshot(config_of("s32k", "m256k"))
    content.render(replace(here, paths=here.paths | {"serving_profiles/s32k/old.png"}))

    assert seen["repo"] == REPO
    assert {"serving_profiles/s32k/old.png", *content.paths} <= seen["files"]
    assert set(content.paths) <= seen["receipts"].keys()


def test_the_real_card_is_rendered_by_default() -> None:
    """From the section as it will be."""
    content = Measurements(REPO, content_of([measured("m256k")]).receipts)
    card = content.render(snapshot(config_of("s32k", "m256k"))).files["README.md"].decode()

    assert f"vllm serve {REPO}" in card
    assert CARD in card
    assert "24.00 GiB" in card
