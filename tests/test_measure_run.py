"""`zenit-hub measure` from command line to files, with real processes, the NVML binding and a stub engine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cuda import Neighbour
from tests.rigs.measuring import GIB, MIB, Lab, a_profile, short_folder
from tests.rigs.stub_engine import Stub
from zenit_hub.maintain.measurement import read_measurement
from zenit_hub.maintain.validate import validate

pytestmark = pytest.mark.engine

MakeLab = Callable[..., Lab]


@pytest.fixture
def make_lab() -> Iterator[MakeLab]:
    folders: list[Path] = []

    def make(profiles: dict[str, dict[str, Any]] | None = None, stub: Stub | None = None, **more: Any) -> Lab:
        folders.append(short_folder())
        return Lab(folders[-1], profiles or {"p": a_profile()}, stub or Stub(), **more)

    yield make
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def test_every_profile_gets_a_figure_that_a_launch_proved(make_lab: MakeLab) -> None:
    """Three profiles, one without a pin: figures, parts that add up, pins, pictures; and nothing is left."""
    lab = make_lab(
        {
            "wide": a_profile(8192, kv_cache_memory_bytes=512 * MIB),
            "narrow": a_profile(2048),
            "unpinned": a_profile(4096, kv_cache_memory_bytes=None),
        },
        Stub(cold_bytes=40 * MIB),
    )
    ran = lab.run("--all")

    assert ran.returncode == 0, ran.stderr
    assert lab.files() == ["narrow.json", "unpinned.json", "wide.json"]
    for name, pool_bytes in (("wide", 512 * MIB), ("narrow", 256 * MIB), ("unpinned", 128 * MIB)):
        found = lab.measurement(name)
        assert (found.verdict, found.kv_cache_memory_bytes) == ("measured", pool_bytes)
        assert found.verified
        assert found.requires_free_bytes is not None
        # Context, weights, pool, what profiling takes with a cold cache, graphs, and a request.
        expected = (300 + 256 + 64 + 40 + 16 + 32) * MIB + pool_bytes
        assert abs(found.requires_free_bytes - expected) <= 4 * MIB
        assert found.verification is not None
        assert found.verification.below_outcome in ("answered", "failed")
        assert [boot.kind for boot in found.boots][:3] == ["cold", "warm", "verification"]
        assert validate((lab.output / f"{name}.json").read_bytes()).findings == ()
        assert (lab.output / f"{name}.svg").read_text().startswith("<svg")
        assert (lab.output / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert ran.stdout.count("verified") == 3
    assert lab.leftovers() == []


def test_a_second_run_agrees_and_resume_measures_nothing_again(make_lab: MakeLab) -> None:
    """Within 64 MiB; and a result that is there is neither replaced nor measured twice unasked."""
    lab = make_lab()
    assert lab.run("--no-verify").returncode == 0
    first = lab.measurement("p")
    refused = lab.run("--no-verify")
    assert refused.returncode == 1
    assert "--resume" in refused.stderr
    assert lab.measurement("p") == first

    assert lab.run("--no-verify", "--overwrite").returncode == 0
    second = lab.measurement("p")
    assert second.created >= first.created
    assert abs((first.requires_free_bytes or 0) - (second.requires_free_bytes or 0)) <= 64 * MIB

    resumed = lab.run("--no-verify", "--resume")
    assert resumed.returncode == 0
    assert lab.measurement("p") == second
    assert "cold boot" not in resumed.stderr


def test_resume_measures_again_what_it_cannot_take_over(make_lab: MakeLab) -> None:
    """Other values, an unverified figure; what is no result is refused (test_measure_odd)."""
    lab = make_lab()
    assert lab.run("--no-verify", "--boots", "1").returncode == 0

    assert "cold boot" in lab.run("--boots", "1", "--resume").stderr
    assert lab.measurement("p").verified
    lab.write_config({"p": a_profile(max_num_seqs=8)})
    assert "cold boot" in lab.run("--no-verify", "--boots", "1", "--resume").stderr
    assert lab.measurement("p").profile.values["max_num_seqs"] == 8


def test_a_failed_profile_is_an_outcome_and_the_others_go_on(make_lab: MakeLab) -> None:
    """C1-09: the hybrid without max_num_seqs that fits says which number would; exit 1, the rest measured."""
    lab = make_lab(
        {"many": a_profile(max_num_seqs=1024), "few": a_profile()},
        Stub(profiles={"many": {"fail": "too_few_state_blocks"}}),
    )
    ran = lab.run("--all", "--no-verify")
    failed = lab.measurement("many")

    assert ran.returncode == 1
    assert (failed.verdict, failed.requires_free_bytes) == ("failed", None)
    assert failed.failure is not None
    assert failed.failure.kind == "too_few_state_blocks"
    assert "set max_num_seqs ≤" in failed.failure.advice
    assert lab.measurement("few").verdict == "measured"
    assert "set max_num_seqs" in ran.stdout
    assert lab.leftovers() == []


@pytest.mark.parametrize(
    ("stub", "kind"),
    [
        (Stub(fail="die", fail_phase="kv_cache"), "died"),
        (Stub(fail="kill", fail_phase="kv_cache"), "out_of_memory"),
        (Stub(fail="oom"), "out_of_memory"),
        (Stub(fail="kv_cache_too_small"), "kv_cache_too_small"),
        (Stub(fail="no_kv_cache_memory"), "no_kv_cache_memory"),
        (Stub(fail="die", fail_phase="workload"), None),
        (Stub(fail="short"), "no_answer"),
    ],
    ids=lambda value: f"{value.fail}-{value.fail_phase}" if isinstance(value, Stub) else None,
)
def test_the_engines_end_is_said_with_its_reason(make_lab: MakeLab, stub: Stub, kind: str | None) -> None:
    """And no figure is made of it."""
    lab = make_lab(stub=stub)
    ran = lab.run("--no-verify")
    failed = lab.measurement("p")

    assert ran.returncode == 1
    assert (failed.verdict, failed.requires_free_bytes) == ("failed", None)
    assert failed.failure is not None
    assert kind is None or failed.failure.kind == kind
    assert failed.failure.message
    assert "Traceback" not in ran.stderr
    assert lab.leftovers() == []


@pytest.mark.parametrize("phase", ["loading", "workload"])
def test_an_engine_that_hangs_is_ended_at_the_deadline(make_lab: MakeLab, phase: str) -> None:
    """Also one that does not hear TERM, whose workers do not either."""
    lab = make_lab(stub=Stub(fail="hang", fail_phase=phase, ignore_term=True, orphans=True))
    ran = lab.run("--no-verify", "--timeout", "3")

    assert ran.returncode == 1
    failure = lab.measurement("p").failure
    assert failure is not None
    assert failure.kind in ("hang", "no_answer")
    assert lab.leftovers() == []


def test_a_neighbour_that_moves_memory_all_the_time_is_never_published(make_lab: MakeLab) -> None:
    """64 MiB more at each boot: detected, repeated twice, refused."""
    lab = make_lab(stub=Stub(pace_s=0.25))
    with Neighbour(lab.rig) as neighbour, lab.start("--no-verify", "--json") as tool:
        assert tool.stdout is not None
        events = []
        for line in tool.stdout:
            events.append(json.loads(line))
            if events[-1].get("phase") == "loading":
                neighbour.take(64 * MIB)
    found = lab.measurement("p")

    assert tool.returncode == 1
    assert (found.verdict, found.requires_free_bytes) == ("contaminated", None)
    assert [boot.outcome for boot in found.boots] == ["contaminated"] * 3
    assert all((boot.foreign_bytes or 0) >= 64 * MIB for boot in found.boots)
    assert found.contamination.contaminated_boots == 3


def test_a_neighbour_that_moves_memory_once_costs_one_boot(make_lab: MakeLab) -> None:
    """The figure is of the quiet boots."""
    lab = make_lab(stub=Stub(pace_s=0.25))
    quiet = (300 + 256 + 64 + 16 + 32 + 256) * MIB
    with Neighbour(lab.rig) as neighbour, lab.start("--no-verify", "--json") as tool:
        assert tool.stdout is not None
        taken = False
        for line in tool.stdout:
            if json.loads(line).get("phase") == "loading" and not taken:
                neighbour.take(512 * MIB)
                taken = True
    found = lab.measurement("p")

    assert tool.returncode == 0
    assert [boot.outcome for boot in found.boots] == ["contaminated", "answered", "answered"]
    assert abs((found.requires_free_bytes or 0) - quiet) <= 4 * MIB


def test_a_neighbour_that_frees_memory_is_a_retry(make_lab: MakeLab, tmp_path: Path) -> None:
    """C1-05: boot 1 ends in vLLM's assertion, boot 2 runs; nothing of boot 1 is a figure."""
    lab = make_lab(stub=Stub(fail="disturbed", fail_boots=1, counter=str(tmp_path)))
    ran = lab.run("--no-verify")
    found = lab.measurement("p")

    assert ran.returncode == 0, ran.stderr
    assert [(boot.kind, boot.outcome) for boot in found.boots][:2] == [
        ("cold", "disturbed"),
        ("cold", "answered"),
    ]
    assert "freed" in ran.stderr


