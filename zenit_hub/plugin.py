"""The vLLM plug-in: what the entry point ``zenit_hub`` in the group ``vllm.general_plugins`` calls.

vLLM calls it in every process it starts, several times, and does not catch what it raises.
"""

from __future__ import annotations

import logging

from zenit_hub import say


def register() -> None:
    """Put the hook into this process. Never raises."""
    try:
        from zenit_hub.engine.hook import install

        install()
    except Exception as error:
        line = say.broken(
            "this vLLM lacks something that zenit_hub needs", f"{type(error).__name__}: {error}"
        )
        logging.getLogger(say.LOGGER).warning("%s", line)
