"""Looking at everything at once: what hangs keeps nothing else from being told, and all is told in time."""

from __future__ import annotations

import importlib
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from zenit_hub.deadline import begun, within
from zenit_hub.device import look_at_cards, look_at_host
from zenit_hub.errors import ModelNotFound, ZenitHubError
from zenit_hub.files import read_limited
from zenit_hub.host import read_cgroup, read_system
from zenit_hub.installed import vllm_version
from zenit_hub.limits import MAX_CONFIG_BYTES
from zenit_hub.machine import Machine, Platform
from zenit_hub.maintain.doctor.facts import Cgroup, Facts, Installed, Memory, Model, ModelRead, ModelUnread
from zenit_hub.maintain.doctor.holders import ask_nvml
from zenit_hub.maintain.doctor.hub import ask_hub, unreached
from zenit_hub.maintain.meaning import Asked
from zenit_hub.maintain.validate import validate
from zenit_hub.nvml_words import in_words
from zenit_hub.read import Found, config_bytes, find_config, hub_repo, local_config
from zenit_hub.stage import this_machine
from zenit_hub.text import printable

T = TypeVar("T")

GATHER_S = 9.0
"""For everything together; the rest of ten seconds is for Python's start."""

HOLDERS_S = 2.0
PLUGIN_GROUP = "vllm.general_plugins"
_SHEBANG_BYTES = 256


def gather(model: str | None = None, revision: str | None = None) -> Facts:
    """All facts. Raises nothing: what went wrong is a fact."""
    until_s = time.monotonic() + GATHER_S
    around = this_machine().around
    memory = begun(lambda: look_at_memory(around.platform))
    # Two threads need it: what they import at the same time, each could meet half made.
    importlib.import_module("huggingface_hub.file_download")
    hub = begun(ask_hub)
    reading = begun(lambda: read_model(model, revision)) if model is not None else None
    installed = look_at_installation()
    read: Model | None = None
    if model is not None and reading is not None:
        late: Model = ModelUnread(model, ModelNotFound("it could not be read in time", got=printable(model)))
        read = _in_time(reading, until_s, late)
    return Facts(
        installed,
        around,
        memory=_in_time(memory, until_s, Memory(Machine("nvml", driver_error=in_words("Timeout")))),
        hub=_in_time(hub, until_s, unreached("no answer in time")),
        model=read,
    )


def _in_time(wait: Callable[[float], T], until_s: float, late: T) -> T:
    try:
        return wait(max(0.1, until_s - time.monotonic()))
    except TimeoutError:
        return late


def look_at_installation() -> Installed:
    """Package metadata and ``PATH``; nothing of vLLM is imported."""
    from importlib.metadata import entry_points

    return Installed(
        python=sys.version_info[:3],
        interpreter=sys.executable,
        vllm=vllm_version(),
        plugins=tuple(sorted({each.name for each in entry_points(group=PLUGIN_GROUP)})),
        other_python=_other_python(),
    )


def _other_python() -> str | None:
    """The interpreter behind the ``vllm`` that a shell finds, where it is of another environment."""
    command = shutil.which("vllm")
    if command is None:
        return None
    try:
        with Path(command).open("rb") as file:
            first = file.read(_SHEBANG_BYTES).split(b"\n")[0].decode("utf-8", "replace")
    except OSError:
        return None
    # Of `#!/usr/bin/env python3` and of a script for a shell nobody knows whose it is.
    interpreter = first.removeprefix("#!").strip()
    if not first.startswith("#!/") or not Path(interpreter).name.startswith("python"):
        return None
    return None if Path(interpreter).parent == Path(sys.executable).parent else printable(interpreter)


def look_at_memory(platform: Platform) -> Memory:
    """Devices, who holds them, the host. Takes 7 s at most."""
    limit_bytes, used_bytes = read_cgroup()
    host = read_system()
    cgroup = None
    if limit_bytes is not None and (host is None or limit_bytes < host.total_bytes):
        cgroup = Cgroup(limit_bytes, used_bytes)
    if platform == "cpu":
        return Memory(look_at_host(), host=host, cgroup=cgroup)
    if platform != "cuda":
        return Memory(None, host=host, cgroup=cgroup)
    machine = look_at_cards()
    if machine.driver_error is not None:
        return Memory(machine, host=host, cgroup=cgroup)
    try:
        driver, holders = within(HOLDERS_S, ask_nvml)
    except TimeoutError:
        driver, holders = None, {}
    return Memory(machine, driver, holders, host, cgroup)


def read_model(model: str, revision: str | None) -> Model:
    """The config as a launch would find it, and what ``validate`` says of it."""
    try:
        found = find_config(model, revision)
        data = _raw(model, found)
    except ZenitHubError as error:
        return ModelUnread(model, error)
    except OSError as error:
        return ModelUnread(model, ModelNotFound(f"it cannot be read: {error.strerror}", got=printable(model)))
    report = None if data is None else validate(data, Asked(hub_id=hub_repo(model) if found.repo else None))
    return ModelRead(model, revision, found, report)


def _raw(model: str, found: Found) -> bytes | None:
    """The bytes of the ``config.json``; those of a Hub repo are in the cache by now."""
    if found.config is None:
        return None
    if found.repo is not None:
        return config_bytes(model, found.commit)
    local = local_config(model)
    return None if local is None else read_limited(local, MAX_CONFIG_BYTES)
