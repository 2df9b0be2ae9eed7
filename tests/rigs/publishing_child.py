"""Publishes, each order in a fork: ``python -m tests.rigs.publishing_child``.

A line on stdin is an order, ``{"url", "file", "cache", "answer", "pace"}``; the line that answers it is the number of
the process that carries it out. What came of it goes to ``answer``, which is not there while the process runs, nor
after it was killed.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from huggingface_hub import constants

from tests.rigs.publishing import OWNER, REPO, Somebody, config_of, measured, plain_block, text_of
from zenit_hub.errors import PublicationError
from zenit_hub.maintain.measurement import read_measurement, to_json
from zenit_hub.maintain.publish.advice import Asked
from zenit_hub.maintain.publish.content import load
from zenit_hub.maintain.publish.hub import Hub
from zenit_hub.maintain.publish.publish import Waits, publish
from zenit_hub.maintain.publish.retry import Pace
from zenit_hub.maintain.publish.watched import watched
from zenit_hub.maintain.validate import validate


def carried_out(order: dict[str, Any]) -> dict[str, Any]:
    """The outcome, or the error."""
    constants.HF_HUB_CACHE = order["cache"]
    content = load([Path(order["file"])], REPO, block=plain_block)
    hub = Hub(REPO, OWNER, endpoint=order["url"])
    asked = Asked(create_pr=order.get("create_pr", False))
    try:
        return asdict(publish(hub, content, asked, Somebody(), Waits(Pace(**order["pace"]))))
    except PublicationError as error:
        return {"outcome": "failed", "error": str(error)}


def warm_up() -> None:
    """Import what is imported late, once for all forks."""
    importlib.import_module("huggingface_hub.file_download")
    read_measurement(to_json(measured("s32k")).encode(), "warm up")
    validate(text_of(config_of("s32k")))
    watched(int, request_s=1, total_s=1)


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    warm_up()
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid:
            print(pid, flush=True)
            continue
        answer = Path(order["answer"])
        unfinished = answer.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(carried_out(order)), encoding="utf-8")
        unfinished.rename(answer)
        os._exit(0)


if __name__ == "__main__":
    main()
