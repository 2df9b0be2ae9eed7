"""An engine started with one profile forced: what it is given, how its end is explained, and what is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.rigs import small_engine
from tests.rigs.small_engine import left_behind
from zenit_hub.errors import MeasurementError
from zenit_hub.maintain.measure import launch
from zenit_hub.maintain.measure.launch import (
    EngineStopped,
    Order,
    ServedEngine,
    engine_command,
    engine_environment,
    find_command,
    kernel_kills,
)
from zenit_hub.maintain.measurement import PhaseName

ROOT = Path(__file__).resolve().parent.parent
SMALL = (sys.executable, "-S", small_engine.__file__)
GRACE_S = 0.2
PATIENCE_S = 15.0
PROMPT = {"prompt": [[3, 4, 5]], "max_tokens": 2}

Begin = Callable[..., ServedEngine]


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small engine needs no tenth of a second for anything, and a proxy is in nobody's way."""
    monkeypatch.setattr(launch, "POLL_INTERVAL_S", 0.02)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """A small engine that was started; ended afterwards."""
    begun: list[ServedEngine] = []

    def start(does: str = "", cgroup: Path | None = None) -> ServedEngine:
        environment = {small_engine.VARIABLE: does}
        order = Order(SMALL, "m", "p", tmp_path, environment=environment, cgroup=cgroup)
        begun.append(ServedEngine(order, grace_s=GRACE_S))
        begun[-1].start()
        return begun[-1]

    yield start
    for engine in begun:
        engine.end()


@pytest.fixture
def ready(begin: Begin) -> Begin:
    """The same, and it answers."""

    def wait(does: str = "") -> ServedEngine:
        engine = begin(does)
        engine.wait_until_ready(PATIENCE_S, ignored)
        return engine

    return wait


def ignored(_phase: PhaseName) -> None:
    """Nobody listens."""


def stopped(work: Callable[[], object]) -> EngineStopped:
    """What the engine stopped with."""
    with pytest.raises(EngineStopped) as caught:
        work()
    return caught.value


# --- a boot as it should be


def test_a_boot_from_its_start_to_its_end(begin: Begin) -> None:
    """Phases as the log announces them, answers, and nothing left."""
    entered: list[str] = []
    engine = begin("child shared")
    engine.wait_until_ready(PATIENCE_S, entered.append)
    engine.enter("workload")
    answer = engine.request("/v1/completions", PROMPT)
    made = left_behind(engine.log_text())
    engine.end()
    engine.end()

    assert entered == ["start", "loading", "kv_cache"]
    assert [phase.name for phase in engine.phases] == [*entered, "workload"]
    starts_s = [phase.start_s for phase in engine.phases]
    assert starts_s == sorted(starts_s)
    assert engine.ready_after_s is not None
    assert 0 < engine.ready_after_s <= engine.ended_after_s
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 2}
    assert f"/proc/{engine.root_pid}" in made
    assert len(made) == 4
    assert left_behind(engine.log_text()) == []


def test_an_engine_that_was_never_started_is_ended(tmp_path: Path) -> None:
    """``end`` stands in a ``finally``."""
    engine = ServedEngine(Order(SMALL, "m", "p", tmp_path))
    engine.end()

    assert (engine.root_pid, engine.ended_after_s, engine.log_text()) == (0, 0.0, "")


# --- what the engine is given


def test_the_words_of_the_command_line(tmp_path: Path) -> None:
    """What starts it, the model, the revision, the caller's words, our address."""
    order = Order(("v", "serve"), "org/m", "p", tmp_path, revision="abc", arguments=("-tp", "2"))

    words = "v serve org/m --revision abc -tp 2 --host 127.0.0.1 --port 81"
    assert engine_command(order, 81) == tuple(words.split())


def test_the_environment_of_an_engine(tmp_path: Path) -> None:
    """The profile is forced, nothing of an earlier launch or of the shell's wishes for serving comes along."""
    shell = {
        "PATH": "/bin",
        "HF_TOKEN": "hf_secret",
        "ZENIT_SERVING_PROFILE": "off",
        "ZENIT_SERVING_STRICT": "1",
        "ZENIT_SERVING_KEEP": "max_model_len",
        "ZENIT_SERVING_DECISION": "{}",
        "ZENIT_EFFECTIVE_MAX_MODEL_LEN": "1",
        "ZENIT_OF_THE_MODELS_OWN": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "VLLM_API_KEY": "of-another-server",
        "VLLM_LOGGING_COLOR": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CONFIGURE_LOGGING": "0",
    }
    order = Order(("v",), "m", "p", tmp_path, environment={"VLLM_CACHE_ROOT": "/c"})

    given = engine_environment(order, shell)

    kept = ("PATH", "HF_TOKEN", "ZENIT_OF_THE_MODELS_OWN", "PYTORCH_CUDA_ALLOC_CONF")
    assert given == {name: shell[name] for name in kept} | {
        "ZENIT_SERVING_PROFILE": "p",
        "VLLM_CACHE_ROOT": "/c",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_MAX_COMPLETION_PROMPTS": "65536",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "DO_NOT_TRACK": "1",
    }
    assert "hf_secret" not in " ".join(engine_command(order, 1))


