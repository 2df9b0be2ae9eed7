"""The block between our markers in a model card; the rest of the card as it was."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zenit_hub.errors import PublicationError
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END, block_of, with_block

HEADER = """---
license: apache-2.0
# a comment that no YAML library keeps
summary: >
  A long folded string that goes on
  and on over several lines,
  with a colon: and "quotes"
version: 1.10
tags: [b, a]
---
"""
TABLE = "| window | needs |\n|---|---|\n| 32k | 10 GiB |"
NEW = "| window | needs |\n|---|---|\n| 32k | 9 GiB |\n| 256k | 24 GiB |"
README = f"{HEADER}\n# Model\n\n{MARK_BEGIN}\n{TABLE}\n{MARK_END}\n\nEnd — ohne Zeilenende"


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


line_ends = pytest.mark.parametrize("readme", [README, crlf(README)], ids=["LF", "CRLF"])


# --- C5-01


@line_ends
def test_only_the_lines_between_the_markers_change(readme: str) -> None:
    """Header bytes identical, with its comment, its folded string and 1.10; line ends kept."""
    after = with_block(readme.encode(), NEW).decode()

    table, new = (crlf(TABLE), crlf(NEW)) if "\r\n" in readme else (TABLE, NEW)
    assert after == readme.replace(table, new)
    assert after.startswith(crlf(HEADER) if "\r\n" in readme else HEADER)
    assert after.count("\n") == after.count("\r\n") or "\r\n" not in readme


@line_ends
def test_without_markers_it_is_refused_with_what_to_do(readme: str) -> None:
    bare = readme.replace(MARK_BEGIN, "").replace(MARK_END, "").encode()

    with pytest.raises(PublicationError, match=r"has no markers .* `--init-card` adds them at the end"):
        with_block(bare, NEW)


@line_ends
def test_with_init_card_the_markers_come_at_the_end_after_an_empty_line(readme: str) -> None:
    bare = readme.replace(MARK_BEGIN, "").replace(MARK_END, "")
    end = f"\n\n{MARK_BEGIN}\n{NEW}\n{MARK_END}\n"

    after = with_block(bare.encode(), NEW, init_card=True).decode()

    assert after == bare + (crlf(end) if "\r\n" in readme else end)


# --- markers


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\n \t", "\r\n", "\r"])
def test_one_empty_line_stands_before_added_markers(end: str) -> None:
    before = f"# Model{end}"

    after = with_block(before.encode(), NEW, init_card=True).decode()

    assert after.startswith(before)
    lines = after.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    at = lines.index(MARK_BEGIN)
    assert [line.strip() for line in lines[:at]] == ["# Model", ""]


def test_with_init_card_a_repo_without_readme_gets_one() -> None:
    assert with_block(None, NEW, init_card=True).decode() == f"{MARK_BEGIN}\n{NEW}\n{MARK_END}\n"
    with pytest.raises(PublicationError, match=r"there is no README\.md"):
        with_block(None, NEW)


def test_init_card_changes_nothing_where_markers_are() -> None:
    assert with_block(README.encode(), NEW, init_card=True) == with_block(README.encode(), NEW)


@pytest.mark.parametrize("init_card", [False, True])
@pytest.mark.parametrize(
    ("readme", "words"),
    [
        (f"# M\n{MARK_BEGIN}\n", f"line 2: the marker {MARK_END} is missing"),
        (f"# M\n\n{MARK_END}\n", f"line 3: the marker {MARK_BEGIN} is missing"),
        (f"{MARK_BEGIN}\n{MARK_END}\n{MARK_BEGIN}\n{MARK_END}\n", "line 3: the marker"),
        (f"{MARK_BEGIN}\n{MARK_END}\n{MARK_END}\n", "line 3: the marker"),
        (f"{MARK_END}\n{MARK_BEGIN}\n", "line 1: the card ends before it begins"),
        (f"---\na: 1\n{MARK_BEGIN}\n{MARK_END}\n---\n", "line 3: the card begins within the YAML header"),
        (f"\n---\na: 1\n{MARK_BEGIN}\n---\n{MARK_END}\n", "line 4: the card begins within the YAML header"),
        (f"\ufeff---\r\n{MARK_BEGIN}\r\n---\r\n{MARK_END}", "line 2: the card begins within the YAML header"),
        (f"a {MARK_BEGIN}\n{MARK_END}\n", "line 1: the marker"),
        (f"{MARK_BEGIN}\n{MARK_END} b\n", "line 2: the marker"),
        (f"{MARK_BEGIN}{MARK_END}\n", "line 1: the marker"),
    ],
)
def test_markers_that_are_not_one_pair_are_refused_with_the_line(
    readme: str, words: str, init_card: bool
) -> None:
    with pytest.raises(PublicationError) as caught:
        with_block(readme.encode(), NEW, init_card=init_card)

    assert words in str(caught.value)
    assert caught.value.next_step
    with pytest.raises(PublicationError):
        block_of(readme.encode())


def test_a_rule_below_the_text_is_no_yaml_header() -> None:
    readme = f"# M\n\n---\n{MARK_BEGIN}\n{MARK_END}\n---\n"

    assert NEW in with_block(readme.encode(), NEW).decode()


@pytest.mark.parametrize(
    ("readme", "words"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer"),
        (b"# M\n\xff\n", "not UTF-8 (line 2)"),
    ],
)
def test_what_is_no_text_is_refused(readme: bytes, words: str) -> None:
    with pytest.raises(PublicationError) as caught:
        with_block(readme, NEW, init_card=True)
    assert words in str(caught.value)


@pytest.mark.parametrize("block", [f"a\n{MARK_END}\nb", f"{MARK_BEGIN}"])
def test_a_block_cannot_hold_a_marker(block: str) -> None:
    with pytest.raises(PublicationError, match="holds a marker"):
        with_block(README.encode(), block)


# --- reading it again


@line_ends
def test_the_block_is_read_as_it_was_written(readme: str) -> None:
    assert block_of(readme.encode()) == TABLE
    assert block_of(with_block(readme.encode(), f"{NEW}\n")) == NEW


def test_without_markers_there_is_no_block() -> None:
    assert block_of(b"# Model\n") is None
    assert block_of(b"") is None


def test_an_empty_block_leaves_the_markers() -> None:
    after = with_block(README.encode(), "")

    assert f"{MARK_BEGIN}\n{MARK_END}\n" in after.decode()
    assert block_of(after) == ""


LINES = st.lists(st.text(alphabet="ab| —\t", max_size=5), max_size=4)
BLOCKS = LINES.map(lambda lines: "\n".join([*lines, "|"]))
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@settings(max_examples=60, deadline=None)
@given(above=LINES, below=LINES, old=LINES, block=BLOCKS, end=ENDS)
def test_any_card_keeps_what_is_not_ours_and_a_second_time_changes_nothing(
    above: list[str], below: list[str], old: list[str], block: str, end: str
) -> None:
    head = "".join(f"{line}{end}" for line in [*above, MARK_BEGIN])
    tail = end.join([MARK_END, *below])
    readme = head + "".join(f"{line}{end}" for line in old) + tail

    after = with_block(readme.encode(), block)

    assert after.decode() == head + block.replace("\n", end) + end + tail
    assert with_block(after, block) == after
    assert block_of(after) == block


@settings(max_examples=60, deadline=None)
@given(readme=st.text(alphabet="ab-\n\r —#", max_size=20), block=BLOCKS)
def test_added_markers_leave_every_byte_before_them(readme: str, block: str) -> None:
    after = with_block(readme.encode(), block, init_card=True)

    assert after.startswith(readme.encode())
    assert block_of(after) == block
    assert with_block(after, block) == after


# --- blocks of code

PAIR = f"{MARK_BEGIN}\n{MARK_END}"


@pytest.mark.parametrize(
    "shown",
    [
        f"```html\n{PAIR}\n```\n",
        f"~~~~\n```\n~~~\n{PAIR}\n~~~~~\n",
        f"   ````\n```\n{PAIR}\n  ```` \n",
    ],
)
def test_markers_in_a_block_of_code_are_only_shown(shown: str) -> None:
    """A card that tells of its own markers keeps them, and the real ones below count."""
    readme = f"{HEADER}# Model\n\n{shown}\n{MARK_BEGIN}\nOLD\n{MARK_END}\n"

    assert with_block(readme.encode(), NEW).decode() == readme.replace("OLD", NEW)
    with pytest.raises(PublicationError, match="has no markers"):
        with_block(shown.encode(), NEW)
    assert (
        with_block(shown.encode(), NEW, init_card=True).decode().startswith(f"{shown}\n{MARK_BEGIN}\n{NEW}")
    )


def test_what_opens_no_block_of_code_hides_nothing() -> None:
    """Code within a line, an indented fence, one in the YAML header, and whatever the old card held."""
    before = "---\na: |\n  ```\n---\n``` `x` ```\n    ```\n"
    readme = f"{before}{MARK_BEGIN}\n```\ncut off\n{MARK_END}\n"

    assert with_block(readme.encode(), NEW).decode() == f"{before}{MARK_BEGIN}\n{NEW}\n{MARK_END}\n"


def test_markers_are_not_added_into_a_block_of_code() -> None:
    """One that does not end would swallow the card: refused with its line."""
    with pytest.raises(PublicationError, match=r"line 3: the block of code that begins here does not end"):
        with_block(b"# Model\n\n```bash\nls\n", NEW, init_card=True)


def test_millions_of_lines_are_stepped_over() -> None:
    """Only the lines that may tell something are looked at."""
    readme = "\n" * 4_000_000 + f"{MARK_BEGIN}\nold\n{MARK_END}\nx\n{MARK_END}\n"

    with pytest.raises(PublicationError, match=r"line 4000005: .* stands there 2 times"):
        with_block(readme.encode(), NEW)
