"""How the hook gets into vLLM: once, beside other plug-ins, after a fork, and not where it is filtered out."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.hook import HookServer, Launch, choice, config_folder, field_config, said, taken
from tests.rigs.hook_child import cards, engine, launched, note_of, parsed, serve, stand_in, written

pytest_plugins = ("tests.rigs.hook_fixtures",)

H100_TOTAL = 85899345920
FLAG = "_zenit_serving_profiles_installed"


@pytest.fixture
def p3(tmp_path: Path) -> str:
    """A model with the profiles s32k, m256k and l1m; s32k is the default."""
    return config_folder(tmp_path / "p3", field_config("C1-03a"))


def depth() -> int:
    """How many hooks of ours stand in the chain of ``create_engine_config``."""
    from vllm.engine.arg_utils import EngineArgs

    function: Any = EngineArgs.create_engine_config
    found = 0
    while function is not None:
        # Only the wrapper itself: functools.wraps copies what is marked on it to the one around it.
        found += function.__code__.co_filename.endswith("zenit_hub/engine/hook.py")
        function = getattr(function, "__wrapped__", None)
    return found


def counted() -> list[str]:
    """A function of vLLM's that counts its calls."""
    calls: list[str] = []

    def create_engine_config(self: Any, *_: Any, **__: Any) -> str:
        calls.append(self.model)
        return "config"

    stand_in(create_engine_config)
    return calls


def register_often(model: str) -> dict[str, Any]:
    from vllm.engine.arg_utils import EngineArgs

    from zenit_hub import install_model_owned_serving_defaults
    from zenit_hub.plugin import register

    calls = counted()
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    installed = [install_model_owned_serving_defaults() for _ in range(2)]
    for _ in range(3):
        register()
    pid = os.fork()
    if pid == 0:
        register()
        os._exit(depth())
    config = EngineArgs(model=model).create_engine_config()
    return {
        "installed": installed,
        "depth": depth(),
        "depth_after_fork": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]),
        "flag": getattr(EngineArgs, FLAG),
        "calls": calls,
        "config": config,
    }


def test_registering_often_puts_one_hook_in(hook: HookServer, p3: str) -> None:
    """Three times and again after a fork: one wrapper, vLLM's own function runs once and answers (C3-04)."""
    assert hook.run(register_often, model=p3) == {
        "installed": [True, False],
        "depth": 1,
        "depth_after_fork": 1,
        "flag": True,
        "calls": [p3],
        "config": "config",
    }


def filtered_out(model: str) -> tuple[Launch, str, bool]:
    from vllm.engine.arg_utils import EngineArgs

    os.environ["VLLM_PLUGINS"] = "other_plugin"
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    launch = serve(model)
    return launch, EngineArgs.create_engine_config.__name__, hasattr(EngineArgs, FLAG)


def test_a_plugin_that_is_filtered_out_touches_nothing(hook: HookServer, p3: str) -> None:
    """VLLM_PLUGINS without our name: EngineArgs as it was, and nothing said (C3-04)."""
    launch, function, flagged = hook.run(filtered_out, model=p3)
    assert (function, flagged) == ("_end_of_the_launch", False)
    assert (launch["lines"], launch["nvml"], launch["env"]) == ([], [], {})
    assert taken(launch, "max_model_len", "gpu_memory_utilization") == [None, 0.92]


def beside_a_foreign_plugin(model: str, polite: bool) -> dict[str, Any]:
    from vllm.engine.arg_utils import EngineArgs

    from zenit_hub.plugin import register

    foreign: list[str] = []
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    register()
    below: Callable[..., Any] = EngineArgs.create_engine_config

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        foreign.append(self.model)
        return below(self, *args, **kwargs)

    EngineArgs.create_engine_config = functools.wraps(below)(wrapper) if polite else wrapper
    register()
    on_top = EngineArgs.create_engine_config is not wrapper
    return {"launch": engine(model), "foreign": foreign, "on_top": on_top, "written": written()}


@pytest.mark.parametrize("polite", [True, False], ids=["with __wrapped__", "without"])
def test_a_foreign_wrapper_stays_outside(hook: HookServer, p3: str, polite: bool) -> None:
    """It is called, ours is found below it and is not put on top again, nor taken for somebody else's (C3-04)."""
    found = hook.run(beside_a_foreign_plugin, model=p3, polite=polite)
    assert found["foreign"] == [p3]
    assert found["on_top"] is False
    assert choice(found["launch"]) == ("l1m", "widest_fitting")
    assert said(found["launch"]).count("profile l1m") == 1
    assert "another hook" not in found["written"]


def older_hook(model: str) -> dict[str, Any]:
    from vllm.engine.arg_utils import EngineArgs

    from zenit_hub import install_model_owned_serving_defaults
    from zenit_hub.plugin import register

    below = EngineArgs.create_engine_config

    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.max_model_len = 4711
        return below(self, *args, **kwargs)

    EngineArgs.create_engine_config = create_engine_config
    setattr(EngineArgs, FLAG, True)
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    installed = install_model_owned_serving_defaults()
    for _ in range(3):
        register()
    return {"installed": installed, "launch": serve(model), "depth": depth(), "written": written()}


def test_an_older_hook_of_the_models_own_package_acts_alone(hook: HookServer, p3: str) -> None:
    """Ours stays out, one line names the other, and the values are the other's alone (C3-04)."""
    found = hook.run(older_hook, model=p3)
    assert (found["installed"], found["depth"]) == (False, 0)
    fields = ("max_model_len", "max_num_seqs", "gpu_memory_utilization")
    assert taken(found["launch"], *fields) == [4711, None, 0.92]
    assert found["launch"]["nvml"] == []
    assert "ZENIT_EFFECTIVE_MAX_MODEL_LEN" not in found["launch"]["env"]
    named = [line for line in found["written"].splitlines() if "ZENIT_MODEL_OWNED" in line]
    assert len(named) == 1
    assert "test_hook_registering" in named[0]


def without_device_ids(model: str) -> Launch:
    from vllm.engine.arg_utils import EngineArgs

    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    parsed(model)
    made = EngineArgs(model=model)
    del made.device_ids, EngineArgs.device_ids
    return launched(made.create_engine_config, "cuda")


def test_an_older_vllm_has_no_device_ids(hook: HookServer, p3: str) -> None:
    """The field is read with a default: no AttributeError, the same choice (C2-16)."""
    launch = hook.run(without_device_ids, model=p3)
    assert launch["raised"] is None
    assert choice(launch) == ("l1m", "widest_fitting")


def positional(model: str) -> list[Any]:
    from vllm.engine.arg_utils import EngineArgs

    heard: list[Any] = []

    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> None:
        heard.append([*args, kwargs, note_of(self)["fields"]["max_model_len"]])

    stand_in(create_engine_config)
    cards(H100_TOTAL, total_bytes=H100_TOTAL)
    EngineArgs(model=model, data_parallel_size=1).create_engine_config(None, True)
    EngineArgs(model=model, data_parallel_size=1).create_engine_config(None, headless=True)
    return heard


def test_headless_is_understood_and_handed_on_as_given(hook: HookServer, p3: str) -> None:
    """By place or by name: the nodes decide apart, and vLLM gets its arguments unchanged."""
    assert hook.run(positional, model=p3) == [[None, True, {}, 32768], [None, {"headless": True}, 32768]]
