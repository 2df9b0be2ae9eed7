"""All checks, in the order in which they are told; each is a function of the facts.

``fail``: serving with profiles does not work so. ``warn``: it works, with less or otherwise than one may think.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zenit_hub import env
from zenit_hub.compat import NEWEST_SUPPORTED, OLDEST_SUPPORTED, PROFILE_FIELDS, release
from zenit_hub.maintain.doctor import memory, model
from zenit_hub.maintain.doctor.check import Check, fail, ok, warn
from zenit_hub.maintain.doctor.facts import Facts
from zenit_hub.maintain.shape import closest
from zenit_hub.serve_options import serve_options
from zenit_hub.text import printable

NEWEST_PYTHON = (3, 13)
"""The newest that the tests run on."""

PLUGIN = "zenit_hub"
OURS = (env.PROFILE, env.STRICT, env.KEEP)
_PREFIX = "ZENIT_SERVING_"
_FALSE = ("", "0", "false", "no", "off")


def examine(facts: Facts) -> list[Check]:
    """Every check of :data:`CHECKS`; those of a model only where one was named."""
    return [check for function in CHECKS for check in function(facts)]


def python(facts: Facts) -> Iterator[Check]:
    """The interpreter that this environment belongs to."""
    version = ".".join(map(str, facts.installed.python))
    said = f"{version} ({printable(facts.installed.interpreter)})"
    if facts.installed.python[:2] > NEWEST_PYTHON:
        newest = ".".join(map(str, NEWEST_PYTHON))
        yield warn("python", f"{said} is newer than {newest}, the newest that this was tested with")
    else:
        yield ok("python", said)


def vllm(facts: Facts) -> Iterator[Check]:
    """Whether an engine is in this environment, and one that is supported."""
    installed = facts.installed
    if installed.other_python is not None:
        there = f"the `vllm` of your shell is another environment's ({installed.other_python})"
        then = f"in a clone of zenit_hub: {installed.other_python} -m pip install ."
        if installed.vllm is None:
            yield fail("vllm", f"{there}, and zenit-hub is not in it: there it adds nothing", then)
            return
        yield warn("vllm on PATH", f"{there} and not this one's", then)
    if installed.vllm is None:
        yield warn(
            "vllm",
            "not installed: nothing is served here. All but serving and measuring works",
            f"{printable(installed.interpreter)} -m pip install 'vllm>={OLDEST_SUPPORTED}'",
        )
        return
    yield _of_version(installed.vllm, facts)


def _of_version(version: str, facts: Facts) -> Check:
    said, numbers = f"{printable(version)} for {facts.around.platform}", release(version)
    supported = f"{OLDEST_SUPPORTED} to {NEWEST_SUPPORTED}"
    install = f"{printable(facts.installed.interpreter)} -m pip install"
    if not numbers:
        return warn("vllm", f"{said} has no number in it: taken for {NEWEST_SUPPORTED}")
    if numbers < release(OLDEST_SUPPORTED):
        then = f"{install} 'vllm>={OLDEST_SUPPORTED}'"
        return fail("vllm", f"{said} is too old: {supported} are supported", then)
    if numbers[:2] > release(NEWEST_SUPPORTED)[:2]:
        what = f"{said} is newer than what this zenit-hub knows ({supported}): what is new in it is not known"
        return warn("vllm", what, "look for a newer zenit-hub")
    return ok("vllm", f"{said} ({supported} are supported)")


def plugin(facts: Facts) -> Iterator[Check]:
    """Whether vLLM will load us: registered in this environment, and not left out by ``VLLM_PLUGINS``."""
    if PLUGIN not in facts.installed.plugins:
        yield fail(
            "plug-in",
            "vLLM's entry point zenit_hub is not registered here: the package was not installed, only found",
            f"in a clone of zenit_hub: {printable(facts.installed.interpreter)} -m pip install .",
        )
        return
    allowed = facts.around.environment.get(env.PLUGINS)
    if allowed is not None and PLUGIN not in allowed.split(","):
        names = ",".join([*(name for name in allowed.split(",") if name.strip() not in ("", PLUGIN)), PLUGIN])
        yield fail(
            "plug-in",
            f"{env.PLUGINS}={printable(allowed)} leaves zenit_hub out: vLLM starts as if it were not installed "
            f"(the names are compared as they stand, blanks included)",
            f"export {env.PLUGINS}={printable(names)}, or unset it",
        )
        return
    beside = [printable(name) for name in facts.installed.plugins if name != PLUGIN]
    yield ok("plug-in", f"registered, beside {', '.join(beside)}" if beside else "registered")


def environment(facts: Facts) -> Iterator[Check]:
    """What this shell says about profiles."""
    there = facts.around.environment
    found = [*_profile(facts), *_strict(facts), *_keep(facts), *_strays(facts)]
    if there.get(env.MODELSCOPE, "").lower() == "true":
        what = f"{env.MODELSCOPE} is on: models come from ModelScope, where their profiles are not looked at"
        found.append(warn(env.MODELSCOPE, what, "name a local folder, or unset it"))
    yield from found or [ok("environment", f"none of {', '.join(OURS)} is set")]


def _profile(facts: Facts) -> Iterator[Check]:
    forced = env.forced_profile(facts.around.environment)
    if forced == env.OFF:
        what = "off: vLLM starts as if this package were not there"
        yield warn(env.PROFILE, what, f"unset {env.PROFILE}")
    elif forced is not None:
        yield ok(env.PROFILE, f"{printable(forced)}: memory does not choose")


def _strict(facts: Facts) -> Iterator[Check]:
    value = facts.around.environment.get(env.STRICT)
    if value is None:
        return
    if env.strict(facts.around.environment):
        yield ok(env.STRICT, "on: a launch that would run with less than its profile says is refused")
    elif value.strip().lower() in _FALSE:
        yield ok(env.STRICT, "off")
    else:
        yield warn(env.STRICT, f"{printable(value)} is taken for off", f"export {env.STRICT}=1")


def _keep(facts: Facts) -> Iterator[Check]:
    names = env.kept_fields(facts.around.environment)
    known = {option.dest for option in serve_options(facts.around.engine.version)} | PROFILE_FIELDS
    strange = [name for name in names if name not in known]
    for name in strange:
        meant = closest(name, sorted(known))
        then = f"did you mean {meant}?" if meant else "leave it out"
        yield warn(env.KEEP, f"{printable(name, limit=80)} is no engine argument and keeps nothing", then)
    if names and not strange:
        yield ok(env.KEEP, f"kept as they are: {', '.join(names)}")


def _strays(facts: Facts) -> Iterator[Check]:
    """Variables that nobody meant to set in a shell."""
    there = facts.around.environment
    for name in sorted(name for name in there if name.startswith(_PREFIX)):
        if name == env.HANDED_DOWN:
            yield warn(name, "it belongs to the processes of one launch, not into a shell", f"unset {name}")
        elif name not in OURS:
            meant = _similar(name)
            then = f"did you mean {meant}?" if meant else f"unset {printable(name)}"
            yield warn(printable(name, limit=80), "there is no such variable: it does nothing", then)
    for name in env.PUBLISHED:
        if name in there and name.startswith("ZENIT_"):
            what = "it is set here, and so stands against what any profile says"
            yield warn(name, what, f"unset {name}, unless it is meant")


def _similar(name: str) -> str | None:
    suffix = closest(name.removeprefix(_PREFIX), [ours.removeprefix(_PREFIX) for ours in OURS])
    return suffix and f"{_PREFIX}{suffix}"


CHECKS: tuple[Callable[[Facts], Iterable[Check]], ...] = (
    python,
    vllm,
    plugin,
    memory.driver,
    memory.cards,
    memory.visible,
    memory.host,
    model.hub,
    model.token,
    environment,
    model.config,
    model.section,
    model.choice,
)
"""The last three say nothing where no model was named."""
