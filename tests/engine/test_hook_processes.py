"""One launch, several API servers: all end with the values of the launcher's decision."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, choice, config_folder, field_config, said, taken
from tests.rigs.hook_child import api_server, cards, frozen, launched, parsed, record, rig, serve_parsed

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL, GIB = 85899345920, 1 << 30
HAND_DOWN = "ZENIT_SERVING_DECISION"
TWO_SERVERS = ("--api-server-count", "2", "--gpu-memory-utilization", "0.92")


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def launcher(
    model: str, words: list[str], free_bytes: int = 83751862272
) -> tuple[Launch, str, dict[str, str]]:
    """A launch's first process: what became of it, its parsed arguments and the environment for its children."""
    cards(free_bytes, total_bytes=H100_TOTAL)
    args = parsed(model, *words)
    launch = launched(lambda: serve_parsed(args), "cuda")
    return launch, frozen(args), {n: v for n, v in os.environ.items() if not n.startswith("ZENIT_RIG_")}


def server(frozen_args: str, environment: dict[str, str], rank: int, free_bytes: int) -> Launch:
    """An API server of that launch, in a process to which nothing else of it came."""
    os.environ.update(environment)
    cards(free_bytes, total_bytes=H100_TOTAL)
    return api_server(frozen_args, rank, count=2)


def test_api_servers_take_the_launchers_decision(hook: HookServer, p3: str) -> None:
    """Rank -1 probes and logs; 0 and 1, on the card that is filling, end with its values (C3-03)."""
    first, args, environment = hook.run(launcher, model=p3, words=["--api-server-count", "2"])
    assert choice(first) == ("l1m", "widest_fitting")
    assert first["fields"]["_api_process_rank"] == -1
    for rank, free_bytes in ((0, 3221225472), (1, 2147483648)):
        later = hook.run(server, frozen_args=args, environment=environment, rank=rank, free_bytes=free_bytes)
        assert taken(later, "max_model_len", "gpu_memory_utilization") == [1048576, 0.5]
        assert later["fields"] == {**first["fields"], "_api_process_rank": rank}
        assert later["env"] == first["env"]
        assert (later["nvml"], later["lines"]) == ([], [])


def test_a_word_that_equals_the_default_reaches_the_api_servers(hook: HookServer, p3: str) -> None:
    """What was typed is known there too, although the plug-in loads after the arguments have come."""
    first, args, environment = hook.run(launcher, model=p3, words=list(TWO_SERVERS))
    later = hook.run(server, frozen_args=args, environment=environment, rank=1, free_bytes=2147483648)
    assert taken(later, "max_model_len", "gpu_memory_utilization") == [1048576, 0.92]
    assert later["fields"] == {**first["fields"], "_api_process_rank": 1}
    environment[HAND_DOWN] = ""
    alone = hook.run(server, frozen_args=args, environment=environment, rank=1, free_bytes=83751862272)
    assert taken(alone, "max_model_len", "gpu_memory_utilization") == [1048576, 0.92]
    assert "kept as you gave them: gpu_memory_utilization=0.92." in said(alone)


@pytest.mark.parametrize(
    ("words", "chosen", "window"),
    [
        (["--api-server-count", "2", "--max-num-seqs", "2"], ("m256k", "widest_fitting"), "262144"),
        (["--max-model-len", "30000"], ("s32k", "requested_length"), "30000"),
    ],
)
def test_a_child_with_other_arguments_probes_afresh(
    hook: HookServer, p3: str, words: list[str], chosen: tuple[str, str], window: str
) -> None:
    """A decision is for one command line; what the launcher set for its engine is no word of the user's (C3-03)."""
    first, _, environment = hook.run(launcher, model=p3, words=["--api-server-count", "2"])
    assert first["env"]["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == "1048576"
    _, args, _ = hook.run(launcher, model=p3, words=words)
    later = hook.run(server, frozen_args=args, environment=environment, rank=0, free_bytes=30 * GIB)
    assert "nvmlDeviceGetMemoryInfo" in later["nvml"]
    assert choice(later) == chosen
    assert later["env"]["ZENIT_EFFECTIVE_MAX_MODEL_LEN"] == window


def test_a_child_with_another_model_probes_afresh(hook: HookServer, p3: str, tmp_path: Path) -> None:
    """A decision is for one model (C3-03)."""
    _, _, environment = hook.run(launcher, model=p3, words=["--api-server-count", "2"])
    other = config_folder(tmp_path / "other", field_config("C1-03a"))
    _, args, _ = hook.run(launcher, model=other, words=["--api-server-count", "2"])
    later = hook.run(server, frozen_args=args, environment=environment, rank=0, free_bytes=30 * GIB)
    assert choice(later) == ("m256k", "widest_fitting")


FORGERIES: list[Any] = [
    {"set": {"trust_remote_code": True}},
    {"set": {"max_model_len": 1, "worker_cls": "evil.Worker"}},
    {"set": {"max_model_len": -5}},
    {"set": {"gpu_memory_utilization": 7}},
    {"env": {"LD_PRELOAD": "/tmp/evil.so"}},
    {"profile": {"a": 1}},
    {"form": 2},
    {"pid": 1, "parent_pid": 1},
    "garbled",
    "[]",
    '{"form": 1}',
    "{" * 5000,
]


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: str(forgery)[:40])
def test_a_forged_decision_sets_nothing(hook: HookServer, launched_twice: Any, forgery: Any) -> None:
    """What the section may not set is not taken from a hand-down either; the process decides by itself (C3-05)."""
    args, environment = launched_twice
    handed = (
        forgery if isinstance(forgery, str) else json.dumps({**json.loads(environment[HAND_DOWN]), **forgery})
    )
    later = hook.run(
        server, frozen_args=args, environment={**environment, HAND_DOWN: handed}, rank=0, free_bytes=30 * GIB
    )
    assert choice(later) == ("m256k", "widest_fitting")
    assert taken(later, "trust_remote_code", "worker_cls", "max_model_len") == [False, "auto", 262144]


