"""What an engine said last becomes a typed failure with its numbers and what to change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure.engine_report import (
    EngineReport,
    read_report,
    report_environment,
    report_words,
)
from zenit_hub.maintain.measure.reasons import kv_cache_numbers, parse_failure, utilization_numbers
from zenit_hub.maintain.measurement import Failure

CORE = "(EngineCore pid=4242) ERROR 12-01 15:12:05 [core.py:1289] "
FRONT = "(APIServer pid=4201) "

TOO_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (10485760), (240.0 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (88.38 GiB). Based on the available memory, the estimated "
    "maximum model length is 3861424. Try less."
)
OLDER_TOO_SMALL = (
    "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GB KV cache is needed, "
    "which is larger than the available KV cache memory (9.97 GB). Try less."
)
FREED = "AssertionError: Error in memory profiling. Initial free memory 82.94 GiB, current free memory 90.17 GiB. So …"
LOADING = "(EngineCore pid=4242) INFO 12-01 15:11:40 [gpu_model_runner.py:5100] Starting to load model /models/tiny..."


def core_failed(status: int) -> str:
    """What the front end says when its engine core ended."""
    return (
        "RuntimeError: Engine core initialization failed. See root cause above. "
        f"Failed core proc(s): {{'EngineCore': {status}}}"
    )


def crash(last: str) -> str:
    """The log of an engine core that ends with an exception, and of the front end that ends because of it."""
    return "\n".join(
        (
            "(EngineCore pid=4242) INFO 12-01 15:11:00 [core.py:110] Initializing a V1 LLM engine",
            f"{CORE}EngineCore failed to start.",
            f"{CORE}Traceback (most recent call last):",
            f'{CORE}  File "/venv/vllm/v1/engine/core.py", line 1263, in run_engine_core',
            f"{CORE}    raise ValueError(",
            f"{CORE}{last}",
            f"{FRONT}Traceback (most recent call last):",
            f'{FRONT}  File "/venv/vllm/entrypoints/cli/serve.py", line 1, in cmd',
            f"{FRONT}{core_failed(1)}",
        )
    )


def failure(last: str, status: int | None = 1) -> Failure:
    return parse_failure(crash(last), status)


def test_a_window_that_does_not_fit_names_its_numbers() -> None:
    """Asked length, GiB needed and available, and the length that would fit (C1-10)."""
    assert kv_cache_numbers(TOO_SMALL) == (10485760, 240.0, 88.38, 3861424)

    found = failure(TOO_SMALL)

    assert found.kind == "kv_cache_too_small"
    assert found.numbers == {
        "max_model_len": 10485760,
        "needed_gib": 240.0,
        "available_gib": 88.38,
        "estimated_max_model_len": 3861424,
    }
    assert found.advice == (
        "set max_model_len ≤ 3861424, or give the KV cache 240.00 GiB (kv_cache_memory_bytes)"
    )
    assert found.message.startswith("ValueError: To serve at least one request")


def test_no_estimate_is_no_crash() -> None:
    """An older vLLM estimates nothing and writes GB (C1-10, vllm 16118)."""
    assert kv_cache_numbers(OLDER_TOO_SMALL) == (1048576, 24.0, 9.97, None)

    found = failure(OLDER_TOO_SMALL)

    assert found.numbers["estimated_max_model_len"] is None
    assert found.advice == "shorten max_model_len, or give the KV cache 24.00 GiB (kv_cache_memory_bytes)"


@pytest.mark.parametrize("text", ["", "max seq len (4096)", "the available KV cache memory (1 GiB)"])
def test_other_text_has_no_kv_cache_numbers(text: str) -> None:
    """Nothing found is ``None``."""
    assert kv_cache_numbers(text) is None


@pytest.mark.parametrize(
    ("last", "blocks"),
    [
        ("ValueError: requested 1024 sequences, 969 state blocks available", 969),
        ("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (969). Each …", 969),
        ("ValueError: max_num_seqs (1024) exceeds available Mamba cache blocks (161). Each …", 161),
    ],
)
def test_too_few_state_blocks_say_how_many_sequences_there_can_be(last: str, blocks: int) -> None:
    """What to set is in the advice (C1-09)."""
    found = failure(last)

    assert (found.kind, found.advice) == ("too_few_state_blocks", f"set max_num_seqs ≤ {blocks}")
    assert found.numbers == {"requested_sequences": 1024, "state_blocks": blocks}


def test_memory_that_somebody_freed_is_not_out_of_memory() -> None:
    """Both figures, and that another process freed memory: to be tried again (C1-05)."""
    found = failure(FREED)

    assert found.kind == "disturbed"
    assert found.numbers == {"before_gib": 82.94, "now_gib": 90.17}
    assert found.message == (
        "another process freed memory while vLLM was profiling: 82.94 GiB were free at first, 90.17 GiB afterwards"
    )


@pytest.mark.parametrize(
    ("last", "kind", "numbers"),
    [
        ("ValueError: No available memory for the cache blocks. Try more.", "no_kv_cache_memory", {}),
        (
            "ValueError: Available memory on node 0 (3.10/23.50 GiB) on kv cache allocation is less than requested "
            "memory for kv (4.00 GiB). Try less.",
            "no_kv_cache_memory",
            {"free_gib": 3.1, "total_gib": 23.5, "needed_gib": 4.0},
        ),
        (
            "ValueError: Available memory on node 0 (3.10/23.50 GiB) on kv cache allocation is less than requested "
            "memory for kv (4.00/21.62 GiB). Try less.",
            "no_kv_cache_memory",
            {"free_gib": 3.1, "total_gib": 23.5, "needed_gib": 4.0},
        ),
        (
            "ValueError: Available memory on node 0 (9.10/23.50 GiB) on startup is less than desired CPU memory "
            "utilization (0.92, 21.62 GiB). Try less.",
            "not_admitted",
            {"free_gib": 9.1, "total_gib": 23.5, "utilization": 0.92, "needed_gib": 21.62},
        ),
        (
            "ValueError: Free memory on device cuda:0 (11.00/31.39 GiB) on startup is less than desired GPU memory "
            "utilization (0.9, 28.25 GiB). Try less.",
            "not_admitted",
            {"free_gib": 11.0, "total_gib": 31.39, "utilization": 0.9, "needed_gib": 28.25},
        ),
        (
            "ValueError: Free memory on device cuda:0 (11.00/31.39 GiB) on startup is less than the engine's budget "
            "after excluding external process's weights (0.9, 20.25 GiB). Try less.",
            "not_admitted",
            {"free_gib": 11.0, "total_gib": 31.39, "utilization": 0.9, "needed_gib": 20.25},
        ),
        (
            "zenit_hub.errors.StrictRefusal: ZENIT_X ZENIT_SERVING_STRICT=1 refuses this start: no card.",
            "not_admitted",
            {},
        ),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of "
            "31.39 GiB of which 256.00 MiB is free. Including …",
            "out_of_memory",
            {"asked_gib": 0.5, "total_gib": 31.39, "free_gib": 0.25},
        ),
        ("torch.cuda.OutOfMemoryError: HIP out of memory.", "out_of_memory", {}),
        (
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Try less.",
            "out_of_memory",
            {"requested_sequences": 1024},
        ),
        (
            "RuntimeError: [enforce fail at alloc_cpu.cpp:1] err == 0. DefaultCPUAllocator: can't allocate memory: you "
            "tried to allocate 1073741824 bytes. Error code 12 (Cannot allocate memory)",
            "out_of_memory",
            {"asked_gib": 1.0},
        ),
        ("MemoryError", "out_of_memory", {}),
        ("OSError: [Errno 12] Cannot allocate memory", "out_of_memory", {}),
    ],
)
def test_missing_memory_is_told_apart(last: str, kind: str, numbers: dict[str, float]) -> None:
    """Nothing left for the pool, refused at the start, or run out of: each with what it names."""
    found = failure(last)

    assert (found.kind, found.numbers) == (kind, numbers)
    assert found.advice


def test_the_sampler_says_that_fewer_sequences_fit() -> None:
    """The number that was too many is in the advice."""
    last = "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests."

    assert failure(last).advice == "set max_num_seqs < 1024"


# --- which line counts


@pytest.mark.parametrize(
    "after",
    [
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.",
        "RuntimeError: Engine core process EngineCore_DP0 died unexpectedly.",
        "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for "
        "root cause.",
        "asyncio.exceptions.CancelledError",
        "KeyboardInterrupt",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
    ],
)
def test_what_follows_from_the_end_of_another_process_is_no_reason(after: str) -> None:
    """The exception before it is."""
    assert parse_failure(f"{crash(TOO_SMALL)}\n{FRONT}{after}", 1).kind == "kv_cache_too_small"


def test_the_last_reason_counts() -> None:
    """An earlier one was dealt with: the engine went on."""
    log = f"{CORE}torch.OutOfMemoryError: CUDA out of memory.\n{crash('ValueError: the layout is unknown')}"

    assert parse_failure(log, 1).message == "ValueError: the layout is unknown"


def test_a_worker_s_reason_is_taken_out_of_what_relays_it() -> None:
    """With several ranks the core quotes the worker."""
    where = "please check the stack trace above for the root cause"
    relayed = f"RuntimeError: Worker failed with error '{TOO_SMALL}', {where}"

    assert failure(relayed).numbers["needed_gib"] == 240.0


def test_colours_and_prefixes_of_every_process_are_no_part_of_it() -> None:
    """Ranks, Ray's workers, a terminal's colours, or nothing at all."""
    for prefix in (
        "",
        "[rank0]: ",
        "(Worker_DP0_TP1 pid=77) ",
        "\x1b[0;36m(EngineCore pid=7)\x1b[0;0m ERROR 12-01 15:12:05 [core.py:1] ",
        "(EngineCore pid=1) (RayWorkerProc pid=2, ip=10.0.0.1) ERROR 12-01 15:12:05 [v1/core.py:1] ",
    ):
        assert parse_failure(f"{prefix}{TOO_SMALL}", 1).message == TOO_SMALL


def test_a_refused_configuration_is_said_with_its_detail() -> None:
    """pydantic puts it on the line below."""
    log = (
        f"{FRONT}pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        f"{FRONT}  Value error, the window is too long [type=value_error]\n"
        f"{FRONT}    For further information visit a page"
    )

    found = parse_failure(log, 1)

    assert found.kind == "cannot_start"
    assert "ModelConfig Value error, the window is too long" in found.message


def test_a_word_that_vllm_does_not_know_cannot_start() -> None:
    """argparse says it without a traceback."""
    found = parse_failure(
        "usage: vllm serve [options]\nvllm serve: error: unrecognized arguments: --window", 2
    )

    assert (found.kind, found.message) == (
        "cannot_start",
        "vllm serve: error: unrecognized arguments: --window",
    )


def test_an_unknown_reason_after_loading_is_a_death() -> None:
    """It had started; before that it could not start."""
    assert failure("RuntimeError: a kernel is missing").kind == "cannot_start"
    assert parse_failure(f"{LOADING}\n{crash('RuntimeError: a kernel is missing')}", 1).kind == "died"


# --- ended by a signal, or by us


@pytest.mark.parametrize("status", [-9, 137])
def test_the_kernel_s_kill_is_out_of_memory(status: int) -> None:
    """It leaves no word; status as Popen or a shell gives it."""
    assert parse_failure(LOADING, status).kind == "out_of_memory"


@pytest.mark.parametrize(
    "line",
    [
        "Worker proc VllmWorker-1 died unexpectedly (exit code: -9), shutting down executor.",
        core_failed(-9),
    ],
)
def test_the_kernel_s_kill_of_another_process_is_out_of_memory(line: str) -> None:
    """vLLM reports it and ends with a status of its own; a plug-in that once failed to load is no reason."""
    plugin = f"{CORE}ModuleNotFoundError: No module named 'other_plugin'"

    assert parse_failure(f"{plugin}\n{LOADING}\n{FRONT}{line}", 1).kind == "out_of_memory"


def test_a_reason_with_numbers_stands_before_the_signal() -> None:
    """What was killed afterwards does not change why."""
    assert failure(TOO_SMALL, -9).kind == "kv_cache_too_small"


def test_another_signal_is_a_death_with_its_name() -> None:
    """A crash in native code says nothing itself."""
    found = parse_failure(LOADING, -11)

    assert (found.kind, found.message) == ("died", "a process of the engine ended by SIGSEGV")


def test_an_engine_that_we_ended_hung() -> None:
    """Its signal is ours; what it said last helps to see why."""
    found = parse_failure(LOADING, -9, killed=True)

    assert found.kind == "hang"
    assert "Starting to load model /models/tiny" in found.message


def test_an_engine_that_failed_before_we_ended_it_did_not_hang() -> None:
    """A known reason stands, though a process stayed."""
    assert parse_failure(crash(TOO_SMALL), -9, killed=True).kind == "kv_cache_too_small"


@pytest.mark.parametrize("log", ["", "\n\n", "\x00\xff" * 50, "INFO nothing much\n" * 3])
def test_an_engine_without_a_word_is_a_death(log: str) -> None:
    """Whatever the log holds."""
    found = parse_failure(log, 3)

    assert (found.kind, found.message) == ("died", "the engine ended with status 3")


def test_an_error_without_an_exception_is_shown() -> None:
    """Better than nothing."""
    found = parse_failure(f"{CORE}The device is lost.", 1)

    assert found.message == "the engine ended with status 1; its last words: The device is lost."


def test_secrets_and_control_characters_stay_out() -> None:
    """The message stands in a file that is published."""
    token = "hf_" + "a1B2" * 9
    found = failure(f"OSError: https://me:secret@example.org/x?token=abc refused {token} \x1b[2J\u202e")

    assert token not in found.message
    assert "secret" not in found.message
    assert "abc" not in found.message
    assert found.message.isprintable()


def test_an_endless_line_is_cut() -> None:
    """The document has a limit, and a search through it an end."""
    assert len(failure("ValueError: " + "x" * 200_000).message) <= 1000


# --- the estimate of the CUDA graphs


def test_the_three_utilizations() -> None:
    """Current, equivalent before 0.21, suggested (C6-04)."""
    log = (
        "(Worker_TP1 pid=448) INFO 08-14 14:07:22 [gpu_worker.py:578] CUDA graph memory profiling is enabled (default "
        "since v0.21.0). The current --gpu-memory-utilization=0.8200 is equivalent to --gpu-memory-utilization=0.8048 "
        "without it. To keep the size, increase --gpu-memory-utilization to 0.8352. To disable, set a variable."
    )

    assert utilization_numbers(log) == [0.82, 0.8048, 0.8352]


def test_the_estimate_switched_off_names_two() -> None:
    """There is no equivalent then."""
    log = "Consider increasing --gpu-memory-utilization from 0.9000 to 0.9131."

    assert utilization_numbers(log) == [0.9, 0.9131]
    assert utilization_numbers("nothing of it") == []


# --- the engine's own account


class Answering:
    """An engine that answers one request with ``answer``, or not at all."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, object]] = []

    def request(self, path: str, body: Any = None, timeout_s: float = 120) -> Any:
        self.asked.append((path, body))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def rank(
    weights: int, pool: int, peak: int | None = None, graphs: int | None = None
) -> dict[str, int | None]:
    return {
        "weights_bytes": weights,
        "kv_cache_bytes": pool,
        "activation_peak_bytes": peak,
        "cuda_graphs_bytes": graphs,
    }


