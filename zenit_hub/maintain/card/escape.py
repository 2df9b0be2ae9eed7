"""Strangers' strings on their way into Markdown, where none of them may become anything but text.

A section, a receipt and a device's name are data from the internet. In a table cell, a link or a line of
prose each of them stays where it was put: no markup, no HTML, no second cell, no marker of ours.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from zenit_hub.text import printable

_MARKUP = re.compile(r"[\\`*_{}\[\]<>&|#!~:@\"'$^=]|(?<=www)\.", re.IGNORECASE)
"""What Markdown, HTML or a page's formulas and links could take for their own. As a character reference each
of them is text alone: CommonMark lets no reference begin or end anything."""

_PLAIN_CODE = re.compile(r"[A-Za-z0-9 ._/+,=@-]+")
_SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@-]*")


class Safe(str):
    """Markdown of our own, or what was escaped: put in as it stands."""

    __slots__ = ()


def text(value: object, *, limit: int = 200) -> Safe:
    """``value`` as text on one line, in a cell or a sentence (not at the beginning of a line)."""
    shown = printable(value, limit=limit)
    return Safe(_MARKUP.sub(lambda found: f"&#{ord(found[0])};", shown))


def code(value: object) -> Safe:
    """``value`` in the typeface of code."""
    if _PLAIN_CODE.fullmatch(str(value)):
        return Safe(f"`{value}`")
    return Safe(f"<code>{text(value)}</code>")


def relative_link(path: str) -> Safe | None:
    """``path`` as the target of a link to a file of the repo; ``None`` where it could lead anywhere else."""
    if not all(_SEGMENT.fullmatch(segment) for segment in path.split("/")):
        return None
    return Safe(quote(path, safe="/"))
