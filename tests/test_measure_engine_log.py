"""What the engine writes: phases found as they are announced, and the text of a log of any length."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from zenit_hub.maintain.measure import engine_log
from zenit_hub.maintain.measure.engine_log import EngineLog

LOADING = (
    "(Worker pid=7) INFO 12-01 15:02:41 [cpu_model_runner.py:68] Starting to load model zenit/dense...\n"
)
LOADING_V2 = "(Worker pid=7) INFO 12-01 15:02:41 [model_runner.py:399] Loading model from scratch...\n"
WARM_UP = (
    "(Worker pid=7) INFO 12-01 15:02:42 [cpu_model_runner.py:95] Warming up model for the compilation...\n"
)
COMPILED = "(Worker pid=7) INFO 12-01 15:02:42 [backends.py:1105] Using cache directory: /c for vLLM's torch.compile\n"
DYNAMO = "(Worker pid=7) INFO 12-01 15:02:42 [backends.py:1167] Dynamo bytecode transform time: 4.10 s\n"
CACHED = (
    "(Worker pid=7) INFO 12-01 15:02:42 [decorators.py:320] Directly load AOT compilation from path /c/x\n"
)
KV_PINNED_CPU = (
    "(Worker pid=7) INFO 12-01 15:02:42 [cpu_worker.py:260] Explicitly set (0.25/23.59) GiB for KV cache "
    "on node 0.\n"
)
KV_PINNED = (
    "(Worker pid=7) INFO 12-01 15:02:42 [gpu_worker.py:665] Initial free memory 31.0 GiB, reserved 8.0 GiB memory "
    "for KV Cache as specified by kv_cache_memory_bytes config and skipped memory profiling.\n"
)
KV_FOUND = "(Worker pid=7) INFO 12-01 15:02:42 [gpu_worker.py:760] Available KV cache memory: 9.97 GiB\n"
KV_SIZE = (
    "(EngineCore pid=5) INFO 12-01 15:02:42 [kv_cache_utils.py:2327] GPU KV cache size: 131,072 tokens\n"
)
GRAPHS = "\rCapturing CUDA graphs (PIECEWISE, FULL):   0%|          | 0/67 [00:00<?, ?it/s]"
CAPTURED = (
    "(Worker pid=7) INFO 12-01 15:02:59 [runner.py:1163] Graph capturing finished in 9 secs, took 0.3 GiB\n"
)


@pytest.fixture
def log(tmp_path: Path) -> EngineLog:
    return EngineLog(tmp_path / "engine.log")


def write(log: EngineLog, text: str) -> None:
    with log.path.open("a", newline="") as file:
        file.write(text)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        *((line, "loading") for line in (LOADING, LOADING_V2)),
        *((line, "compiling") for line in (WARM_UP, COMPILED, DYNAMO, CACHED)),
        *((line, "kv_cache") for line in (KV_PINNED_CPU, KV_PINNED, KV_FOUND, KV_SIZE)),
    ],
)
def test_a_line_of_vllm_announces_its_phase(log: EngineLog, line: str, phase: str) -> None:
    """Each wording of the versions and of the platforms."""
    write(log, line)

    assert log.new_phases() == [phase]


def test_a_phase_begins_once_and_when_it_is_announced(log: EngineLog) -> None:
    """The CPU compiles behind the KV cache, a card before it."""
    assert log.new_phases() == []
    write(log, LOADING + LOADING)
    assert log.new_phases() == ["loading"]
    write(log, KV_PINNED_CPU + KV_SIZE + WARM_UP + DYNAMO)
    assert log.new_phases() == ["kv_cache", "compiling"]
    write(log, KV_SIZE + LOADING)
    assert log.new_phases() == []


def test_a_line_that_is_written_in_parts_is_found_when_it_has_ended(log: EngineLog) -> None:
    """And only then."""
    write(log, LOADING[:70])
    assert log.new_phases() == []
    write(log, LOADING[70:])
    assert log.new_phases() == ["loading"]


@pytest.mark.parametrize("graphs", [GRAPHS, CAPTURED])
def test_graphs_are_captured_behind_the_kv_cache(log: EngineLog, graphs: str) -> None:
    """Those that are tried while memory is profiled are not the phase."""
    write(log, graphs + graphs + "\n")
    assert log.new_phases() == []
    write(log, KV_SIZE + graphs + graphs)
    assert log.new_phases() == ["kv_cache", "graphs"]


def test_a_model_by_the_name_of_a_phase_announces_nothing(log: EngineLog) -> None:
    """Nor does any other line."""
    write(log, "INFO model='org/kv-cache-size-compiling', Profiling CUDA graph memory: PIECEWISE=51\n" * 3)

    assert log.new_phases() == []


def test_every_byte_of_a_long_log_is_looked_at_once(log: EngineLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunk by chunk, also where one cuts a line, and a line without an end is not kept whole."""
    monkeypatch.setattr(engine_log, "CHUNK_BYTES", 64)
    monkeypatch.setattr(engine_log, "CHUNKS_AT_ONCE", 4)
    write(log, "x" * 100_000)
    write(log, "\n" + LOADING + "noise\n" * 5 + KV_SIZE)
    found = []
    for _ in range(100_000 // (64 * 4) + 10):
        found += log.new_phases()

    assert found == ["loading", "kv_cache"]


def test_looking_at_a_large_log_again_costs_nothing(log: EngineLog) -> None:
    """32 MiB are searched once, in steps, faster than an engine writes them."""
    write(
        log, "a line of no interest, as there are so many of them and more\n" * (32 * 2**20 // 61) + LOADING
    )
    began_s = time.process_time()
    found = [log.new_phases() for _ in range(3)]
    searched_s = time.process_time() - began_s
    log.new_phases()

    assert found == [[], [], ["loading"]]
    assert searched_s < 2
    assert time.process_time() - began_s - searched_s < 0.05


def test_of_a_long_log_the_beginning_and_the_end_are_kept(
    log: EngineLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What went wrong first, what was said last, and how much is not shown."""
    monkeypatch.setattr(engine_log, "HEAD_BYTES", 20)
    monkeypatch.setattr(engine_log, "TAIL_BYTES", 10)
    assert log.text() == ""
    write(log, "b" * 20 + "e" * 10)
    assert log.text() == "b" * 20 + "e" * 10
    write(log, "m" * 90 + "e" * 10)
    assert log.text() == f"{'b' * 20}\n… 100 bytes left out …\n{'e' * 10}"


def test_a_log_that_is_no_text_is_text(log: EngineLog) -> None:
    """A worker may write anything."""
    log.path.write_bytes(b"\xff\xfe\x00 end")

    assert log.text().endswith("end")
