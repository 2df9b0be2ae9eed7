"""`zenit-hub card`: what is printed, checked and written, and the exit status."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.measurements import a_measurement
from tests.stage import config, needs, unrated
from zenit_hub.cli.main import main
from zenit_hub.errors import CardError
from zenit_hub.maintain.card import source
from zenit_hub.maintain.card.render import render_block
from zenit_hub.maintain.measurement import to_json
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END, with_block

RECEIPT = "wide/nvidia-geforce-rtx-5090-0123456789ab.json"
MEASURED = {
    "device": "NVIDIA GeForce RTX 5090",
    "requires_free_bytes": 20 * 2**30,
    "vllm": "0.33.0",
    "receipt": RECEIPT,
}
CONFIG = config(
    {"wide": needs(20, 9000, kv_cache_memory_bytes=2**30, measurements=[MEASURED]), "small": unrated(4000)},
    repo="org/model",
)
README = f"---\nlicense: mit\n---\n# Model\n\n{MARK_BEGIN}\n{MARK_END}\n\nThe end.\n".encode()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with a card that has markers and nothing between them."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "README.md").write_bytes(README)
    return folder


def test_the_block_is_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing else on stdout, and nothing is written."""
    assert main(["card", str(model)]) == 0

    out, err = capsys.readouterr()
    assert out == f"{render_block(CONFIG, None)}\n"
    assert "which is not there: the card's link leads nowhere" in err
    assert (model / "README.md").read_bytes() == README


def test_a_config_file_does_as_well_and_the_repo_is_the_typed_one(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["card", str(model / "config.json"), "--repo", "other/model"]) == 0
    assert "vllm serve other/model\n" in capsys.readouterr().out