def test_a_section_that_changes_meanwhile_gives_no_figure(make_lab: MakeLab) -> None:
    """What was measured stands nowhere any more."""
    lab = make_lab(stub=Stub(pace_s=0.2))
    with lab.start("--no-verify", "--json") as tool:
        assert tool.stdout is not None
        for line in tool.stdout:
            if json.loads(line).get("phase") == "loading":
                lab.write_config({"p": a_profile(max_num_seqs=2)})
    failure = lab.measurement("p").failure

    assert tool.returncode == 1
    assert failure is not None
    assert failure.kind == "section_changed"


def test_a_full_disk_loses_nothing(make_lab: MakeLab) -> None:
    """The result goes where there is room, the message says where; --resume finishes."""
    lab = make_lab({"a": a_profile(), "b": a_profile(2048)})
    ran = lab.run("--all", "--no-verify", ZENIT_RIG_FULL_AFTER="1")

    assert ran.returncode == 1
    assert "No space left on device" in ran.stderr
    assert "--resume" in ran.stderr
    assert lab.files() == ["a.json"]
    refuge = next(lab.temporary.glob("zenit-hub-*-b.json"))
    assert read_measurement(refuge.read_bytes(), "b").verdict == "measured"
    assert str(refuge) in ran.stderr
    refuge.unlink()
    assert lab.run("--all", "--no-verify", "--resume").returncode == 0
    assert lab.files() == ["a.json", "b.json"]
    assert lab.leftovers() == []


