"""A launch written down: the values of a decision, for places where the plug-in cannot be installed.

Three forms: the YAML that ``vllm serve --config`` takes, one command, and an environment file. What is in them
comes from :func:`zenit_hub.answer.answer` and from what the caller typed; a secret is in none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from zenit_hub import env, plan
from zenit_hub.apply import Filling
from zenit_hub.errors import ExportError
from zenit_hub.redact import redacted
from zenit_hub.serve_options import serve_options
from zenit_hub.text import printable

Form = Literal["vllm-yaml", "command", "env"]
FORMS: tuple[Form, ...] = ("vllm-yaml", "command", "env")

START_WITH_YAML = "vllm serve --config FILE"
START_WITH_ENV = f"sh -c 'set -f; exec vllm serve ${env.SERVE_ARGUMENTS}'"
"""How a container or a unit starts with an environment file: the words are split at blanks, and nothing else is
done to them."""

SECRET_VARIABLES = {"--api-key": "VLLM_API_KEY", "--hf-token": env.HUB_TOKEN}
"""Options whose secret vLLM also takes from a variable."""

_NOT_TAKEN = ("--model", "--config")
"""What a ``--config`` file says of the model, which the typed one overrules; ``--config=FILE``, which vLLM ignores."""

_COMMENT_LETTERS = 100_000

_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
"""What argparse takes for a negative number, and so for a value."""

_READ_DIFFERENTLY = re.compile(r"""[\\$`\x00-\x1f\x7f]|^["'#\s]|\s#|\s$""")
"""What the readers of environment files do not agree about: ``docker run --env-file`` takes a line as it is,
systemd reads backslashes and a quote at the start, Compose dollars and a ``#`` behind a blank as well."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One option as it was typed. ``flag``: its long name, where it has one.

    ``gathers``: typed again, it adds to its values instead of replacing them.
    """

    flag: str
    values: tuple[str, ...]
    gathers: bool = False

    @property
    def is_secret(self) -> bool:
        """Whether it holds one anywhere: a member of a JSON value, the user of a URL."""
        whole = [self.flag, *self.values]
        return redacted(whole) != whole

    @property
    def words(self) -> tuple[str, ...]:
        """It typed again, with its long name, so that argparse takes it wherever it stands."""
        if len(self.values) == 1 and (not self.values[0] or _begins_option(self.values[0])):
            return (f"{self.flag}={self.values[0]}",)
        return (self.flag, *self.values)


@dataclass(frozen=True, slots=True)
class Launch:
    """What is written down. ``note``: where the values come from, one line.

    ``typed`` are the caller's options, those in his ``--config`` file among them, without ``secrets``: the names of
    the options that were left out for holding one. ``filling``: what the plug-in would set.
    """

    model: str
    note: str
    typed: tuple[Typed, ...]
    secrets: tuple[str, ...]
    filling: Filling


def launch_of(model: str, options: Iterable[Typed], filling: Filling, note: str) -> Launch:
    """``options``: all that the caller typed, from :func:`options_of`."""
    every = tuple(each for each in options if each.flag not in _NOT_TAKEN)
    return Launch(
        model=plan.served(model),
        note=note,
        typed=tuple(each for each in every if not each.is_secret),
        secrets=tuple(dict.fromkeys(each.flag for each in every if each.is_secret)),
        filling=filling,
    )


def options_of(words: Iterable[str], version: str) -> tuple[Typed, ...]:
    """The options in ``words``, which are ``ServeArguments.ready``: read for ``version`` and accepted."""
    known = {flag: option for option in serve_options(version) for flag in option.flags}
    found: list[Typed] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if _begins_option(flag):
            option = known.get(flag)
            if option is not None and not flag.startswith("--"):
                flag = next((name for name in option.flags if name.startswith("--")), flag)
            gathers = option is not None and option.nargs == "append"
            found.append(Typed(flag, (value,) if equals else (), gathers))
        else:
            last = found.pop()
            found.append(replace(last, values=(*last.values, word)))
    return tuple(found)


def _begins_option(flag: str) -> bool:
    return len(flag) > 1 and flag.startswith("-") and not _NUMBER.fullmatch(flag) and " " not in flag


def written(launch: Launch, form: Form) -> str:
    """``launch`` in that form. Raises :class:`ExportError` where the form cannot hold it."""
    if form == "command":
        return as_command(launch)
    return as_yaml(launch) if form == "vllm-yaml" else as_environment(launch)


def as_command(launch: Launch) -> str:
    """One line for a shell: the environment, then ``vllm serve`` with every value explicit.

    Where a secret was left out that has a variable, the shell ends with an error unless that is set.
    """
    needed = [f'{name}="${{{name}:?}}"' for name in _secret_variables(launch)]
    words = [word for option in launch.typed for word in option.words]
    command = plan.command(launch.model, words, launch.filling.set)
    return " ".join([*needed, *plan.assignments(launch.filling.env), command])


def as_yaml(launch: Launch) -> str:
    """What ``vllm serve --config FILE`` takes. It cannot set environment variables: they stand as comments.

    vLLM drops a false in it, so what is off stands as ``no-…: true``.
    """
    entries: dict[str, Any] = {"model": launch.model}
    for option in launch.typed:
        key, value = _yaml_entry(option, entries)
        entries.pop(key, None)  # of several the last counts, also against its opposite
        entries[key] = value
    for name, value in launch.filling.set.items():
        key = name.replace("_", "-")
        entries |= {f"no-{key}": True} if value is False else {key: value}
    import yaml  # comes with huggingface_hub

    body: str = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=float("inf"))
    comments = [START_WITH_YAML]
    if launch.filling.env:
        comments.append("Variables of the profile, which this file cannot set; set them where you start:")
        comments += [f"  {pair}" for pair in plan.assignments(launch.filling.env)]
    return _headed(launch, comments, body.rstrip("\n"))


def _yaml_entry(option: Typed, before: Mapping[str, Any]) -> tuple[str, Any]:
    key = option.flag.removeprefix("--")
    if key == option.flag:
        raise _cannot_hold("vllm-yaml", option.flag, "has no long name")
    if option.gathers and key in before:
        raise _cannot_hold("vllm-yaml", option.flag, "is there more than once")
    if any(_begins_option(value) for value in option.values):
        raise _cannot_hold("vllm-yaml", option.flag, "has a value that begins with a dash")
    values = [_number_or_text(value) for value in option.values]
    return key, True if not values else values[0] if len(values) == 1 else values


def _number_or_text(word: str) -> int | str:
    """A number only where vLLM, which makes words of the values again, gets the same word."""
    return int(word) if re.fullmatch(r"0|[1-9][0-9]{0,17}", word) else word


def as_environment(launch: Launch) -> str:
    """``KEY=VALUE`` lines that ``docker run --env-file``, Compose, systemd and ``kubectl`` read alike.

    They have no quoting in common, so there is none: each value stands as it is, and one that they would read
    differently is refused. The engine's arguments travel in one variable, split by :data:`START_WITH_ENV`; quotes
    within it stay, so JSON survives.
    """
    explicit = [word for name, value in launch.filling.set.items() for word in plan.option(name, value)]
    typed = [_without_blanks(word, each.flag) for each in launch.typed for word in each.words]
    words = [_without_blanks(launch.model, "the model's name"), *typed, *explicit]
    variables = {**launch.filling.env, env.SERVE_ARGUMENTS: " ".join(words)}
    for name, value in variables.items():
        odd = _READ_DIFFERENTLY.search(value)
        if odd is not None:
            where = f"{name} (at {value[max(0, odd.start() - 10) : odd.end() + 10]!r})"
            raise _cannot_hold("env", where, "has a character that not every reader of such a file keeps")
    lines = [f"{name}={value}" for name, value in variables.items()]
    return _headed(launch, [START_WITH_ENV], "\n".join(lines))


def _without_blanks(word: str, what: str) -> str:
    """``word``; of JSON without the blanks between its parts."""
    if re.search(r"\s", word):
        with suppress(ValueError, RecursionError):
            word = json.dumps(json.loads(word), separators=(",", ":"), ensure_ascii=False)
    if re.search(r"\s", word):
        raise _cannot_hold("env", what, "has a blank in its value, and words are split there")
    return word


def _headed(launch: Launch, comments: Iterable[str], body: str) -> str:
    start, *others = comments
    lines = [launch.note, f"Start: {start}", *about_secrets(launch), *others]
    return "\n".join([*(f"# {printable(line, limit=_COMMENT_LETTERS)}" for line in lines), body])


def about_secrets(launch: Launch) -> Iterator[str]:
    """A sentence for each option that was left out."""
    for flag in launch.secrets:
        variable = SECRET_VARIABLES.get(flag)
        then = f"set {variable} where you start" if variable else "type it where you start"
        yield f"{flag} holds a secret and is left out: {then}."


def _secret_variables(launch: Launch) -> list[str]:
    return [SECRET_VARIABLES[flag] for flag in launch.secrets if flag in SECRET_VARIABLES]


def _cannot_hold(form: Form, what: str, why: str) -> ExportError:
    others = " or ".join(f"--format {other}" for other in FORMS if other != form)
    return ExportError(
        f"{printable(what, limit=120)} {why}, so it cannot stand in the form {form}",
        next_step=f"Take {others}, or leave it out here and type it where you start.",
    )
