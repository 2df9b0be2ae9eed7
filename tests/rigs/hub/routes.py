"""Which function answers which address."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from .faults import Faults
from .refusals import Kind, Refusal
from .wire import Answer, Call
from .world import World


@dataclass(frozen=True, slots=True)
class Context:
    """What every route may use. ``url`` has no slash at its end."""

    world: World
    faults: Faults
    url: str
    redirects: bool


Action = Callable[..., Answer]


@dataclass(frozen=True, slots=True)
class Route:
    """``{repo}`` is owner/name, ``{path*}`` the rest of the address, any other ``{name}`` one segment."""

    method: str
    pattern: re.Pattern[str]
    action: Action


def route(method: str, template: str, action: Action) -> Route:
    """A route from its template; HEAD is answered wherever GET is."""
    parts = re.split(r"(\{[a-z]+\*?\})", template)
    pattern = "".join(_group(part) if part.startswith("{") else re.escape(part) for part in parts)
    return Route(method, re.compile(pattern), action)


def _group(placeholder: str) -> str:
    name = placeholder.strip("{}*")
    if name == "repo":
        return r"(?P<repo>[^/]+/[^/]+?)"
    return f"(?P<{name}>.+)" if placeholder.endswith("*}") else f"(?P<{name}>[^/]+)"


def dispatch(routes: tuple[Route, ...], context: Context, call: Call) -> Answer:
    """Let the matching route answer. Matching comes before decoding: a revision may hold ``%2F``."""
    method = "GET" if call.method == "HEAD" else call.method
    for candidate in routes:
        match = candidate.pattern.fullmatch(call.target)
        if match and candidate.method == method:
            parts = {name: unquote(value) for name, value in match.groupdict().items()}
            return candidate.action(context, call, **parts)
    raise Refusal(Kind.NO_PAGE, "Sorry, we can't find the page you are looking for.")
