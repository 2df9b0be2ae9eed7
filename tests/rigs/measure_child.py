"""``zenit-hub measure`` on the rigs' card with the stub engine: ``python -m tests.rigs.measure_child MODEL …``

Everything but the engine is the product's own: command line, guard, samplers, ballast, files.
``ZENIT_RIG_FULL_AFTER=n``: from the result after the n-th on, the disk of the output folder is full.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.rigs.stub_engine import STUB_ENGINE
from zenit_hub.cli import main as command_line
from zenit_hub.cli import measure
from zenit_hub.maintain.measure import results
from zenit_hub.maintain.measure.bench import Bench, bench_for
from zenit_hub.maintain.measure.launch import ServedEngine
from zenit_hub.maintain.measure.launches import Place
from zenit_hub.visible import Card

FULL_AFTER = "ZENIT_RIG_FULL_AFTER"
GRACE_S = 2.0


def main() -> int:
    measure._place = lambda: Place((sys.executable, "-S", str(STUB_ENGINE)), platform="cuda", bench=bench)
    if FULL_AFTER in os.environ:
        _fill_the_disk(int(os.environ[FULL_AFTER]))
    return command_line.main(["measure", *sys.argv[1:]])


def bench(platform: str, cards: Sequence[Card]) -> Bench:
    """The product's, with less patience for an engine that does not hear TERM."""
    return replace(bench_for(platform, cards), engine=lambda order: ServedEngine(order, grace_s=GRACE_S))


def _fill_the_disk(after: int) -> None:
    write, written = results.replace_file, []

    def full(path: Path, content: bytes) -> None:
        if path.suffix == ".json" and not path.name.startswith("zenit-hub-"):
            if len(written) >= after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            written.append(path)
        write(path, content)

    results.replace_file = full


if __name__ == "__main__":
    sys.exit(main())