def test_two_cards_are_measured_by_the_fuller_one(make_lab: MakeLab) -> None:
    """A layout of two ranks: figures are per device."""
    lab = make_lab({"two": a_profile(tensor_parallel_size=2)}, cards=2)
    ran = lab.run("--no-verify")
    found = lab.measurement("two")

    assert ran.returncode == 0, ran.stderr
    assert (found.device.count, len(found.device.uuids)) == (2, 2)
    assert (found.profile.tensor_parallel_size, found.profile.pipeline_parallel_size) == (2, 1)
    assert abs((found.requires_free_bytes or 0) - (300 + 256 + 64 + 16 + 32 + 256) * MIB) <= 4 * MIB


def test_what_cannot_be_measured_is_said_before_anything_starts(make_lab: MakeLab) -> None:
    """A profile that leaves to the engine what depends on the card."""
    lab = make_lab({"loose": a_profile(max_num_seqs=None)})
    ran = lab.run()
    failure = lab.measurement("loose").failure

    assert ran.returncode == 1
    assert failure is not None
    assert (failure.kind, failure.advice) == ("cannot_start", "name them in the profile")
    assert "max_num_seqs" in failure.message
    assert lab.measurement("loose").boots == ()


def test_a_dry_run_starts_nothing(make_lab: MakeLab) -> None:
    """What would run, how long, how much memory it takes."""
    lab = make_lab({"a": a_profile(), "loose": a_profile(max_num_seqs=None)})
    ran = lab.run("--all", "--dry-run")
    told = json.loads(lab.run("--all", "--dry-run", "--json").stdout)

    assert ran.returncode == 0
    assert "a: 4 boots" in ran.stdout
    assert "loose: cannot be measured" in ran.stdout
    assert not lab.output.exists()
    assert told["profiles"][0]["boots"] == 4
    assert told["profiles"][0]["free_bytes"] == 15 * GIB
    assert told["profiles"][0]["at_least_bytes"] == 256 * MIB + len(b"weights")


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ((), 1, "which profile?"),
        (("--profile", "x"), 1, "declares no such profile"),
        (("--profile", "a", "--all"), 2, "at once"),
        (("--all", "--boots", "0"), 2, "--boots"),
        (("--all", "--timeout", "0"), 2, "--timeout"),
        (("--all", "--timeout", "nan"), 2, "--timeout"),
        (("--all", "--resume", "--overwrite"), 2, "at once"),
        (("--all", "--revision", "main"), 1, "a folder has no revision"),
        (("--all", "--output", "/proc/nowhere"), 1, "results cannot be written"),
    ],
)
def test_a_wrong_command_is_one_line(
    make_lab: MakeLab, words: tuple[str, ...], status: int, said: str
) -> None:
    """With what to type."""
    ran = make_lab({"a": a_profile(), "b": a_profile()}).run(*words)

    assert ran.returncode == status
    assert said in ran.stderr
    assert ran.stderr.startswith("Error: ")
    assert len(ran.stderr.splitlines()) == 1


def test_the_events_are_json_and_whole(make_lab: MakeLab) -> None:
    """One object a line, nothing else on stdout."""
    ran = make_lab(stub=replace(Stub(), pace_s=0.01)).run("--no-verify", "--json")
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    names = [event["event"] for event in events]

    assert names[0] == "run"
    assert names[-1] == "profile_end"
    assert names.count("boot") == names.count("boot_end") == 2
    assert events[-1]["verdict"] == "measured"
    assert {event["phase"] for event in events if event["event"] == "phase"} >= {"loading", "workload"}