def test_the_report_is_the_rank_s_that_holds_most(tmp_path: Path) -> None:
    """Its parts belong together; the need comes from the engine core's file."""
    (tmp_path / "kv_cache.json").write_text(json.dumps({"needed_bytes": 64, "pinned_bytes": 64}))
    engine = Answering({"results": [rank(100, 50, 9, 4), rank(120, 50, 1, 4), rank(90, 50, 30, None)]})

    report = read_report(engine, tmp_path)

    assert report == EngineReport(120, 50, 1, 4, 64)
    assert engine.asked == [("/collective_rpc", {"method": "zenit_hub_memory"})]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {},
        {"results": None},
        {"results": []},
        {"results": [None, "12", {"weights_bytes": "1", "kv_cache_bytes": -1, "cuda_graphs_bytes": True}]},
        MeasurementError("the engine refused"),
    ],
)
@pytest.mark.parametrize("file", [None, "", "[]", "{", '{"needed_bytes": null}', '{"needed_bytes": "8"}'])
def test_what_the_engine_does_not_tell_is_none(tmp_path: Path, answer: Any, file: str | None) -> None:
    """No crash, no made-up number."""
    if file is not None:
        (tmp_path / "kv_cache.json").write_text(file)

    assert read_report(Answering(answer), tmp_path) == EngineReport(None, None, None, None, None)


def test_what_the_engine_is_started_with(tmp_path: Path) -> None:
    """vLLM's own seam for a worker's method, and its development mode for the way to it."""
    environment = report_environment(tmp_path)

    assert report_words() == ("--worker-extension-cls", "zenit_hub.engine.ledger.WorkerAccount")
    assert environment["ZENIT_MEASURE_REPORT"] == str(tmp_path)
    assert environment["VLLM_SERVER_DEV_MODE"] == "1"
