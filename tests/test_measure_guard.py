"""The guard between the tool and an engine: what it says, and that nothing is left whatever ends first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.rigs import small_engine
from tests.rigs.small_engine import left_behind
from zenit_hub.maintain.measure import guard
from zenit_hub.maintain.measure.guarded import Guarded

GRACE_S = 0.2
PATIENCE_S = 10.0


class Guard:
    """A guard started as a script; ``log`` is the engine's output."""

    def __init__(self, log: Path, words: list[str], environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", guard.__file__, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def close(self) -> int:
        """Close its stdin and wait; its status."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)

    def wait_for(self, start: str) -> str:
        """The line of the log that begins so."""
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            for line in self.log.read_text().splitlines():
                if line.startswith(start):
                    return line
            time.sleep(0.01)
        raise AssertionError(f"no line {start!r} in {self.log.read_text()!r}")


Begin = Callable[..., Guard]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start the guard on a command, by default the small engine; ended afterwards, whatever happened."""
    begun: list[Guard] = []

    def start(*command: str, does: str = "", words: tuple[str, ...] = ()) -> Guard:
        engine = command or (sys.executable, "-S", small_engine.__file__, "m", "--port", "0")
        environment = {small_engine.VARIABLE: does}
        log = tmp_path / f"log{len(begun)}"
        begun.append(Guard(log, [*words, str(GRACE_S), *engine], environment))
        return begun[-1]

    yield start
    for each in begun:
        if each.process.stdin and not each.process.stdin.closed:
            each.process.stdin.close()
        each.process.wait(PATIENCE_S)
        if each.process.stdout:
            each.process.stdout.close()


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", code)


@pytest.mark.parametrize(
    ("code", "said", "status"),
    [("raise SystemExit(3)", "3", 3), ("import os; os.kill(os.getpid(), 9)", "-9", 137)],
)
def test_the_status_of_the_engine_is_said(begin: Begin, code: str, said: str, status: int) -> None:
    """As ``Popen.returncode``; the guard's own status is a shell's."""
    each = begin(*python(code))

    assert int(each.line()) > 0
    assert each.line() == said
    assert each.process.wait(PATIENCE_S) == status


def test_the_engine_leads_a_group_of_its_own(begin: Begin) -> None:
    """A Ctrl-C at the terminal is not for it."""
    each = begin()
    pid = int(each.line())
    each.wait_for("made folder")

    assert os.getpgid(pid) == pid
    assert os.getsid(pid) == pid
    assert each.close() == 128 + signal.SIGTERM


@pytest.mark.parametrize("does", ["", "stubborn child shared"])
def test_nothing_is_left_of_an_engine(begin: Begin, does: str) -> None:
    """Processes in other sessions that hear no signal, temporary files, shared memory."""
    each = begin(does=does)
    each.wait_for("(EngineCore")
    made = left_behind(each.log.read_text())

    each.close()

    assert len(made) == 2 + len(does.split()) - ("stubborn" in does)
    assert left_behind(each.log.read_text()) == []


def test_shared_memory_of_an_engine_that_was_killed_is_removed(begin: Begin) -> None:
    """The kernel's OOM killer leaves nobody to remove it."""
    each = begin(does="shared kill")
    name = each.wait_for("made shared").split()[2]
    each.process.wait(PATIENCE_S)

    assert not Path("/dev/shm", name).exists()


def test_shared_memory_of_others_stays(begin: Begin) -> None:
    """What was there before, what a stranger makes meanwhile, and what a stranger uses."""
    names = [f"zenit_test_{os.getpid()}_{kind}" for kind in ("before", "meanwhile", "used")]
    before, meanwhile, used = (Path("/dev/shm", name) for name in names)
    opened = f"import time; kept = [open(name, 'a+b') for name in {[str(before), str(used)]}]"
    code = f"{opened}; print('open', flush=True); time.sleep(600)"
    try:
        before.touch()
        each = begin(*python(code))
        each.wait_for("open")
        meanwhile.touch()
        with used.open("rb"):
            time.sleep(5 * guard.POLL_INTERVAL_S)
            each.close()
        assert all(place.exists() for place in (before, meanwhile, used))
    finally:
        for place in (before, meanwhile, used):
            place.unlink(missing_ok=True)


def test_an_engine_joins_its_cgroup_before_its_first_instruction(begin: Begin, tmp_path: Path) -> None:
    """``0`` is whoever writes it."""
    group = tmp_path / "group"
    group.mkdir()
    code = f"raise SystemExit(open({str(group / 'cgroup.procs')!r}).read() != '0')"
    each = begin(*python(code), words=("--cgroup", str(group)))

    assert int(each.line()) > 0
    assert each.line() == "0"


@pytest.mark.parametrize(
    ("command", "words", "said"),
    [
        (("/no/such/vllm", "serve"), (), "/no/such/vllm cannot be started: No such file or directory"),
        (("true",), ("--cgroup", "/no/such/group"), "cannot join the cgroup /no/such/group: No such file"),
    ],
)
def test_what_cannot_be_started_is_one_line(
    begin: Begin, command: tuple[str, ...], words: tuple[str, ...], said: str
) -> None:
    """No number is said, and nothing is left."""
    each = begin(*command, words=words)

    assert each.line() == ""
    assert each.process.wait(PATIENCE_S) == guard.CANNOT_START
    assert said in each.log.read_text()
    assert "Traceback" not in each.log.read_text()


def test_words_of_the_command_are_the_commands(begin: Begin) -> None:
    """Also where they look like the guard's."""
    each = begin(*python("import sys; print(sys.argv[1:])"), "--cgroup", "x", "--help", "--")
    each.process.wait(PATIENCE_S)

    assert "['--cgroup', 'x', '--help', '--']" in each.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_the_engine(begin: Begin, number: signal.Signals) -> None:
    """In order, with all that it left."""
    each = begin(does="child")
    each.wait_for("(EngineCore")
    each.process.send_signal(number)
    each.process.wait(PATIENCE_S)

    assert left_behind(each.log.read_text()) == []


def test_a_guard_that_is_killed_takes_its_engine_with_it(begin: Begin) -> None:
    """The kernel tells the engine to end."""
    each = begin()
    pid = int(each.line())
    folder = each.wait_for("made folder").split()[2]
    each.wait_for("(EngineCore")
    each.process.kill()
    each.process.wait(PATIENCE_S)

    assert has_ended(pid)
    os.rmdir(folder)  # nobody is left to do it


def test_the_tool_does_the_rest_for_a_guard_that_is_killed(tmp_path: Path) -> None:
    """The engine's group, its folder and the shared memory that only it had."""
    log = tmp_path / "log"
    environment = {**os.environ, small_engine.VARIABLE: "shared stubborn"}
    engine = (sys.executable, "-S", small_engine.__file__, "m", "--port", "0")
    guarded = Guarded(engine, environment, log, GRACE_S)
    assert guarded.start()
    while "(EngineCore" not in log.read_text():
        time.sleep(0.01)
    os.kill(guard.parents()[guarded.pid], signal.SIGKILL)
    assert guarded.has_ended(PATIENCE_S)
    guarded.end()

    assert "made shared" in log.read_text()
    assert has_ended(guarded.pid)
    assert not [name for name in left_behind(log.read_text()) if not name.startswith("/proc/")]


def test_the_engines_folder_leaves_room_for_the_name_of_a_socket(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever the system's temporary files go."""
    far = tmp_path / ("t" * 80)
    far.mkdir()
    monkeypatch.setenv("TMPDIR", str(far))
    folder = begin().wait_for("made folder").split()[2]

    assert len(f"{folder}/01234567-89ab-cdef-0123-456789abcdef") <= 107


def test_the_cgroup_of_a_tool_that_is_gone_is_removed(tmp_path: Path) -> None:
    """By the guard, which is the last that knows of it."""
    group = tmp_path / "group"
    group.mkdir()
    (group / "cgroup.procs").write_text("")
    # The kernel takes a group's files away with it; here the engine does.
    engine = python(f"import os, time; os.unlink({str(group / 'cgroup.procs')!r}); time.sleep(60)")
    words = [sys.executable, "-I", "-S", guard.__file__, "--cgroup", str(group), str(GRACE_S), *engine]
    starter = (
        "import os, subprocess, sys, time\n"
        "guard = subprocess.Popen(sys.argv[2:], stdin=-1, stdout=-1, start_new_session=True)\n"
        "while os.path.exists(sys.argv[1]): time.sleep(0.01)"
    )
    subprocess.run([*python(starter), str(group / "cgroup.procs"), *words], check=True, timeout=PATIENCE_S)
    deadline_s = time.monotonic() + PATIENCE_S
    while group.exists() and time.monotonic() < deadline_s:
        time.sleep(0.01)

    assert not group.exists()


def has_ended(pid: int) -> bool:
    """Within the patience; whether somebody has asked for its status does not matter."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False
