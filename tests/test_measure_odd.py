"""`zenit-hub measure` on what it does not expect: strangers' names and numbers, files that are there, lost streams."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.measurements import a_measurement
from tests.rigs.measuring import MIB, Lab, a_profile, short_folder
from tests.rigs.stub_engine import Stub
from zenit_hub.cli import measure as command
from zenit_hub.cli.output import Sink
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import facts
from zenit_hub.maintain.measure.launches import chosen_profiles
from zenit_hub.maintain.measure.measure import summary
from zenit_hub.maintain.measure.results import Results
from zenit_hub.maintain.measure.subject import Subject, load_subject
from zenit_hub.maintain.measurement import Verification, WeightFile, read_measurement, to_json

SECRET = "hf_thisMustBeNowhere0123456789"

MakeLab = Callable[..., Lab]


@pytest.fixture
def make_lab() -> Iterator[MakeLab]:
    folders: list[Path] = []

    def make(profiles: dict[str, dict[str, Any]] | None = None, **more: Any) -> Lab:
        folders.append(short_folder())
        return Lab(folders[-1], profiles or {"p": a_profile()}, **more)

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def a_subject(folder: Path, profiles: str) -> Subject:
    """A model folder whose section holds that text as its profiles."""
    folder.mkdir(exist_ok=True)
    text = f'{{"architectures": ["A"], "serving_profiles": {{"profiles": {profiles}}}}}'
    (folder / "config.json").write_text(text)
    return load_subject(str(folder), None, None)


# --- what a section says


@pytest.mark.parametrize("name", ["../../evil", "a/b", "", "off", "x" * 300, "a\\u0000b", "\\ud800"])
def test_a_profiles_name_never_becomes_a_path(tmp_path: Path, name: str) -> None:
    """A result is a file of that name; the others can be measured by theirs."""
    subject = a_subject(tmp_path, f'{{"fine": {{"max_model_len": 1}}, "{name}": {{"max_model_len": 1}}}}')
    with pytest.raises(MeasurementError, match="name cannot be used"):
        chosen_profiles(subject, [], True)

    assert chosen_profiles(subject, ["fine"], False) == ("fine",)


def test_a_profile_that_is_no_object_holds_no_values(tmp_path: Path) -> None:
    """It is one that failed, and the others go on."""
    subject = a_subject(tmp_path, '{"p": 5}')

    assert chosen_profiles(subject, [], True) == ("p",)
    assert subject.values("p") == {}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused_at_once(tmp_path: Path, number: str) -> None:
    """Not after half an hour, when the result is written."""
    with pytest.raises(MeasurementError, match="a number that JSON does not have"):
        a_subject(tmp_path, f'{{"p": {{"max_model_len": 1, "key": {number}}}}}')


def test_a_folder_with_a_dash_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the engine's command line."""
    a_subject(tmp_path / "-model", '{"p": {"max_model_len": 1}}')
    monkeypatch.chdir(tmp_path)

    assert load_subject("./-model", None, None).model == "./-model"


def test_a_name_that_is_not_utf_8_is_written_and_read() -> None:
    """Half a surrogate pair, as Python has it, by JSON's escape."""
    weights = (WeightFile("\udcff.safetensors", 1, "0" * 64, "0" * 40),)
    odd = a_measurement(model=replace(a_measurement().model, weights=weights))

    assert read_measurement(to_json(odd).encode(), "m.json") == odd


# --- what stands in the output folder


def test_what_another_run_wrote_meanwhile_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both results stand, and the message says where."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = Results(tmp_path / "results")
    mine, theirs = a_measurement(), a_measurement(tool_version="other")
    name = mine.profile.name
    stamp = results.stamp(name)
    written = results.write(theirs, stamp)
    with pytest.raises(MeasurementError, match="another run wrote it meanwhile"):
        results.write(mine, stamp)

    assert results.earlier(name) == theirs
    refuge = next(tmp_path.glob(f"zenit-hub-*-{written.name}"))
    assert read_measurement(refuge.read_bytes(), "refuge") == mine
    assert results.write(mine, results.stamp(name)) == written


