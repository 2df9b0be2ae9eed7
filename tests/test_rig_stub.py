"""The engine without a model: it is asked as vLLM is, takes what it says it takes, and fails in vLLM's words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.cuda import cuda_environment
from tests.rigs.engine import free_port
from tests.rigs.nvml import NvmlRig
from tests.rigs.nvml_child import CARD_0, MIB, ask
from tests.rigs.stub_engine import REPORT_VARIABLE, STUB_ENGINE, Stub
from zenit_hub.maintain.measure.engine_report import EngineReport, read_report

GIB = 2**30
FREE = 15 * GIB


@pytest.fixture
def rig(tmp_path: Path) -> NvmlRig:
    made = NvmlRig(tmp_path / "card")
    made.put({"devices": [{"total_bytes": 16 * GIB, "free_bytes": FREE, "context_bytes": 300 * MIB}]})
    return made


def quick(**values: Any) -> Stub:
    return Stub(pace_s=0.005, **values)


def held(rig: NvmlRig) -> int:
    return FREE - int(ask(rig, CARD_0 + "say(figures(card)['free'])"))


class Running:
    """A stub engine that was started."""

    def __init__(self, model: Path, words: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self.port = free_port()
        self.log = model / "engine.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-S", str(STUB_ENGINE), str(model), "--port", str(self.port), *words],
                env={**os.environ, **environment},
                stderr=log,
            )

    def request(self, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = 10) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=timeout_s) as answer:
            return json.loads(answer.read() or b"null")

    def wait_until_ready(self) -> bool:
        """``False`` where it ended before it answered."""
        while self.process.poll() is None:
            try:
                self.request("/health")
            except OSError:
                time.sleep(0.01)
            else:
                return True
        return False


@contextmanager
def started(
    stub: Stub, model: Path, rig: NvmlRig | None, *words: str, **environment: str
) -> Iterator[Running]:
    libraries = {} if rig is None else cuda_environment(rig)
    running = Running(model, words, {**libraries, **stub.environment(), **environment})
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_it_serves_and_takes_what_it_says(rig: NvmlRig, tmp_path: Path) -> None:
    """All parts are on the card while it runs, its own account names them, and TERM gives them back."""
    stub = quick(weights_bytes=GIB, peak_bytes=64 * MIB, graphs_bytes=16 * MIB)
    words = ("--kv-cache-memory-bytes", str(256 * MIB), "--gpu-memory-utilization", "0.5")
    with started(stub, tmp_path, rig, *words) as engine:
        assert engine.wait_until_ready()
        assert held(rig) == (1024 + 64 + 16 + 256 + 300) * MIB
        assert engine.request("/v1/models")["data"][0]["max_model_len"] == 2048
        body = {"prompt": [[3] * 2040, [3] * 8], "max_tokens": 8}
        assert engine.request("/v1/completions", body)["usage"]["completion_tokens"] == 16
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            engine.request("/v1/completions", {"prompt": [3] * 2041, "max_tokens": 8})
        refused.value.close()
        report = engine.request("/collective_rpc", {"method": "anything"})["results"][0]
        assert report["weights_bytes"] == GIB
        assert report["kv_cache_bytes"] == 256 * MIB
        engine.process.terminate()
        assert engine.process.wait(5) == 0
    assert held(rig) == 0


def test_it_refuses_in_vllms_words_when_too_little_is_free(rig: NvmlRig, tmp_path: Path) -> None:
    """At the start by utilization; later with CUDA's out of memory."""
    with started(quick(), tmp_path, rig, "--gpu-memory-utilization", "0.95") as engine:
        assert not engine.wait_until_ready()
        words = "Free memory on device cuda:0 (14.71/16.0 GiB) on startup is less than desired GPU memory "
        assert words + "utilization (0.95, 15.2 GiB)" in engine.log.read_text()
    with started(quick(weights_bytes=15 * GIB), tmp_path, rig, "--gpu-memory-utilization", "0.5") as engine:
        assert not engine.wait_until_ready()
        assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate" in engine.log.read_text()
        assert "Engine core initialization failed" in engine.log.read_text()
    assert held(rig) == 0


