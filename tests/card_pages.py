"""A card as a page shows it: Markdown read the way the Hub and GitHub read it, tables included."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PAGE = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

Table = list[list[str]]
"""Rows of cells, the head first; a cell as the words that a person reads."""


def tokens(markdown: str) -> list[Token]:
    return _PAGE.parse(markdown)


def words(token: Token) -> str:
    """What stands there for a reader, without its looks."""
    said = []
    for part in token.children or ():
        if part.type in ("text", "code_inline", "text_special"):
            said.append(part.content)
        elif part.type == "softbreak" or part.content == "<br>":
            said.append("\n")
    return "".join(said).replace("\u00a0", " ")


def tables(markdown: str) -> list[Table]:
    found: list[Table] = []
    inside = False
    for token in tokens(markdown):
        if token.type == "table_open":
            found.append([])
            inside = True
        elif token.type == "table_close":
            inside = False
        elif inside and token.type == "tr_open":
            found[-1].append([])
        elif inside and token.type == "inline":
            found[-1][-1].append(words(token))
    return found


def parts(markdown: str, kind: str) -> list[Token]:
    """All inline parts of a kind: ``link_open``, ``image``, ``html_inline``."""
    return [part for token in tokens(markdown) for part in token.children or () if part.type == kind]


def blocks(markdown: str, kind: str) -> list[str]:
    """The contents of all blocks of a kind: ``html_block``, ``fence``."""
    return [token.content for token in tokens(markdown) if token.type == kind]
