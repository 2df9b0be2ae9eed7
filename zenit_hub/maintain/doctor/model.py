"""Checks of the Hub, of a model, and of what would be chosen for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from zenit_hub import env
from zenit_hub.answer import Answer, NotHub
from zenit_hub.errors import ProfileNotDeclared
from zenit_hub.machine import Machine
from zenit_hub.maintain.doctor.check import Check, fail, ok, warn
from zenit_hub.maintain.doctor.facts import Facts, ModelRead, ModelUnread, Offline, Unreached
from zenit_hub.plan import REASONS
from zenit_hub.section import section_key
from zenit_hub.stage import NOTHING_TYPED, Stage, decide
from zenit_hub.text import gib, printable

TOKEN_PAGE = "https://huggingface.co/settings/tokens"
NO_SECTION = "carries no serving profiles: vLLM starts with its own values"


def hub(facts: Facts) -> Iterator[Check]:
    """Whether the Hub answers. A model that could be read all the same does not need it."""
    reach = facts.hub.reach
    if isinstance(reach, Offline):
        yield ok("hub", "not asked: HF_HUB_OFFLINE is set")
    elif isinstance(reach, Unreached):
        level = warn if isinstance(facts.model, ModelRead) else fail
        yield level(
            "hub",
            f"{reach.endpoint} cannot be used: {reach.why}",
            "check the network, HTTPS_PROXY and HF_ENDPOINT; a server without a network: export HF_HUB_OFFLINE=1, "
            "and serve a downloaded folder",
        )
    else:
        yield ok("hub", f"{reach.endpoint} answers")


def token(facts: Facts) -> Iterator[Check]:
    """Whether there is a token and the Hub accepts it; it is never shown."""
    found = facts.hub.token
    mended = (
        f"export {env.HUB_TOKEN}=<one of {TOKEN_PAGE}>, or unset {env.HUB_TOKEN}"
        if found.source == env.HUB_TOKEN
        else "hf auth login, or hf auth logout"
    )
    if found.state == "none":
        yield ok("token", "none: public repos only (`hf auth login` stores one)")
    elif found.state == "accepted":
        yield ok("token", f"of {found.account}, from {found.source}")
    elif found.state == "refused":
        what = f"the Hub does not accept the token from {found.source}; with it even public repos are refused"
        yield fail("token", what, mended)
    elif found.state == "malformed":
        what = f"the token from {found.source} has a character that cannot be sent (a line break, a blank?)"
        yield fail("token", what, mended)
    elif isinstance(facts.hub.reach, Offline):
        yield ok("token", f"not checked: {found.why}")
    else:
        yield warn("token", f"not checked: {found.why}", "mend what is said of the hub first, or try again")


def config(facts: Facts) -> Iterator[Check]:
    """Whether the model is there and has a config that can be read."""
    model = facts.model
    if model is None:
        return
    name = printable(model.name)
    if isinstance(model, ModelUnread):
        error = model.error
        then = error.next_step or error.allowed or "is the name right?"
        yield fail("model", error.what + _got(error.got), then)
    elif isinstance(model.found.config, NotHub):
        what = f"{name} is in cloud storage, where profiles are not looked at"
        yield warn("model", what, "download it, and name the folder")
    elif model.found.config is None:
        yield warn(
            "model", f"{name} has no config.json, and so no profiles", "is it the right folder or repo?"
        )
    else:
        at = f" at commit {model.found.commit}" if model.found.commit else ""
        yield ok("model", f"{name}{at}")


def _got(value: object) -> str:
    return "" if value is None else f": {value}"


def section(facts: Facts) -> Iterator[Check]:
    """What ``validate`` says, counted."""
    model = facts.model
    if not isinstance(model, ModelRead) or model.report is None:
        return
    see = _command("validate", model)
    findings = model.report.findings
    errors = [finding for finding in findings if finding.level == "error"]
    loaded = model.found.config
    if isinstance(loaded, Mapping) and section_key(loaded) is None and not errors:
        yield warn("section", f"the model {NO_SECTION}", f"{_command('init', model)} proposes a section")
    elif findings:
        first = (errors or findings)[0]
        place = f"{first.path}: " if first.path else ""
        counts = ", ".join(
            f"{count} {word}{'' if count == 1 else 's'}"
            for count, word in ((len(errors), "error"), (len(findings) - len(errors), "warning"))
            if count
        )
        level = fail if errors else warn
        yield level("section", f"{counts}, the first: {place}{first.message}", see)
    else:
        yield ok("section", "valid")


def choice(facts: Facts) -> Iterator[Check]:
    """What a launch from this shell would choose: the decision that the plug-in makes, and all that it warns of."""
    model = facts.model
    if not isinstance(model, ModelRead) or not isinstance(model.found.config, Mapping):
        return
    machine = facts.memory.machine or Machine("nvml")  # not looked at where there is none
    try:
        found = decide(model.found, model.name, NOTHING_TYPED, Stage(facts.around, lambda: machine))
    except ProfileNotDeclared as error:
        yield fail("choice", f"vLLM will refuse to start: {error.what}{_got(error.got)}", error.next_step)
        return
    if found.reason in ("no_section", "invalid"):
        return  # told already
    see = _command("plan", model)
    yield _chosen(found, facts, see)
    for caution in found.cautions:
        yield warn(f"choice: {caution.code}", caution.message, see)


def _chosen(found: Answer, facts: Facts, see: str) -> Check:
    chosen, why = found.chosen, REASONS[found.reason]
    if chosen is None:
        what = f"no profile, vLLM starts with its own values: {why}"
        return ok("choice", what) if found.reason == "off" else warn("choice", what, see)
    said = f"profile {chosen.profile.name}, {chosen.profile.max_model_len} tokens: {why}"
    if chosen.requirement_bytes is not None:
        said += f"; needs {gib(chosen.requirement_bytes)}"
    if chosen.budget_bytes is not None:
        said += f", its budget is {gib(chosen.budget_bytes)}"
    if env.strict(facts.around.environment) and found.refusal is not None:
        return fail("choice", f"{said}. {env.STRICT}=1 refuses this start", see)
    if found.decision.fits is False:
        return fail("choice", f"{said}. It does not fit", see)
    return ok("choice", said)


def _command(name: str, model: ModelRead) -> str:
    words = ["zenit-hub", name, model.name]
    words += ["--revision", model.revision] if model.revision is not None else []
    return printable(shlex.join(words), limit=1000)
