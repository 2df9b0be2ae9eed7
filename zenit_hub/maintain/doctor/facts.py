"""What is known before anything is checked. ``None`` is unknown wherever nothing else is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from zenit_hub.errors import ZenitHubError
from zenit_hub.machine import Host, Machine, Surroundings
from zenit_hub.maintain.validate import Report
from zenit_hub.read import Found


@dataclass(frozen=True, slots=True)
class Installed:
    """This Python's environment.

    ``vllm``: the version, ``None``: not installed. ``plugins``: the names under which general plug-ins of vLLM are
    registered. ``other_python``: the interpreter of the ``vllm`` that a shell finds, where it is another one's.
    """

    python: tuple[int, int, int]
    interpreter: str
    vllm: str | None
    plugins: tuple[str, ...]
    other_python: str | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a card. ``name`` only where its number is one of this machine's own."""

    pid: int
    used_bytes: int | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The limit of this process's control group."""

    limit_bytes: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Devices and host. ``machine``: what a decision gets; ``None`` where the platform is not looked at.

    ``holders``: a card's index → who holds its memory; a card is missing where NVML does not tell.
    """

    machine: Machine | None
    driver: str | None = None
    holders: Mapping[int, tuple[Holder, ...]] = field(default_factory=dict)
    host: Host | None = None
    cgroup: Cgroup | None = None


TokenState = Literal["none", "accepted", "refused", "malformed", "unchecked"]


@dataclass(frozen=True, slots=True)
class Token:
    """The Hub token, never itself. ``source``: where it comes from; ``account``: whose it is; ``why``: unchecked."""

    state: TokenState
    source: str = ""
    account: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Offline:
    """``HF_HUB_OFFLINE``: nobody was asked."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The Hub at ``endpoint`` answered."""

    endpoint: str


@dataclass(frozen=True, slots=True)
class Unreached:
    """It did not, or something else answered: ``why``."""

    endpoint: str
    why: str


Reach = Offline | Reached | Unreached


@dataclass(frozen=True, slots=True)
class Hub:
    """The Hub and what it says of the token."""

    reach: Reach
    token: Token


@dataclass(frozen=True, slots=True)
class ModelRead:
    """``report``: of ``validate``, ``None`` where there is no ``config.json``."""

    name: str
    revision: str | None
    found: Found
    report: Report | None


@dataclass(frozen=True, slots=True)
class ModelUnread:
    """There is no such model, or it could not be read in time."""

    name: str
    error: ZenitHubError


Model = ModelRead | ModelUnread


@dataclass(frozen=True, slots=True)
class Facts:
    """All of it. ``around``: the engine that is assumed, its platform, and the environment."""

    installed: Installed
    around: Surroundings
    memory: Memory
    hub: Hub
    model: Model | None = None
