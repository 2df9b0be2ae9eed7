"""Checks of the devices and of the host's memory."""

from __future__ import annotations

from collections.abc import Iterator

from zenit_hub import budget, env
from zenit_hub.machine import Device, Machine
from zenit_hub.maintain.doctor.check import Check, fail, ok, warn
from zenit_hub.maintain.doctor.facts import Facts, Holder
from zenit_hub.section import UTILIZATION
from zenit_hub.text import gib, printable
from zenit_hub.visible import Card, Sight, Unresolved, see_cards

LOW_HOST_BYTES = 4 * 2**30
"""Twice what the processes of one engine took beside their weights: 2 GiB (PSS of all of them, a tiny checkpoint on
vLLM 0.32, CPU build)."""

SHOWN_HOLDERS = 5

_NEXT = {
    "LibRmVersionMismatch": "reboot, or reload the driver: sudo modprobe -r nvidia_uvm nvidia && sudo modprobe nvidia",
    "LibraryNotFound": "install the NVIDIA driver; a container gets it with `docker run --gpus all`. Then: nvidia-smi",
    "DriverNotLoaded": "sudo modprobe nvidia",
    "NoPermission": "ls -l /dev/nvidia* (who may open them?)",
    "OperatingSystem": "in a container: docker run --gpus all",
    "ModuleNotFound": "pip install nvidia-ml-py",
    "GpuIsLost": "reboot",
    "Timeout": "nvidia-smi (if it hangs too: reboot)",
}
"""NVML's error, which stands in brackets at the end of its words → what to type."""


def driver(facts: Facts) -> Iterator[Check]:
    """Whether NVML answers. Without it no memory is known, and a CUDA engine will hardly start."""
    platform, machine = facts.around.platform, facts.memory.machine
    if platform == "cpu":
        yield ok("driver", "not asked: this vLLM is built for CPUs")
    elif machine is None:
        yield ok("driver", f"not asked: on {platform} no memory is looked at; name a profile or a length")
    elif machine.driver_error is not None:
        what = f"the free memory of the cards is not known: {machine.driver_error}"
        level = warn if facts.installed.vllm is None else fail
        yield level("driver", what, _next(machine.driver_error))
    elif not machine.devices:
        yield fail("driver", "NVML answers and lists no card", "nvidia-smi -L")
    else:
        version = f"NVIDIA driver {printable(facts.memory.driver)}, " if facts.memory.driver else ""
        yield ok("driver", f"{version}{_count(len(machine.devices))}")


def _next(words: str) -> str:
    return _NEXT.get(words.rpartition("(")[2].rstrip(")"), "nvidia-smi")


def _count(cards: int) -> str:
    return f"{cards} card{'' if cards == 1 else 's'}"


def _sight(facts: Facts) -> tuple[Machine, Sight] | None:
    """What a launch from this shell sees; ``None`` where NVML says nothing."""
    machine = facts.memory.machine
    if facts.around.platform != "cuda" or machine is None or machine.driver_error is not None:
        return None
    return machine, see_cards(machine, facts.around.environment, None)


def cards(facts: Facts) -> Iterator[Check]:
    """Each card: how much is free for a launch, and who has the rest."""
    seen = _sight(facts)
    if seen is None:
        return
    machine, sight = seen
    visible = [card for card in (*sight.cards, *sight.could_be) if isinstance(card, Card)]
    for device in machine.devices:
        shown = list(dict.fromkeys(card for card in visible if card.index == device.index))
        yield from (_card(card, device, facts) for card in shown)
        if not shown:
            yield ok(
                f"card {device.index}", f"{_named(device.name, device.uuid)}: not visible from this shell"
            )


def _card(card: Card, device: Device, facts: Facts) -> Check:
    name, title = f"card {device.index}", _named(card.name, card.uuid)
    if card.error is not None or card.free_bytes is None or card.total_bytes is None:
        error = card.error or "no memory figures"
        return fail(name, f"{title}: its free memory is not known: {error}", _next(error))
    gate = budget.gate(card.free_bytes, card.total_bytes)
    default = facts.around.engine.defaults[UTILIZATION]
    said = f"{title}: {gib(card.free_bytes)} free of {gib(card.total_bytes)}"
    if gate > 0 and isinstance(default, (int, float)) and gate >= budget.exact(default):
        capability = card.compute_capability
        return ok(name, f"{said}, compute capability {capability[0]}.{capability[1]}" if capability else said)
    said += f". {_held_by(facts.memory.holders.get(device.index))}"
    elsewhere = _emptier(card, facts)
    if gate <= 0:
        return fail(name, f"{said}. Nothing starts here", f"end what holds it{elsewhere}")
    most = f"{float(gate):g}"
    return warn(
        name,
        f"{said}. vLLM's own {UTILIZATION} of {default:g} is refused here; profiles lower it to {most} at most",
        f"end what holds it{elsewhere}; without a profile: --gpu-memory-utilization {most}",
    )


