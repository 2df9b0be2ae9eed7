"""The engine rig with a stand-in for the `vllm` command: what it waits for, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rigs import engine
from tests.rigs.engine import EngineFailed, ServedModel, group_is_alive

ROOT = Path(__file__).resolve().parent.parent
# Serves like the engine, with a child that has left the process group and does not listen to SIGTERM.
STUBBORN_CHILD = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("child", __import__("os").getpid(), flush=True)
time.sleep(600)
"""
SERVER = f"""
import http.server, json, os, subprocess, sys
print("TMPDIR", os.environ["TMPDIR"], "caller", os.environ.get("ZENIT_SERVING_PROFILE"), flush=True)
subprocess.Popen([sys.executable, "-c", {STUBBORN_CHILD!r}], start_new_session=True)

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = json.dumps({{"data": [{{"id": "m", "max_model_len": 77}}]}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

port = int(sys.argv[sys.argv.index("--port") + 1])
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture(autouse=True)
def _own_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real engine may be running; these tests need no turn of it."""
    monkeypatch.setattr(engine, "LOCK_FILE", tmp_path / "turn.lock")
    monkeypatch.setattr(engine, "GRACE_S", 0.4)


@pytest.fixture
def vllm(tmp_path: Path) -> Callable[[str], Path]:
    def write(source: str) -> Path:
        command = tmp_path / "bin" / "vllm"
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!{sys.executable}\n{source}")
        command.chmod(0o755)
        return command.parent

    return write


def child_pid(log: Path) -> int:
    return int(wait_for_line(log, "child ").split()[1])


def wait_for_line(log: Path, start: str) -> str:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for line in log.read_text().splitlines() if log.exists() else []:
            if line.startswith(start):
                return line
        time.sleep(0.02)
    raise AssertionError(f"no line {start!r} in {log}")


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def test_the_engine_and_every_descendant_are_gone_after_the_with(
    tmp_path: Path, vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZENIT_SERVING_PROFILE", "off")
    log = tmp_path / "log"
    with ServedModel(["m"], env={}, log=log, bin_folder=vllm(SERVER)) as served:
        assert served.window == 77
        child = child_pid(log)
        assert is_alive(child)
    assert not is_alive(child)
    assert not group_is_alive(served.process_group)
    _, scratch, _, caller = wait_for_line(log, "TMPDIR").split()
    assert not Path(scratch).exists()
    assert caller == "None", "what the shell says about serving must not reach the engine"


def test_an_exception_inside_the_with_ends_the_engine_too(
    tmp_path: Path, vllm: Callable[[str], Path]
) -> None:
    served = ServedModel(["m"], env={}, log=tmp_path / "log", bin_folder=vllm(SERVER))
    with pytest.raises(KeyboardInterrupt), served:
        raise KeyboardInterrupt
    assert not group_is_alive(served.process_group)


def test_an_engine_that_ends_at_once_is_reported_with_its_last_lines(
    tmp_path: Path, vllm: Callable[[str], Path]
) -> None:
    served = ServedModel(
        ["m"], env={}, log=tmp_path / "log", bin_folder=vllm("raise SystemExit('no such model')")
    )
    with pytest.raises(EngineFailed, match="no such model"), served:
        pass


def test_an_engine_that_never_answers_is_given_up_and_ended(
    tmp_path: Path, vllm: Callable[[str], Path]
) -> None:
    source = f"import time; exec({STUBBORN_CHILD!r})"
    served = ServedModel(["m"], env={}, log=tmp_path / "log", timeout_s=0.5, bin_folder=vllm(source))
    with pytest.raises(EngineFailed, match="No answer"), served:
        pass
    assert not group_is_alive(served.process_group)


def test_a_starter_that_is_killed_takes_its_engine_with_it(
    tmp_path: Path, vllm: Callable[[str], Path]
) -> None:
    log = tmp_path / "log"
    starter = f"""
        import pathlib, time
        from tests.rigs import engine
        engine.LOCK_FILE, engine.GRACE_S = pathlib.Path({str(tmp_path / "turn.lock")!r}), 0.4
        log, folder = pathlib.Path({str(log)!r}), pathlib.Path({str(vllm(SERVER))!r})
        with engine.ServedModel(["m"], env={{}}, log=log, bin_folder=folder):
            time.sleep(600)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(starter)], cwd=ROOT)
    child = child_pid(log)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_until_gone(child)


def test_a_second_engine_waits_for_the_first_one_to_be_gone(
    tmp_path: Path, vllm: Callable[[str], Path]
) -> None:
    folder = vllm(SERVER)
    with ServedModel(["m"], env={}, log=tmp_path / "first", bin_folder=folder):
        second = ServedModel(["m"], env={}, log=tmp_path / "second", bin_folder=folder, turn_timeout_s=0.3)
        with pytest.raises(EngineFailed, match=r"turn\.lock"), second:
            pass
    with ServedModel(["m"], env={}, log=tmp_path / "third", bin_folder=folder, turn_timeout_s=0.3) as third:
        assert third.window == 77
