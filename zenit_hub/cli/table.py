"""``plan`` for people: which window, why, what was rejected and by how much, and what to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from zenit_hub import plan
from zenit_hub.answer import Answer
from zenit_hub.cli.output import Sink
from zenit_hub.decision import Considered, Reason
from zenit_hub.text import gib, printable

REASONS: dict[Reason, str] = {
    "forced": "named by ZENIT_SERVING_PROFILE",
    "requested_length": "the smallest window that holds the length you asked for",
    "requested_beyond_widest": "no window is as wide as the length you asked for: the widest serves",
    "widest_fitting": "the widest window that fits the free memory",
    "unrated_fallback": "no measured window fits: the narrowest unmeasured one is tried",
    "nothing_fits": "nothing fits: the window that needs the least is tried",
    "default": "the repo's default",
    "off": "switched off by ZENIT_SERVING_PROFILE=off",
    "no_section": "the model carries no serving profiles",
    "other_architecture": "the profiles speak for another architecture",
    "unreadable": "the model's config.json cannot be used",
    "invalid": "the serving profiles cannot be used",
    "not_hub": "a model in cloud storage is not looked at",
    "no_default": "no measured profile takes part, and neither does a default",
}

MAX_COMMAND_LETTERS = 100_000

VERDICTS = {
    "fits": "fits",
    "too_large": "too large",
    "unrated": "not measured",
    "too_short": "too short",
    "other_layout": "for another number of devices",
    "compute_capability": "needs a newer card",
    "unknown_requirement": "has a condition that this version does not know",
    "invalid": "invalid",
    None: "memory not known",
}


def show(found: Answer, model: str, words: Sequence[str], sink: Sink) -> None:
    """Print the answer on stdout and its warnings on stderr."""
    chosen = found.chosen
    if chosen is None:
        sink.data(f"{printable(model)}: no profile: {REASONS[found.reason]}.")
        sink.data("vLLM starts with its own values.")
    else:
        profile = chosen.profile
        sink.data(
            f"{printable(model)}: profile {profile.name}, {profile.max_model_len} tokens: {REASONS[found.reason]}."
        )
        if profile.description:
            sink.data(f"  {printable(profile.description)}")
    for line in (*_memory(found), *_considered(found), *_values(found)):
        sink.data(line)
    if chosen is not None:
        assignments = [f"{name}={shlex.quote(value)}" for name, value in found.filling.env.items()]
        sink.data("\nthe same with every value explicit, also without this plug-in:")
        explicit = " ".join([*assignments, plan.command(model, words, found.filling.set)])
        sink.data(f"  {printable(explicit, limit=MAX_COMMAND_LETTERS)}")
        if found.refusal is None:
            sink.data("\nfor production, where a restart must not come back narrower:")
            production = plan.production_command(found, model, words)
            sink.data(f"  {printable(production, limit=MAX_COMMAND_LETTERS)}")
    for caution in found.cautions:
        sink.warning(f"{caution.message} [{caution.code}]")


def _memory(found: Answer) -> list[str]:
    seen = plan.memory(found.machine, found.chosen or found.decision.base)
    if seen is None:
        return []
    if seen["unknown"] is not None:
        return [f"memory: not known ({seen['unknown']})"]
    names = ", ".join(dict.fromkeys(printable(device["name"]) for device in seen["devices"]))
    line = f"memory: {gib(seen['free_bytes'])} free of {gib(seen['total_bytes'])} on {names}"
    return [f"{line}, budget {gib(seen['budget_bytes'])}" if seen["budget_bytes"] is not None else line]


def _considered(found: Answer) -> list[str]:
    if not found.decision.considered:
        return []
    rows = [("", "profile", "window", "needs", "verdict")]
    chosen = found.chosen.profile.name if found.chosen else None
    for name, considered in found.decision.considered.items():
        rows.append(_row("→" if name == chosen else "", name, considered))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        "",
        *(
            " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ),
    ]


def _row(mark: str, name: str, considered: Considered) -> tuple[str, str, str, str, str]:
    needs = "—" if considered.requires_free_bytes is None else gib(considered.requires_free_bytes)
    verdict = VERDICTS[considered.verdict]
    if considered.short_bytes:
        verdict += f" by {gib(considered.short_bytes)}"
    window = "—" if considered.max_model_len is None else str(considered.max_model_len)
    return mark, printable(name, limit=64), window, needs, verdict


def _values(found: Answer) -> list[str]:
    lines = []
    for title, values in (("set", found.filling.set), ("kept as you gave them", found.filling.kept)):
        if values:
            lines.append(
                f"{title}: " + ", ".join(f"{k}={printable(plan.plain(v))}" for k, v in values.items())
            )
    return ["", *lines] if lines else []