def _named(name: str, uuid: str | None) -> str:
    return f"{printable(name) or 'a card'}{f' ({printable(uuid)})' if uuid else ''}"


def _held_by(holders: tuple[Holder, ...] | None) -> str:
    if not holders:
        return "NVML names nobody who holds the rest (it does not, from within a container)"
    shown = [
        f"{holder.name} (pid {holder.pid})" if holder.name else f"pid {holder.pid}"
        for holder in holders[:SHOWN_HOLDERS]
    ]
    sizes = [f" {gib(h.used_bytes)}" if h.used_bytes is not None else "" for h in holders[:SHOWN_HOLDERS]]
    more = len(holders) - SHOWN_HOLDERS
    listed = ", ".join(f"{who}{size}" for who, size in zip(shown, sizes, strict=True))
    return f"Held by {listed}{f' and {more} more' if more > 0 else ''}"


def _emptier(card: Card, facts: Facts) -> str:
    """Another card that has more free, for the end of a sentence."""
    seen = _sight(facts)
    others = [] if seen is None else [each for each in seen[0].devices if each.index != card.index]
    best = max(others, key=lambda device: device.free_bytes or 0, default=None)
    if best is None or (best.free_bytes or 0) <= (card.free_bytes or 0) or best.slices:
        return ""
    name = best.uuid or str(best.index)
    return f", or take the card with {gib(best.free_bytes or 0)} free: export {env.VISIBLE_DEVICES}={printable(name)}"


def visible(facts: Facts) -> Iterator[Check]:
    """``CUDA_VISIBLE_DEVICES`` and ``CUDA_DEVICE_ORDER``, as CUDA reads them."""
    seen = _sight(facts)
    if seen is None or not seen[0].devices:
        return
    machine, sight = seen
    setting = facts.around.environment.get(env.VISIBLE_DEVICES)
    said = "not set" if setting is None else f"“{printable(setting)}”"
    entries = len(machine.devices) if setting is None else len(setting.split(","))
    wrong = [card for card in sight.cards if isinstance(card, Unresolved)]
    unset = f"unset {env.VISIBLE_DEVICES}, or name cards of `nvidia-smi -L`"
    if wrong:
        yield fail(env.VISIBLE_DEVICES, f"{said}: {wrong[0].why}", unset)
    elif not sight.cards:
        yield fail(env.VISIBLE_DEVICES, f"{said} hides every card", unset)
    elif len(sight.cards) < entries:
        what = f"{said}: CUDA stops reading behind {_count(len(sight.cards))}"
        yield warn(env.VISIBLE_DEVICES, what, unset)
    elif sight.could_be:
        what = f"{said}, and the cards are unlike: CUDA numbers the fastest first, nvidia-smi and vLLM's logs by bus"
        yield warn(env.DEVICE_ORDER, what, f"export {env.DEVICE_ORDER}={env.BUS_ORDER}")
    else:
        yield ok(env.VISIBLE_DEVICES, f"{said}: {_count(len(sight.cards))} of {len(machine.devices)}")


def host(facts: Facts) -> Iterator[Check]:
    """The host's memory, which engines need beside the cards', and on the CPU platform instead."""
    memory = facts.memory
    if facts.around.platform == "cpu":
        yield _cpu(facts)
    elif memory.host is None:
        yield warn("host memory", "it cannot be read (/proc/meminfo)")
    else:
        free_bytes, said = memory.host.available_bytes, f"{gib(memory.host.available_bytes)} available"
        said += f" of {gib(memory.host.total_bytes)}"
        if memory.cgroup is not None:
            left_bytes = max(0, memory.cgroup.limit_bytes - memory.cgroup.used_bytes)
            free_bytes = min(free_bytes, left_bytes)
            said += f"; the control group allows {gib(memory.cgroup.limit_bytes)}, of which {gib(left_bytes)} are left"
        yield _enough(free_bytes, said)


def _cpu(facts: Facts) -> Check:
    machine = facts.memory.machine
    if machine is None or machine.host is None:
        return fail("host memory", "it cannot be read, and it is what this vLLM serves from")
    free_bytes, total_bytes = machine.host.available_bytes, machine.host.total_bytes
    limit = facts.memory.cgroup
    where = f", in a control group of {gib(limit.limit_bytes)}" if limit is not None else ""
    return _enough(
        free_bytes, f"{gib(free_bytes)} available of {gib(total_bytes)}, as the engine sees it{where}"
    )


def _enough(free_bytes: int, said: str) -> Check:
    if free_bytes >= LOW_HOST_BYTES:
        return ok("host memory", said)
    what = f"{said}: an engine's own processes may not find room in it and be killed"
    return warn("host memory", what, "end other processes, or give the container more memory")