def test_written_and_then_in_date(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the block changes, and a second time nothing is written."""
    file = model / "README.md"
    assert main(["card", str(model), "--write"]) == 0
    assert file.read_bytes() == with_block(README, render_block(CONFIG, None))
    assert capsys.readouterr().out == f"{file}: the card is written\n"

    before = file.stat()
    assert main(["card", str(model), "--check"]) == 0
    assert main(["card", str(model), "--write"]) == 0
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert capsys.readouterr().out == 2 * f"{file}: the card is up to date\n"


def test_out_of_date_is_exit_1_with_the_first_line_and_what_to_type(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line is the file's own."""
    main(["card", str(model), "--write"])
    capsys.readouterr()
    file = model / "README.md"
    was = file.read_text("utf-8")
    file.write_text(was.replace("| less |", "| fewer |"), "utf-8")
    number = was.split("\n").index(next(line for line in was.split("\n") if line.startswith("| less |"))) + 1

    assert main(["card", str(model), "--check"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    error = err.splitlines()[-1]
    assert error.startswith(
        f"Error: {file}:{number}: the card is out of date: the line is “| fewer | 4,000 `small`"
    )
    assert "“| less | 4,000 `small`" in error
    assert error.endswith(f"Type `zenit-hub card {model} --write`.")


def test_a_card_that_was_never_made_is_out_of_date(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["card", str(model), "--check"]) == 1
    assert f"README.md:7: the card is out of date: the line is “{MARK_END}”" in capsys.readouterr().err


def test_windows_line_ends_are_kept_and_are_in_date(model: Path) -> None:
    file = model / "README.md"
    file.write_bytes(README.replace(b"\n", b"\r\n"))

    assert main(["card", str(model), "--write"]) == 0
    assert b"\n" not in file.read_bytes().replace(b"\r\n", b"")
    assert main(["card", str(model), "--check"]) == 0


@pytest.mark.parametrize("words", [["--check"], ["--write"]])
def test_without_markers_it_is_refused(
    model: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = model / "README.md"
    file.write_bytes(b"# Model\n")

    assert main(["card", str(model), *words]) == 1
    assert "--init-card" in capsys.readouterr().err
    assert file.read_bytes() == b"# Model\n"


@pytest.mark.parametrize("readme", [b"# Model\n", None], ids=["without markers", "no file"])
def test_the_markers_are_added_when_asked_for(model: Path, readme: bytes | None) -> None:
    file = model / "README.md"
    file.unlink()
    if readme is not None:
        file.write_bytes(readme)

    assert main(["card", str(model), "--write", "--init-card"]) == 0
    assert file.read_bytes() == with_block(readme, render_block(CONFIG, None), init_card=True)
    assert stat.S_IMODE(file.stat().st_mode) & 0o444
    assert [path.name for path in model.iterdir() if path.name.startswith(".")] == []


def test_a_card_elsewhere_is_named_and_stays_a_link(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mode stays, too."""
    real, link = tmp_path / "real.md", tmp_path / "CARD.md"
    real.write_bytes(README)
    real.chmod(0o640)
    link.symlink_to(real)

    assert main(["card", str(model), "--readme", str(link), "--write"]) == 0
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert b"Which window" in real.read_bytes()
    real.write_bytes(README)
    assert main(["card", str(model), "--readme", str(link), "--check"]) == 1
    assert f"--readme {link} --write" in capsys.readouterr().err


def test_what_cannot_be_written_leaves_nothing_behind(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk says no in the last step: the old card, no part of a new one, one line."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert main(["card", str(model), "--write"]) == 1
    assert sorted(path.name for path in model.iterdir()) == ["README.md", "config.json"]
    assert (model / "README.md").read_bytes() == README
    assert capsys.readouterr().err.splitlines()[-1] == "Error: No space left on device"


def test_receipts_and_pictures_beside_the_config_are_seen(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = model / "serving_profiles" / RECEIPT
    receipt.parent.mkdir(parents=True)
    receipt.write_text(to_json(a_measurement("wide")), "utf-8")
    receipt.with_suffix(".svg").write_text("<svg/>")

    assert main(["card", str(model)]) == 0
    out, err = capsys.readouterr()
    assert f"](serving_profiles/{RECEIPT.removesuffix('.json')}.svg)" in out
    assert err == ""


def test_an_invalid_profile_is_left_out_and_said(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = config({"good": unrated(10), "bad": {"max_model_len": 0}})
    (model / "config.json").write_text(json.dumps(broken))

    assert main(["card", str(model)]) == 0
    out, err = capsys.readouterr()
    assert "bad" not in out
    assert err.startswith("Warning: profile bad is not in the card, it is invalid: ")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{}", "the config carries no section"),
        (b"[]", "it holds a JSON list"),
        (b"{", "it is not JSON"),
        (None, "there is no config.json"),
    ],
)
def test_without_a_section_there_is_one_line(
    model: Path, content: bytes | None, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "config.json").unlink()
    if content is not None:
        (model / "config.json").write_bytes(content)

    assert main(["card", str(model)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert why in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [["--init-card"], ["--repo", "a b"], ["--check", "--write"], ["--repo", "https://x/y"]]
)
def test_odd_usage_is_exit_2(model: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["card", str(model), *words])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 2
    assert (model / "README.md").read_bytes() == README


def test_a_readme_without_end_is_not_read(tmp_path: Path, model: Path) -> None:
    huge = tmp_path / "huge.md"
    with huge.open("wb") as file:
        file.truncate(17 * 2**20)

    with pytest.raises(CardError, match="too large"):
        source.find_source(str(model), None, huge)
    assert main(["card", str(model), "--readme", "/dev/zero", "--check"]) == 1


def test_the_hub_clients_cache_is_not_written_into(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A snapshot's README.md is a link to a blob that is named after its content."""
    snapshot = tmp_path / "models--org--model" / "snapshots" / ("a" * 40)
    snapshot.parent.mkdir(parents=True)
    model.rename(snapshot)

    assert main(["card", str(snapshot), "--write"]) == 2
    assert "is the Hub client's cache" in capsys.readouterr().err
    assert (snapshot / "README.md").read_bytes() == README
    assert main(["card", str(snapshot), "--check"]) == 1


def test_a_folder_without_a_hub_id_keeps_the_one_in_its_card(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`publish` wrote it; a checkout in CI does not know it, and the section need not say it."""
    section = {**CONFIG["serving_profiles"]}
    del section["repo"]
    (model / "config.json").write_text(json.dumps({**CONFIG, "serving_profiles": section}))
    file = model / "README.md"

    assert main(["card", str(model), "--write", "--repo", "ann/other"]) == 0
    assert main(["card", str(model), "--check"]) == 0
    assert "vllm serve ann/other\n" in file.read_text()
    file.write_bytes(README)
    capsys.readouterr()
    assert main(["card", str(model)]) == 0
    assert "vllm serve ORG/MODEL\n" in capsys.readouterr().out
