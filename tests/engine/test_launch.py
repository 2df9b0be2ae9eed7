"""One launch of many processes, on a real engine: they all end with the values that the launcher chose."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.ballast import Ballast
from tests.rigs.checkpoints import CheckpointSpec, build_checkpoint
from tests.rigs.engine import ServedModel
from tests.rigs.extra_code import plugin_folder, python_path, startup_folder
from zenit_hub.device import look_at_host
from zenit_hub.say import REPAIR_ID

ARCHITECTURE = "LomonosovZenitAltayForConditionalGeneration"
ROOM_BYTES = 4 * 2**30
"""What the wide window leaves free when it is chosen; less is there afterwards."""

BALLAST_BYTES = 2 * 2**30
MOST_BALLASTS = 8
WITHOUT_HAND_DOWN = "import zenit_hub.launch\nzenit_hub.launch.take = lambda *given: None\n"
SAY_ENVIRONMENT = """
import multiprocessing, os, sys
def register():
    name = multiprocessing.current_process().name
    print("WORKER", name, os.environ.get("ZENIT_EFFECTIVE_MAX_MODEL_LEN"),
          os.environ.get("ZENIT_NOOSPHERE_MODE"), file=sys.stderr, flush=True)
"""


def section() -> dict[str, Any]:
    """A window that fits now and no longer once the ballast is there, and a narrow one that always fits."""
    host = look_at_host().host
    assert host is not None
    needs = {"narrow": 2**30, "wide": host.available_bytes - ROOM_BYTES}
    windows = {"narrow": 2048, "wide": 4096}
    profiles = {
        name: {
            "max_model_len": windows[name],
            "max_num_batched_tokens": 2048,
            "max_num_seqs": 4,
            "enable_prefix_caching": False,
            "kv_cache_memory_bytes": 128 * 2**20,
            "enforce_eager": True,
            "requires_free_bytes": needs[name],
            "noosphere_mode": "deep",
        }
        for name in windows
    }
    return {"default_profile": "narrow", "profiles": profiles}


def checkpoint(folder: Path, kind: str) -> str:
    spec = CheckpointSpec(
        kind=kind, section=section(), max_position_embeddings=8192, architectures_before=(ARCHITECTURE,)
    )
    return str(build_checkpoint(folder, spec))


@contextmanager
def full_once_chosen(log: Path) -> Iterator[None]:
    """Fill the host as soon as the launcher has said what it chose, until the wide window would not fit."""
    over = threading.Event()
    enough_bytes = available_bytes() - ROOM_BYTES - 2**30

    def fill() -> None:
        while not over.is_set() and not (
            log.exists() and f"{REPAIR_ID} profile " in log.read_text(errors="replace")
        ):
            time.sleep(0.05)
        with ExitStack() as held:
            # The machine's memory may grow with what is asked of it: one fixed ballast could change nothing.
            while not over.is_set() and available_bytes() > enough_bytes and len(ballasts) < MOST_BALLASTS:
                ballasts.append(held.enter_context(Ballast(BALLAST_BYTES)))
            over.wait()

    ballasts: list[Ballast] = []
    filler = threading.Thread(target=fill)
    filler.start()
    try:
        yield
    finally:
        over.set()
        filler.join()


def available_bytes() -> int:
    host = look_at_host().host
    assert host is not None
    return host.available_bytes


def windows_announced(served: ServedModel, times: int = 20) -> set[int]:
    """What the front ends say: each request may be answered by another one."""
    return {served.window for _ in range(times)}


def chosen(served: ServedModel) -> list[str]:
    return re.findall(rf"{REPAIR_ID} profile (\w+) \(", served.log_text())


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("dense", ["--api-server-count", "2"]),
        ("hybrid", ["--api-server-count", "2"]),
        ("dense", ["-dp", "2"]),
    ],
)
def test_every_process_has_the_launchers_values(tmp_path: Path, kind: str, words: list[str]) -> None:
    """The host fills up after the launcher chose: the engine and every front end have its window all the same."""
    model, log = checkpoint(tmp_path / "model", kind), tmp_path / "engine.log"
    with full_once_chosen(log), ServedModel([model, *words], {}, log) as served:
        assert chosen(served) == ["wide"]
        assert windows_announced(served) == {4096}
        assert set(re.findall(r"max_seq_len=(\d+)", served.log_text())) == {"4096"}
        assert served.complete("Once upon a time", max_tokens=8)


def test_without_the_hand_down_the_processes_disagree(tmp_path: Path) -> None:
    """The test above can fail: a build that hands nothing down chooses anew in each process, and narrower."""
    model, log = checkpoint(tmp_path / "model", "dense"), tmp_path / "engine.log"
    broken = python_path(startup_folder(tmp_path / "startup", WITHOUT_HAND_DOWN))
    with full_once_chosen(log), ServedModel([model, "--api-server-count", "2"], broken, log) as served:
        assert "narrow" in chosen(served)
        assert windows_announced(served) == {2048}


def test_the_environment_reaches_tensor_parallel_workers(tmp_path: Path) -> None:
    """Both workers of `-tp 2` have the variables that the profile sets, and the engine answers."""
    model, log = checkpoint(tmp_path / "model", "dense"), tmp_path / "engine.log"
    plugin = python_path(plugin_folder(tmp_path / "plugin", "zenit_test_says", SAY_ENVIRONMENT))
    with ServedModel([model, "-tp", "2"], {**plugin, "VLLM_CPU_SIM_MULTI_NUMA": "1"}, log) as served:
        workers = re.findall(r"WORKER VllmWorker-?(\d).* (\d+) (\w+)", served.log_text())
        assert {rank for rank, _, _ in workers} == {"0", "1"}
        assert {(window, mode) for _, window, mode in workers} == {(str(served.window), "deep")}
        assert served.complete("Once upon a time", max_tokens=8)
