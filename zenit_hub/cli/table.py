"""``plan`` for people: which window, why, what was rejected and by how much, and what to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zenit_hub import plan
from zenit_hub.answer import Answer
from zenit_hub.cli.output import Sink
from zenit_hub.decision import Considered
from zenit_hub.plan import REASONS
from zenit_hub.text import gib, printable

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
    for line in (*_memory(found), *_considered(found, sink), *_values(found)):
        sink.data(line)
    if chosen is not None:
        assignments = plan.assignments(found.filling.env)
        sink.data("\nthe same with every value explicit, also without this plug-in:")
        explicit = " ".join([*assignments, plan.command(model, words, found.filling.set)])
        sink.data(f"  {printable(explicit, limit=MAX_COMMAND_LETTERS)}")
        if found.refusal is None:
            sink.data("\nfor production, where a restart must not come back narrower:")
            production = plan.production_command(found, model, words)
            sink.data(f"  {printable(production, limit=MAX_COMMAND_LETTERS)}")
    _warn(found, sink)


def show_name(found: Answer, sink: Sink) -> None:
    """The chosen profile's name alone, for a script; warnings are warnings all the same."""
    if found.chosen is not None:
        sink.data(found.chosen.profile.name)
    _warn(found, sink)


def _warn(found: Answer, sink: Sink) -> None:
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


def _considered(found: Answer, sink: Sink) -> list[str]:
    if not found.decision.considered:
        return []
    rows = [("", "profile", "window", "needs", "verdict")]
    chosen = found.chosen.profile.name if found.chosen else None
    for name, considered in found.decision.considered.items():
        rows.append(_row("→" if name == chosen else "", name, considered))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if sink.width is not None and max(map(len, lines)) > sink.width:
        lines = [line for row in rows[1:] for line in _stacked(*row)]
    return ["", *(sink.paint(line, "bold") if line.startswith("→") else line for line in lines)]


def _stacked(mark: str, name: str, window: str, needs: str, verdict: str) -> Iterator[str]:
    """A row for a terminal that is too narrow for the table: the name stays whole, it may have to be typed."""
    yield f"{mark or ' '} {name}"
    yield f"    window {window}, needs {needs}"
    yield f"    {verdict}"


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