@pytest.mark.parametrize(
    ("plugins", "given"),
    [(None, None), ("", "zenit_hub"), ("a,b", "a,b,zenit_hub"), ("zenit_hub,a", "zenit_hub,a")],
)
def test_our_plugin_is_let_in(tmp_path: Path, plugins: str | None, given: str | None) -> None:
    """Where the shell filters plug-ins by name; without the filter all are loaded."""
    shell = {} if plugins is None else {"VLLM_PLUGINS": plugins}

    assert engine_environment(Order(("v",), "m", "p", tmp_path), shell).get("VLLM_PLUGINS") == given


def test_the_command_beside_this_python_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then PATH; where there is none, what to type."""
    ours, others = tmp_path / "ours", tmp_path / "others"
    for folder in (ours, others):
        folder.mkdir()
        (folder / "vllm").write_text("#!/bin/sh\n")
        (folder / "vllm").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(ours / "python"))
    monkeypatch.setenv("PATH", str(others))
    assert find_command() == (str(ours / "vllm"), "serve")

    (ours / "vllm").chmod(0o644)
    assert find_command() == (str(others / "vllm"), "serve")

    (others / "vllm").unlink()
    with pytest.raises(MeasurementError, match="pip install vllm"):
        find_command()


# --- engines that stop


def test_an_engine_that_ends_is_explained_by_its_log(begin: Begin) -> None:
    """With the numbers that its message names."""
    engine = begin("die child")

    why = stopped(lambda: engine.wait_until_ready(PATIENCE_S, ignored))

    assert (why.failure.kind, why.status) == ("kv_cache_too_small", 1)
    assert why.failure.numbers["needed_gib"] == 20.14
    assert engine.ready_after_s is None
    assert engine.ended_after_s > 0
    assert left_behind(engine.log_text()) == []


def test_an_engine_that_the_kernel_kills_ran_out_of_memory(begin: Begin) -> None:
    """Its status is all that it can say."""
    engine = begin("kill shared")

    why = stopped(lambda: engine.wait_until_ready(PATIENCE_S, ignored))

    assert (why.failure.kind, why.status) == ("out_of_memory", -signal.SIGKILL)
    assert left_behind(engine.log_text()) == []


def test_an_engine_that_hangs_while_starting_is_ended_at_the_deadline(begin: Begin) -> None:
    """The message says how long and where, although it does not listen to TERM."""
    engine = begin("hang stubborn child")
    began_s = time.monotonic()

    why = stopped(lambda: engine.wait_until_ready(0.4, ignored))

    assert why.failure.kind == "hang"
    assert "within 0.4 s of the start (phase loading)" in why.failure.message
    assert time.monotonic() - began_s < 0.4 + GRACE_S * 1.25 + 3
    assert left_behind(engine.log_text()) == []


def test_an_engine_that_waits_for_a_process_that_the_kernel_killed_is_not_waited_for(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cgroup counts them; vLLM may wait for a dead worker for ever."""
    monkeypatch.setattr(launch, "DYING_S", 0.1)
    (tmp_path / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    engine = begin("hang", cgroup=tmp_path)
    (tmp_path / "memory.events").write_text("low 0\noom 3\noom_kill 1\n")

    why = stopped(lambda: engine.wait_until_ready(PATIENCE_S, ignored))

    assert why.failure.kind == "out_of_memory"
    assert engine.ended_after_s < PATIENCE_S


@pytest.mark.parametrize(
    ("file", "text", "killed"),
    [
        ("memory.events", "oom 9\noom_kill 2\noom_group_kill 0\n", 2),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n", 4),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0),
        ("other", "", 0),
    ],
)
def test_both_versions_of_cgroups_count_what_the_kernel_killed(
    tmp_path: Path, file: str, text: str, killed: int
) -> None:
    """An old kernel counts nothing."""
    (tmp_path / file).write_text(text)

    assert kernel_kills(tmp_path) == killed
    assert kernel_kills(None) == 0


@pytest.mark.parametrize(
    ("path", "kind", "said"),
    [
        ("/hang", "hang", "no answer to /hang within 0.2 s (phase kv_cache)"),
        ("/trickle", "hang", "no answer to /trickle within 0.2 s (phase kv_cache)"),
        ("/die", "out_of_memory", "CUDA out of memory"),
        ("/fail_and_die", "out_of_memory", "CUDA out of memory"),
    ],
    ids=lambda value: value if value.startswith("/") else "",
)
def test_an_engine_that_stops_at_a_request_is_ended(ready: Begin, path: str, kind: str, said: str) -> None:
    """Whether it says nothing, a byte now and then, or dies."""
    engine = ready("child")

    why = stopped(lambda: engine.request(path, PROMPT, timeout_s=0.2))

    assert why.failure.kind == kind
    assert said in why.failure.message
    assert left_behind(engine.log_text()) == []


def test_an_engine_that_refuses_still_runs(ready: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says why; an answer in another language is none."""
    monkeypatch.setattr(launch, "DYING_S", 0.0)
    monkeypatch.setattr(launch, "SETTLE_S", 0.0)
    engine = ready()
    said = {
        path: stopped(lambda path=path: engine.request(path, PROMPT)).failure
        for path in ("/refuse", "/fail", "/no_json")
    }

    assert {failure.kind for failure in said.values()} == {"no_answer"}
    assert said["/refuse"].message == "/refuse was refused (400): no such thing"
    assert said["/fail"].message == "/fail was refused (500): no such thing"
    assert said["/no_json"].message == "/no_json was answered with something that is not JSON"
    assert engine.request("/version") is None
    assert engine.ended_after_s == 0


def test_an_engine_that_has_ended_answers_nothing(ready: Begin) -> None:
    """At once, and with its reason."""
    engine = ready()
    engine.end()

    assert stopped(lambda: engine.request("/version")).failure.kind == "died"


@pytest.mark.parametrize(
    ("command", "folder", "said"),
    [
        (("/no/such/vllm", "serve"), ".", "/no/such/vllm cannot be started: No such file"),
        (SMALL, "missing", "the engine's log cannot be written: No such file"),
    ],
)
def test_an_engine_that_cannot_be_started(
    tmp_path: Path, command: tuple[str, ...], folder: str, said: str
) -> None:
    """One line, without a process."""
    engine = ServedEngine(Order(command, "m", "p", tmp_path / folder))

    why = stopped(engine.start)
    engine.end()

    assert why.failure.kind == "cannot_start"
    assert said in str(why)


# --- the tool's own end

TOOL = """
    import pathlib, sys
    from tests.rigs import small_engine
    from zenit_hub.maintain.measure.launch import Order, ServedEngine
    folder, does = pathlib.Path(sys.argv[1]), sys.argv[2]
    command = (sys.executable, "-S", small_engine.__file__)
    order = Order(command, "m", "p", folder, environment={"SMALL_ENGINE": does})
    with ServedEngine(order, grace_s=0.2) as engine:
        engine.start()
        print("started", flush=True)
        engine.wait_until_ready(60, lambda phase: None)
        print("ready", flush=True)
        engine.request("/hang", {})
    print("ended", flush=True)
"""


@pytest.fixture
def tool(tmp_path: Path) -> Iterator[Callable[[str, str], subprocess.Popen[str]]]:
    """A process that measures, as far as its engine is concerned, in a folder of that name."""
    begun: list[subprocess.Popen[str]] = []

    def start(name: str, does: str) -> subprocess.Popen[str]:
        (tmp_path / name).mkdir()
        words = [sys.executable, "-c", textwrap.dedent(TOOL), str(tmp_path / name), does]
        begun.append(
            subprocess.Popen(
                words,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.strip() == word:
            return
    raise AssertionError(f"the tool never said {word!r}")


def log_of(folder: Path, word: str) -> str:
    """The engine's log when ``word`` stands in it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        with suppress(FileNotFoundError):
            text = (folder / launch.LOG_NAME).read_text()
            if word in text:
                return text
        time.sleep(0.01)
    raise AssertionError(word)


def left_in_the_end(log: str) -> list[str]:
    """What a dead tool leaves to its guard, which has until the end of the patience."""
    deadline_s = time.monotonic() + PATIENCE_S
    while left_behind(log) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    return left_behind(log)


def test_a_tool_that_is_ended_leaves_nothing(
    tool: Callable[[str, str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    """While its engine starts and while it works. A Ctrl-C reaches its whole group, and is waited for even twice."""
    starting = {name: tool(name, "hang child shared") for name in ("Ctrl-C", "KILL", "Ctrl-C twice")}
    working = {name: tool(name, "child") for name in ("TERM", "KILL at work")}
    for process in working.values():
        wait_for(process, "ready")
    logs = {name: log_of(tmp_path / name, "Starting to load") for name in (*starting, *working)}

    for name, process in (starting | working).items():
        number = signal.SIGINT if "Ctrl-C" in name else signal.SIGKILL if "KILL" in name else signal.SIGTERM
        os.killpg(process.pid, number)
    time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(starting["Ctrl-C twice"].pid, signal.SIGINT)
    left_by_ctrl_c = {}
    for name, process in (starting | working).items():
        process.wait(PATIENCE_S)
        if "Ctrl-C" in name:
            left_by_ctrl_c[name] = left_behind(logs[name])

    assert left_by_ctrl_c == {"Ctrl-C": [], "Ctrl-C twice": []}
    assert {name: left_in_the_end(log) for name, log in logs.items()} == {name: [] for name in logs}