def test_it_reads_the_forced_profile(rig: NvmlRig, tmp_path: Path) -> None:
    """Window and pin come from the folder's section, the command line before it; other numbers a profile."""
    section = {"profiles": {"p": {"max_model_len": 4096, "kv_cache_memory_bytes": 512 * MIB}}}
    (tmp_path / "config.json").write_text(json.dumps({"lomonosov_serving_profiles": section}))
    stub = quick(profiles={"p": {"weights_bytes": 2 * GIB}})
    with started(stub, tmp_path, rig, "--max-num-seqs", "2", **{"ZENIT_SERVING_PROFILE": "p"}) as engine:
        assert engine.wait_until_ready()
        assert engine.request("/v1/models")["data"][0]["max_model_len"] == 4096
        assert held(rig) == (2048 + 64 + 16 + 512 + 300) * MIB


def test_without_a_pin_it_pins_what_one_request_needs_when_it_is_measured(
    rig: NvmlRig, tmp_path: Path
) -> None:
    """And writes it down; unmeasured, it takes all that utilization allows."""
    with started(quick(), tmp_path, rig, **{REPORT_VARIABLE: str(tmp_path)}) as engine:
        assert not engine.wait_until_ready()  # 0.92 of the whole card is not free
    forced = {REPORT_VARIABLE: str(tmp_path), "ZENIT_SERVING_PROFILE": "p"}
    with started(quick(), tmp_path, rig, **forced) as engine:
        assert engine.wait_until_ready()
        assert read_report(engine, tmp_path) == EngineReport(
            256 * MIB, 128 * MIB, 96 * MIB, 16 * MIB, 128 * MIB
        )
        assert held(rig) == (256 + 64 + 16 + 128 + 300) * MIB
    with started(quick(), tmp_path, rig, **{"ZENIT_SERVING_PROFILE": "p"}) as engine:
        assert engine.wait_until_ready()
        assert held(rig) > 13 * GIB


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("die", "RuntimeError: the stub was told to die"),
        ("kill", "Failed core proc(s): {'EngineCore': -9}"),
        ("oom", "torch.OutOfMemoryError: CUDA out of memory"),
        ("disturbed", "AssertionError: Error in memory profiling. Initial free memory"),
        ("no_kv_cache_memory", "No available memory for the cache blocks"),
        ("kv_cache_too_small", "the estimated maximum model length is 1024"),
        ("too_few_state_blocks", "requested 256 sequences, 969 state blocks available"),
    ],
)
def test_it_fails_as_it_is_told(tmp_path: Path, how: str, words: str) -> None:
    """In vLLM's words and with a status."""
    with started(quick(memory="host", weights_bytes=MIB, fail=how), tmp_path, None) as engine:
        assert not engine.wait_until_ready()
        assert engine.process.returncode == 1
        assert words in engine.log.read_text()


def test_it_fails_as_often_as_it_is_told(tmp_path: Path) -> None:
    """Counted in a folder, from start to start."""
    stub = quick(memory="host", weights_bytes=MIB, peak_bytes=MIB, needed_kv_bytes=MIB)
    stub = replace(stub, fail="die", fail_boots=1, counter=str(tmp_path))
    words = ("--kv-cache-memory-bytes", str(MIB))
    for answers in (False, True):
        with started(stub, tmp_path, None, *words) as engine:
            assert engine.wait_until_ready() == answers


def test_it_hangs_and_hears_no_term(tmp_path: Path) -> None:
    """On the host, as all of this may be; a KILL of the front end ends its worker too, unless that is an orphan."""
    stub = quick(memory="host", weights_bytes=MIB, fail="hang", fail_phase="kv_cache", ignore_term=True)
    with started(stub, tmp_path, None) as engine:
        while "torch.compile took" not in engine.log.read_text():
            time.sleep(0.01)
        engine.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            engine.process.wait(0.3)
        worker = int(subprocess.check_output(["pgrep", "-P", str(engine.process.pid)]))
        os.kill(worker, signal.SIGKILL)
        assert engine.process.wait(5) == 1
