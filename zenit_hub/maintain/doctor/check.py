"""What a check comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """``next``: what to type or to do; ``None`` where there is nothing to do, or ``message`` says it."""

    name: str
    status: Status
    message: str
    next: str | None = None


def ok(name: str, message: str) -> Check:
    return Check(name, "ok", message)


def warn(name: str, message: str, then: str | None = None) -> Check:
    return Check(name, "warn", message, then)


def fail(name: str, message: str, then: str | None = None) -> Check:
    return Check(name, "fail", message, then)
