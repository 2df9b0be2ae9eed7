"""Strangers' strings in Markdown: whatever they hold, they are read as they were written, and stay in their place."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.card_pages import blocks, parts, tables, tokens
from zenit_hub.maintain.card.escape import Safe, code, relative_link, text
from zenit_hub.maintain.publish.readme import MARK_BEGIN, MARK_END
from zenit_hub.text import printable

NASTY = [
    "a | b",
    "a \\| b \\",
    "`x` ``y`` ```",
    "**bold** _it_ ~~no~~",
    "[a](javascript:alert(1)) ![i](http://x/i.png) [r]: x",
    "<script>alert(1)</script><!-- c --><b onclick=x>",
    "&lt;b&gt; &#42; &amp;",
    "https://evil.example www.evil.example a@b.example <https://x.example>",
    "# no head",
    "- [ ] todo",
    MARK_BEGIN,
    MARK_END,
    "$$x$$ \\(y\\) :rocket: @someone #12",
    "{{ config }} {% raw %}",
    "line\nbreak\r\n| a | b |\n|---|---|",
    "\u202e\u200b\ufeff\x1b[31m\x00",
]

strings = st.sampled_from(NASTY) | st.text(max_size=60) | st.text("|`*_<>[]()!#&\\~:@$ \n-x", max_size=40)


def check(table: str, written: str) -> None:
    ((_, (first, second, third)),) = tables(table)
    assert (first, third) == ("left", "right")
    assert second.strip() == written.replace("\u00a0", " ").strip()
    assert parts(table, "html_inline") == []
    assert parts(table, "link_open") == []
    assert parts(table, "image") == []
    assert [token.type for token in tokens(table)].count("table_open") == 1


@settings(deadline=None)
@given(strings)
@example("&Tab;")
@example("x" * 300)
def test_text_in_a_cell_is_read_as_it_was_written(value: str) -> None:
    """One cell, no markup, no link, no HTML: the very characters, control characters as escapes."""
    check(f"| a | b | c |\n|---|---|---|\n| left | {text(value)} | right |\n", printable(value))


@settings(deadline=None)
@given(strings)
def test_code_in_a_cell_is_read_as_it_was_written(value: str) -> None:
    """A back-tick and a bar too, which a code span could not hold."""
    shown = code(value)
    table = f"| a | b | c |\n|---|---|---|\n| left | {shown} | right |\n"
    ((_, cells),) = tables(table)

    assert len(cells) == 3
    assert cells[1].strip() == printable(value).replace("\u00a0", " ").strip()
    assert {part.content for part in parts(table, "html_inline")} <= {"<code>", "</code>"}


@settings(deadline=None)
@given(strings)
def test_text_in_a_sentence_and_a_picture_stays_there(value: str) -> None:
    page = f"Before {text(value)} after.\n\n![{text(value)}](x.png)\n"

    assert [token.type for token in tokens(page)].count("paragraph_open") == 2
    assert len(parts(page, "image")) == 1
    assert parts(page, "html_inline") == parts(page, "link_open") == blocks(page, "html_block") == []


@settings(deadline=None)
@given(strings)
def test_no_text_holds_a_marker(value: str) -> None:
    for shown in (text(value), code(value)):
        assert MARK_BEGIN not in shown
        assert MARK_END not in shown


@pytest.mark.parametrize(
    "path",
    ["a/b.json", "serving_profiles/m256k/nvidia-geforce-rtx-5090-0123456789ab.json", "A_1/b+c@d.json"],
)
def test_a_receipts_path_is_a_link(path: str) -> None:
    shown = relative_link(path)
    (link,) = parts(f"[receipt]({shown})", "link_open")

    assert str(link.attrs["href"]).replace("%2B", "+").replace("%40", "@") == path


@pytest.mark.parametrize(
    "path",
    [
        "../x.json",
        "a/../x.json",
        "/x.json",
        "a//x.json",
        "./x",
        "https://x.example/y",
        "a b",
        "a)b",
        "",
        "-x",
        "a\n",
    ],
)
def test_a_path_that_leads_elsewhere_is_no_link(path: str) -> None:
    assert relative_link(path) is None


def test_what_is_escaped_is_not_escaped_again() -> None:
    """It says so by its type."""
    assert isinstance(text("a|b"), Safe)
    assert isinstance(code("a"), Safe)
