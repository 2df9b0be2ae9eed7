"""The boots of one profile: their order, what counts, what is repeated, and what a verification is worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rigs.measure_fakes import GIB, MIB, FakeBoot, FakeEngine, FakeLab
from zenit_hub.maintain.measure import boot as boot_module
from zenit_hub.maintain.measure.boot import Task
from zenit_hub.maintain.measure.boots import Found, Plan, measure_boots, one_percent_less, planned_boots
from zenit_hub.maintain.measure.engine_report import EngineReport
from zenit_hub.maintain.measure.launch import Order
from zenit_hub.maintain.measure.watch import Nobody
from zenit_hub.maintain.measure.workload import Shape
from zenit_hub.maintain.measurement import Failure

PIN = 512 * MIB
DISTURBED = Failure("disturbed", "82.94 GiB were free at first, 90.17 GiB now: somebody freed memory")


class Told(Nobody):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def said(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture(autouse=True)
def engine_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine tells what the lab's boot says."""

    def report(engine: FakeEngine, folder: Path) -> EngineReport:
        return EngineReport(GIB, PIN, 64 * MIB, None, engine.lab.now.needed_kv_bytes)

    monkeypatch.setattr(boot_module, "read_report", report)


def measured(
    tmp_path: Path, lab: FakeLab, pin_bytes: int | None = PIN, *, boots: int = 2, verify: bool = True
) -> tuple[Found, Told]:
    folders = iter(range(100))

    def fresh() -> Path:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return folder

    task = Task(Order(("vllm", "serve"), "model", "p", tmp_path), Shape(4096, 2048, 4), 60)
    told = Told()
    return measure_boots(Plan(task, boots, verify, pin_bytes, fresh), lab.bench, told), told


def kinds(found: Found) -> list[tuple[str, str]]:
    return [(boot.kind, boot.outcome) for boot in found.records]


def test_the_figure_is_the_largest_drop_up_to_the_next_mib(tmp_path: Path) -> None:
    """Cold and warm are both kept; the larger is published; then it is tried with exactly that much free."""
    lab = FakeLab([FakeBoot(2 * GIB + 1), FakeBoot(2 * GIB - 30 * MIB), FakeBoot(), FakeBoot()])
    found, _ = measured(tmp_path, lab)

    assert found.requires_free_bytes == 2 * GIB + MIB
    assert found.spread_bytes == 30 * MIB + 1
    assert kinds(found) == [
        ("cold", "answered"),
        ("warm", "answered"),
        ("verification", "answered"),
        ("below", "answered"),
    ]
    assert lab.held_bytes == [2 * GIB + MIB, one_percent_less(2 * GIB + MIB)]


def test_one_percent_less_that_does_not_boot_is_recorded_and_no_failure_of_the_profile(
    tmp_path: Path,
) -> None:
    """It says how tight the figure is."""
    lab = FakeLab([FakeBoot(2 * GIB, needs_bytes=2 * GIB)] * 4)
    found, _ = measured(tmp_path, lab)

    assert found.verdict == "measured"
    assert found.verification is not None
    assert (found.verification.outcome, found.verification.below_outcome) == ("answered", "failed")
    assert found.verification.below_free_bytes == one_percent_less(2 * GIB)