@pytest.fixture(scope="module")
def launched_twice(hook: HookServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    model = config_folder(tmp_path_factory.mktemp("launched"), field_config("C1-03a"))
    _, args, environment = hook.run(launcher, model=model, words=["--api-server-count", "2"])
    return args, environment


@pytest.mark.parametrize("model", ["s3://bucket/model", "{unreadable}"])
def test_what_is_said_without_a_profile_is_said_once(hook: HookServer, tmp_path: Path, model: str) -> None:
    """Cloud storage, a config that cannot be used: one line a launch, not one a process."""
    (tmp_path / "config.json").write_text("[]", encoding="utf-8")
    model = model.format(unreadable=tmp_path)
    first, args, environment = hook.run(launcher, model=model, words=["--api-server-count", "2"])
    assert len(first["lines"]) == 1
    later = hook.run(server, frozen_args=args, environment=environment, rank=0, free_bytes=1)
    assert later["lines"] == []
    assert later["fields"] == {**first["fields"], "_api_process_rank": 0}


def test_no_secret_is_handed_down(hook: HookServer, p3: str) -> None:
    """Neither a Hub token nor an API key stands in the variable that every child inherits."""
    words = ["--hf-token", "hf_SECRET", "--api-key", "sk-SECRET", "--api-server-count", "2"]
    first, _, _ = hook.run(launcher, model=p3, words=words)
    assert "l1m" in first["env"][HAND_DOWN]
    assert "SECRET" not in "".join(first["env"].values())
    assert "SECRET" not in said(first)


def spawned(model: str) -> list[Launch]:
    """As vLLM's ``APIServerProcessManager`` does it: new interpreters that get the parsed arguments."""
    cards(83751862272, total_bytes=H100_TOTAL)
    args = parsed(model, *TWO_SERVERS)
    first = launched(lambda: serve_parsed(args), "cuda")
    rig().put({"driver_error": "Unknown"})
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    servers = [
        context.Process(target=spawned_server, args=(Recorder(), args, rank, answers)) for rank in (0, 1)
    ]
    for process in servers:
        process.start()
    later = sorted((answers.get() for _ in servers), key=lambda launch: launch["fields"]["_api_process_rank"])
    for process in servers:
        process.join()
    return [first, *later]


class Recorder:
    """In the new interpreter, the function that ends a launch is there before the arguments bring the hook."""

    def __reduce__(self) -> tuple[Any, ...]:
        return record, ()


def spawned_server(_: None, args: Any, rank: int, answers: Any) -> None:
    answers.put(api_server(frozen(args), rank, count=2))


def test_spawned_api_servers_take_the_launchers_decision(hook: HookServer, p3: str) -> None:
    """The same in interpreters that multiprocessing started, both at once."""
    first, *later = hook.run(spawned, model=p3)
    assert taken(first, "max_model_len", "gpu_memory_utilization") == [1048576, 0.92]
    for rank, launch in enumerate(later):
        assert launch["fields"] == {**first["fields"], "_api_process_rank": rank}
        assert (launch["nvml"], launch["lines"]) == ([], [])