def test_an_output_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """An hour's result has a place."""
    results = Results(tmp_path / "results")
    results.prepare()
    results.folder.rmdir()

    assert results.write(a_measurement(), None).is_file()


@pytest.mark.parametrize("word", ["--resume", "--overwrite"])
def test_what_no_run_wrote_is_not_replaced(make_lab: MakeLab, word: str) -> None:
    """By --resume no file that is something else, by --overwrite nothing that is no file."""
    lab = make_lab()
    stranger = lab.output / "p.json"
    lab.output.mkdir()
    if word == "--resume":
        stranger.write_text("my notes")
    else:
        stranger.symlink_to("/dev/null")
    ran = lab.run(word)

    assert ran.returncode == 1
    assert "no result of a run" in ran.stderr
    assert stranger.read_bytes() in (b"my notes", b"")


# --- what is said, and to whom


def test_a_figure_that_a_launch_disproved_is_none() -> None:
    """What the boots took was not enough."""
    failed = Verification("ballast", 2**30, "failed", 2**29, "failed", "out of memory")

    assert "no figure that holds" in summary(a_measurement(verification=failed))


@pytest.mark.engine
def test_a_disproved_figure_is_no_success(make_lab: MakeLab) -> None:
    """The card's contexts grow behind the figure: nothing to publish, exit status 1."""
    lab = make_lab(stub=Stub(pace_s=0.02))
    with lab.start("--boots", "1", "--json") as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if json.loads(line).get("kind") == "verification":
                lab.rig.put({"devices": [{**lab.card(0), "context_bytes": 600 * MIB}]})

    assert lab.measurement("p").disproved
    assert tool.returncode == 1


def test_a_stream_that_nobody_reads_does_not_end_a_run() -> None:
    """What goes on is told on stderr as long as there is one."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as err:
        sink = Sink(err=err)
        sink.note("read")
        os.close(reader)
        for _ in range(3):
            sink.note("not read")


def test_a_hangup_that_is_ignored_stays_so() -> None:
    """`nohup zenit-hub measure` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with command._term_is_an_interrupt():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_driver_that_does_not_answer_costs_its_version_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is written without it."""
    hangs = SimpleNamespace(nvmlInit=lambda: time.sleep(5), NVMLError=RuntimeError)
    monkeypatch.setattr(facts, "nvml_module", lambda: hangs)
    monkeypatch.setattr(facts, "DRIVER_PATIENCE_S", 0.05)

    assert facts.device_facts("cuda", ()).driver is None


def test_a_window_that_no_request_can_fill_is_not_tried(make_lab: MakeLab) -> None:
    """Its prompt would take more memory than the engine."""
    lab = make_lab({"p": a_profile(2**31 - 1)})
    config = json.loads((lab.model / "config.json").read_text())
    (lab.model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 2**31 - 1}))
    ran = lab.run("--dry-run")

    assert "cannot be filled by one request" in ran.stdout


@pytest.mark.engine
def test_a_token_reaches_the_engine_and_no_file(make_lab: MakeLab) -> None:
    """The weights may be as private as the config; and the hint can be typed as it stands."""
    lab = make_lab(stub=Stub(pace_s=0.2))
    lab.output = lab.folder / "with blank"
    engines = 0
    with lab.start("--no-verify", "--boots", "1", "--token", SECRET) as tool:
        assert tool.stdout is not None
        said = []
        for line in tool.stdout:
            said.append(line)
            if "loading" in line:
                engines = _engines_with(lab, f"HF_TOKEN={SECRET}")

    assert tool.returncode == 0
    assert engines > 0
    assert SECRET not in "".join(said)
    assert not [path for path in lab.folder.rglob("*.*") if SECRET.encode() in path.read_bytes()]
    assert f"publish '{lab.output}/p.json' " in said[-1]


def _engines_with(lab: Lab, setting: str) -> int:
    found = 0
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            settings = environ.read_bytes().split(b"\0")
        except OSError:
            continue
        found += {f"TMPDIR={lab.temporary}".encode(), setting.encode()} <= set(settings)
    return found
