"""The vLLM plug-in: what the entry point ``zenit_hub`` in the group ``vllm.general_plugins`` calls.

vLLM calls it in every process it starts, several times, and does not catch what it raises.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys

from zenit_hub import env, say


def register() -> None:
    """Put the hook into this process. Never raises."""
    if os.environ.get(env.MEASURE_REPORT):
        _account_for_memory()
    if _builds_no_engine():
        return
    try:
        from zenit_hub.engine.hook import install

        install()
    except Exception as error:
        line = say.broken(
            "this vLLM lacks something that zenit_hub needs", f"{type(error).__name__}: {error}"
        )
        logging.getLogger(say.LOGGER).warning("%s", line)


def _account_for_memory() -> None:
    """In an engine that ``zenit-hub measure`` started, and in no other."""
    try:
        from zenit_hub.engine.measured import install

        install()
    except Exception as error:
        line = say.prefixed(f"the engine's own account of its memory is missing: {type(error).__name__}")
        logging.getLogger(say.LOGGER).warning("%s", line)


def _builds_no_engine() -> bool:
    """Engine cores, workers and the model inspection load plug-ins as well, and never make an ``EngineArgs``.

    They have not imported its module, which would cost each of them a part of a second.
    """
    if "vllm.engine.arg_utils" in sys.modules:
        return False
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    inspects = main is not None and main.name.startswith("vllm.model_executor.")
    return inspects or multiprocessing.parent_process() is not None
