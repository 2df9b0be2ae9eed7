"""What stands in the shell blocks of the pages is typed, one after the other; what they show is what comes out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from typing import cast, get_args

import pytest
import yaml

from tests import pages
from tests.rigs.desk import Clone, Desk, Kind, make_clone

pytestmark = (
    pytest.mark.engine
)  # the stub engine starts, environments are made, and a second for each command

TYPED = [page for page in pages.PAGES if any(block.runs for block in pages.blocks(page))]
OWN_TESTS = [".docs/ci.md", ".docs/editors.md"]
"""In ``test_docs_models.py``: what those blocks do is looked at more closely."""


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return make_clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def desks() -> Iterator[list[Desk]]:
    made: list[Desk] = []
    yield made
    for desk in made:
        desk.close()


@pytest.mark.parametrize("page", [page for page in TYPED if page not in OWN_TESTS])
def test_the_blocks_of_a_page_do_what_they_show(page: str, clone: Clone, desks: list[Desk]) -> None:
    """From the first to the last, at one desk unless a block asks for a fresh one."""
    done: subprocess.CompletedProcess[str] | None = None
    for before, block in pairwise([None, *pages.blocks(page)]):
        if block is None:
            continue
        if not desks or "desk" in block.notes:
            desks.append(Desk(kind(block)))
        if block.runs:
            done = desks[-1].type(block.text, clone=clone if "at" in block.notes else None)
            assert done.returncode == 0, f"{block}: {done.stdout}"
        elif block.language == "text" and block.follows and before is not None and before.runs:
            assert done is not None
            assert missing(block.text, done.stdout) == [], f"{block}: {done.stdout}"
        elif "is" in block.notes:
            shown, there = block.text, (desks[-1].place / block.notes["is"]).read_text()
            assert yaml.safe_load(shown) == yaml.safe_load(there), block


def kind(block: pages.Block) -> Kind:
    """``fresh`` where the page does not say."""
    named = block.notes.get("desk", "fresh")
    assert named in get_args(Kind), block
    return cast("Kind", named)


def missing(shown: str, written: str) -> list[str]:
    """The shown lines that were not written, in that order. ``…`` is anything; alone on a line, any lines."""
    rest = written.splitlines()
    skips, lost = False, []
    for line in shown.splitlines():
        if line == "…":
            skips = True
            continue
        pattern = re.escape(line).replace("…", ".*")
        places = [number for number, there in enumerate(rest) if re.fullmatch(pattern, there)]
        if not places or (places[0] > 0 and not skips):
            lost.append(line)
        rest, skips = rest[places[0] + 1 :] if places else rest, False
    return [*lost, *(rest if not skips else [])]


def test_a_line_that_was_not_written_is_missed() -> None:
    """And one that was written and is not shown."""
    assert missing("a\nb …\n…\nz\n", "a\nb c\nd\ne\nz\n") == []
    assert missing("a\nz\n", "a\nb\nz\n") == ["z"]
    assert missing("a\n", "a\nb\n") == ["b"]
    assert missing("…\nx\n", "a\nb\n") == ["x", "a", "b"]