def test_a_figure_that_is_not_enough_is_raised_once(tmp_path: Path) -> None:
    """The fourth boot tries 1 % more; what failed stands as the outcome below."""
    lab = FakeLab([FakeBoot(2 * GIB, needs_bytes=2 * GIB + 4 * MIB)] * 4)
    found, told = measured(tmp_path, lab)
    raised = found.requires_free_bytes

    assert raised == -(-(2 * GIB * 101 // 100) // MIB) * MIB
    assert found.verification is not None
    assert (found.verification.outcome, found.verification.free_bytes) == ("answered", raised)
    assert (found.verification.below_outcome, found.verification.below_free_bytes) == ("failed", 2 * GIB)
    assert any("not enough" in sentence for sentence in told.sentences)


def test_a_figure_that_is_never_enough_is_not_verified(tmp_path: Path) -> None:
    """It stays a record that publishing refuses."""
    found, _ = measured(tmp_path, FakeLab([FakeBoot(2 * GIB, needs_bytes=3 * GIB)] * 4))

    assert found.requires_free_bytes == 2 * GIB
    assert found.verification is not None
    assert found.verification.outcome == "failed"
    assert "out of memory" in found.verification.reason


def test_where_the_device_cannot_be_made_small_the_reason_stands_there(tmp_path: Path) -> None:
    """Not verified, and not silently."""
    found, told = measured(tmp_path, FakeLab([FakeBoot()] * 2, confinable=False))

    assert found.verification is not None
    assert (found.verification.method, found.verification.outcome) == ("none", "not_tried")
    assert "make the device small" in found.verification.reason
    assert len(told.sentences) == 1


@pytest.mark.parametrize(
    ("smallest_bytes", "outcomes"), [(3 * GIB, "not_tried not_tried"), (2 * GIB, "answered not_tried")]
)
def test_a_device_that_cannot_be_made_that_small_stops_nothing(
    tmp_path: Path, smallest_bytes: int, outcomes: str
) -> None:
    """The figure stays, with what is not known about it; one that is verified stays verified."""
    found, told = measured(tmp_path, FakeLab([FakeBoot()] * 4, smallest_bytes=smallest_bytes))

    assert found.requires_free_bytes == 2 * GIB
    assert found.verification is not None
    assert f"{found.verification.outcome} {found.verification.below_outcome}" == outcomes
    assert "so little" in told.sentences[0]


def test_a_pin_that_the_profile_lacks_is_found_and_typed_from_then_on(tmp_path: Path) -> None:
    """The engine says what one request of the window needs; every later boot runs with it."""
    lab = FakeLab([FakeBoot(needed_kv_bytes=300 * MIB)] * 4)
    found, _ = measured(tmp_path, lab, None)
    pins = [order.arguments.count("--kv-cache-memory-bytes") for order in lab.orders]

    assert found.pin_bytes == 300 * MIB
    assert pins == [0, 1, 1, 1]
    assert lab.orders[1].arguments[:2] == ("--kv-cache-memory-bytes", str(300 * MIB))


def test_an_engine_that_does_not_tell_its_need_gives_no_figure(tmp_path: Path) -> None:
    """Without a pin the figure would be the card's size."""
    found, _ = measured(tmp_path, FakeLab([FakeBoot(needed_kv_bytes=None)]), None)

    assert found.verdict == "failed"
    assert found.requires_free_bytes is None
    assert found.failure is not None
    assert "kv_cache_memory_bytes" in found.failure.advice


def test_a_contaminated_boot_is_repeated_and_does_not_count(tmp_path: Path) -> None:
    """The quiet try is the figure."""
    loud = FakeBoot(5 * GIB, foreign_bytes=64 * MIB)
    found, told = measured(tmp_path, FakeLab([loud, FakeBoot(), FakeBoot(), FakeBoot(), FakeBoot()]))

    assert found.requires_free_bytes == 2 * GIB
    assert kinds(found)[:2] == [("cold", "contaminated"), ("cold", "answered")]
    assert found.contamination.contaminated_boots == 1
    assert "another process (pid 777) moved 0.06 GiB" in told.sentences[0]


def test_contamination_that_goes_on_ends_without_a_figure(tmp_path: Path) -> None:
    """Repeated at most twice."""
    lab = FakeLab([FakeBoot(5 * GIB, foreign_bytes=64 * MIB)] * 3)
    found, _ = measured(tmp_path, lab)

    assert (found.verdict, found.requires_free_bytes) == ("contaminated", None)
    assert len(lab.orders) == 3
    assert found.failure is not None
    assert found.failure.kind == "contaminated"


def test_a_neighbour_that_frees_memory_is_a_retry_and_not_out_of_memory(tmp_path: Path) -> None:
    """C1-05 (vllm 56830): boot 1 raises vLLM's profiling assertion, boot 2 runs; nothing of boot 1 is a figure."""
    found, told = measured(tmp_path, FakeLab([FakeBoot(9 * GIB, failure=DISTURBED), *[FakeBoot()] * 4]))

    assert found.verdict == "measured"
    assert found.requires_free_bytes == 2 * GIB
    assert kinds(found)[0] == ("cold", "disturbed")
    assert "82.94" in told.sentences[0]
    assert "90.17" in told.sentences[0]


def test_a_neighbour_that_frees_memory_each_time_makes_it_contaminated(tmp_path: Path) -> None:
    """C1-05, disturbed again, twice."""
    found, _ = measured(tmp_path, FakeLab([FakeBoot(failure=DISTURBED)] * 3))

    assert found.verdict == "contaminated"
    assert kinds(found) == [("cold", "disturbed")] * 3


def test_a_failed_boot_carries_the_engines_reason_and_ends_the_profile(tmp_path: Path) -> None:
    """C1-09 (vllm 49064): no figure, no further boot."""
    why = Failure(
        "too_few_state_blocks",
        "requested 1024 sequences, 969 state blocks available",
        "set max_num_seqs ≤ 969",
        {"requested_sequences": 1024, "state_blocks": 969},
    )
    lab = FakeLab([FakeBoot(failure=why)])
    found, _ = measured(tmp_path, lab)

    assert (found.verdict, found.requires_free_bytes, found.failure) == ("failed", None, why)
    assert len(lab.orders) == lab.ended == 1


def test_at_most_four_boots_where_nothing_disturbs(tmp_path: Path) -> None:
    """Whatever the verification finds."""
    for needs_bytes in (0, 2 * GIB, 2 * GIB + 4 * MIB, 3 * GIB):
        folder = tmp_path / str(needs_bytes)
        folder.mkdir()
        lab = FakeLab([FakeBoot(2 * GIB, needs_bytes=needs_bytes)] * 4)
        measured(folder, lab)
        assert len(lab.orders) == planned_boots(2, verify=True) == 4


def test_the_parts_add_up_to_the_drop(tmp_path: Path) -> None:
    """What is not explained is called so."""
    found, _ = measured(tmp_path, FakeLab([FakeBoot()] * 4), verify=False)
    parts = found.breakdown

    assert parts is not None
    assert parts.total_bytes == 2 * GIB
    assert parts.unaccounted_bytes == 2 * GIB - GIB - PIN - 64 * MIB - 100 * MIB
