"""The wrapper around ``EngineArgs.create_engine_config``: decide, fill, say; then vLLM's own function.

Outside strict mode nothing but a name that is not declared leaves it as an exception: whatever goes wrong
here is one line, and vLLM starts as if this package were not there.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from zenit_hub import env, launch, say
from zenit_hub.answer import Answer, Look, answer
from zenit_hub.caller import Caller
from zenit_hub.device import look_at_cards, look_at_host
from zenit_hub.engine import typed
from zenit_hub.engine.cluster import look_through_ray
from zenit_hub.engine.config import Source, read_config
from zenit_hub.engine.facts import installed_engine, let_vllm_log, platform
from zenit_hub.errors import ProfileNotDeclared, StrictRefusal
from zenit_hub.machine import Surroundings
from zenit_hub.section import UTILIZATION
from zenit_hub.text import printable

FLAG = "_zenit_serving_profiles_installed"
"""On ``EngineArgs``: a hook of this kind is in, ours or the older one of the model's own package."""

_OURS = "_zenit_hub_hook"
"""On ``EngineArgs``: ours is in, whatever was put around it since."""

_log = logging.getLogger(say.LOGGER)
_publisher = launch.Publisher()


_applied = typed.Marks()
"""What was written into an ``EngineArgs``: it may be asked for its config twice."""


def install() -> bool:
    """Put the hook in. ``False`` where one is in already, ours or another of its kind."""
    from vllm.engine.arg_utils import EngineArgs

    if getattr(EngineArgs, _OURS, False):
        return False
    if getattr(EngineArgs, FLAG, False):
        _name_the_other(EngineArgs.create_engine_config)
        return False
    typed.watch()
    EngineArgs.create_engine_config = _wrapped(EngineArgs.create_engine_config)
    setattr(EngineArgs, _OURS, True)
    setattr(EngineArgs, FLAG, True)
    return True


@functools.cache
def _name_the_other(function: Any) -> None:
    """Once, and not in the processes that the launcher starts."""
    if multiprocessing.parent_process() is not None:
        return
    module = getattr(function, "__globals__", {}).get("__name__", type(function).__module__)
    _log.warning(
        "%s",
        say.prefixed(
            f"{printable(module)} has put a hook for serving profiles in already: it acts alone, and ours "
            f"stays out. To have ours, uninstall the other, or leave its name out of VLLM_PLUGINS."
        ),
    )


def _wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        # (usage_context, headless) since 0.25.1
        prepare(self, headless=bool(kwargs.get("headless", args[1] if len(args) > 1 else False)))
        return original(self, *args, **kwargs)

    return create_engine_config


def prepare(engine_args: Any, *, headless: bool = False) -> None:
    """Fill what the caller left alone. Raises ``ValueError`` as the strict mode and a forced name ask for."""
    try:
        let_vllm_log(engine_args)
        _prepare(engine_args, headless)
    except (ProfileNotDeclared, StrictRefusal):
        raise
    except Exception as error:
        _log.warning(say.broken("something of zenit_hub went wrong", f"{type(error).__name__}: {error}"))


def _prepare(engine_args: Any, headless: bool) -> None:
    before = _applied.get(engine_args)
    if before is not None and all(
        getattr(engine_args, name, None) == value for name, value in before.items()
    ):
        return
    caller, seen = typed.caller_of(engine_args, os.environ, headless=headless, ours=before)
    key = launch.launch_key(
        str(engine_args.model), getattr(engine_args, "revision", None), caller, os.environ
    )
    handed = launch.take(key, os.environ) if _is_api_server(engine_args) else None
    if handed is not None:
        _write(engine_args, handed.filling.set)
        return
    _publisher.withdraw(os.environ)
    found = _decide(engine_args, caller)
    if found is None:
        return
    _say(found, engine_args if not seen else None)
    if env.strict(os.environ) and found.refusal is not None:
        raise StrictRefusal(f"{say.REPAIR_ID} {env.STRICT}=1 refuses this start: {found.refusal}")
    _write(engine_args, found.filling.set)
    _publisher.publish(found.filling.env, os.environ)
    _warn_of_late_allocator(found)
    # Where nothing was decided, only API servers need to know: they would look, and say so, again.
    if getattr(engine_args, "_api_process_rank", 0) < 0 or found.reason not in ("no_section", "not_hub"):
        profile = found.chosen.profile.name if found.chosen else None
        launch.hand_down(key, profile, found.filling, os.environ)


def _is_api_server(engine_args: Any) -> bool:
    """Whether this is one of several processes of a launch: the launcher has rank −1, or is alone with rank 0."""
    rank = getattr(engine_args, "_api_process_rank", 0)
    several = getattr(engine_args, "_api_process_count", 1) > 1
    return rank >= 0 and (several or multiprocessing.parent_process() is not None)


def _decide(engine_args: Any, caller: Caller) -> Answer | None:
    if env.forced_profile(os.environ) == env.OFF:
        return None
    found, trouble = read_config(Source.of(engine_args))
    if trouble is not None:
        if found.repo is not None and env.strict(os.environ):
            raise StrictRefusal(f"{say.REPAIR_ID} {env.STRICT}=1 refuses this start: {trouble}")
        _log.info("%s", say.prefixed(f"{trouble}: vLLM starts without profiles."))
    if found.repo is not None:
        caller = dataclasses.replace(caller, repo=found.repo)
    on = platform()
    around = Surroundings(on, installed_engine(), dict(os.environ))
    look: Look = look_at_host if on == "cpu" else look_at_cards
    if on == "cuda" and caller.uses_ray:
        look = look_through_ray
    return answer(found.config, caller, around, look, getattr(engine_args, "device_ids", None))


def _say(found: Answer, unseen: Any) -> None:
    """Once a launch. ``unseen``: the ``EngineArgs`` whose maker could not be watched, else ``None``."""
    for line in say.warnings(found):
        _log.warning("%s", line)
    # LLM(...)'s first engine: a value that equals the default may have been typed all the same.
    # The utilization, which LLM itself hands on, comes first.
    names = [name for name in found.filling.set if getattr(unseen, name, None) is not None]
    names.sort(key=lambda name: name != UTILIZATION)
    for line in (*([say.unseen(names)] if names else []), *say.lines(found)):
        _log.info("%s", line)


def _write(engine_args: Any, values: Mapping[str, Any]) -> None:
    before = {name: getattr(engine_args, name) for name in values}
    try:
        for name, value in values.items():
            setattr(engine_args, name, value)
    except Exception:
        # All or nothing, as far as the object lets us.
        for name, value in before.items():
            if getattr(engine_args, name) is not value:
                setattr(engine_args, name, value)
        raise
    _applied.put(engine_args, dict(values))


def _warn_of_late_allocator(found: Answer) -> None:
    torch = sys.modules.get("torch")
    if env.ALLOCATOR in found.filling.env and torch is not None and torch.cuda.is_initialized():
        _log.warning(
            "%s",
            say.prefixed(
                f"{env.ALLOCATOR} comes too late for this process, where CUDA is initialised already; "
                f"the engine's own processes get it. Set it before Python starts to have it here."
            ),
        )
