"""What stands behind ``vllm serve MODEL``, understood as vLLM understands it, without vLLM.

The options are those of the version asked for (:mod:`zenit_hub.serve_options`). vLLM's parser and this one
both stand on the standard library's argparse, so that abbreviations, and the words that an option takes,
come out alike.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn

from zenit_hub.compat import NEWEST_SUPPORTED, engine_facts
from zenit_hub.errors import UsageError
from zenit_hub.redact import SECRET_OPTIONS, redacted, without_secrets
from zenit_hub.serve_config import with_config
from zenit_hub.serve_options import SWITCH, ServeOption, is_newer_than_read, serve_options
from zenit_hub.serve_values import malformed, reader
from zenit_hub.serve_words import Refused, dashed, prepared
from zenit_hub.text import printable

__all__ = ["SECRET_OPTIONS", "ServeArguments", "read_arguments", "redacted"]

_MODEL = "MODEL"
"""Stands for the model, which comes before the words and is not ours to read."""

_SWAP_SPACE = ServeOption("swap_space", ("--swap-space",), "float")
"""Gone from vLLM since 0.18, and still a field that a profile may name: known by its whole name, always."""


@dataclass(frozen=True, slots=True)
class ServeArguments:
    """What was typed behind ``vllm serve MODEL``. The values may hold secrets: no ``repr`` shows them."""

    values: Mapping[str, Any] = field(repr=False)
    """``dest`` → value of every option that was typed or stands in the ``--config`` file, of the type that
    vLLM makes of it. What vLLM makes a config class of is the ``dict`` before that (``compilation_config``,
    ``kv_transfer_config``); ``max_model_len`` is −1 for ``auto``."""
    yaml_false: frozenset[str]
    """``dest`` of the options that the ``--config`` file sets to a plain ``false``, which vLLM drops; without
    those that have a value after all."""
    words: tuple[str, ...] = field(repr=False)
    """The words as given."""
    unknown: tuple[str, ...] = field(default=(), repr=False)
    """The words that passed by: options that this version of vLLM does not know, with their values."""
    ready: tuple[str, ...] = field(default=(), repr=False)
    """The words as vLLM's parser gets them: those of the ``--config`` file in front, names with dashes."""


def read_arguments(words: Sequence[str], version: str = NEWEST_SUPPORTED) -> ServeArguments:
    """Read ``words`` as ``vllm serve MODEL`` of ``version`` would.

    Options that vLLM does not know pass by with their values. Everything else that it refuses while it reads
    its command line is a :class:`UsageError`, which shows no secret. Reads the ``--config`` file, if any.
    """
    if any(word == "--model" or word.startswith("--model=") for word in words):
        raise UsageError("vllm serve would refuse --model beside the model", next_step="Leave --model out.")
    expanded, false_keys = with_config(words)
    ready = expanded
    try:
        ready = prepared(expanded)
        namespace, rest = _parser(version).parse_known_args([_MODEL, *ready])
        unknown = _passing_by(rest, _short_flags(version))
        if "--" in ready:
            raise Refused("-- ends the options, and no word may follow them")
    except Refused as refusal:
        sentence = without_secrets(str(refusal), [*words, *expanded, *ready])
        raise UsageError(f"vllm serve would refuse this: {printable(sentence)}") from None
    values = vars(namespace)
    del values["model_tag"]
    _check_what_fails_later(values, version)
    dests = _dests(version)
    false = {dests[flag] for flag in dashed([f"--{key}" for key in false_keys]) if flag in dests}
    yaml_false = frozenset(false - values.keys())
    return ServeArguments(MappingProxyType(values), yaml_false, tuple(words), unknown, tuple(ready))


class _Parser(argparse.ArgumentParser):
    """argparse without exits and output."""

    def error(self, message: str) -> NoReturn:
        raise Refused(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """The options that this may abbreviate: one that vLLM does not have makes nothing ambiguous."""
        return [found for found in super()._get_option_tuples(option_string) if found[0].dest != "swap_space"]


class _Switch(argparse.Action):
    """``--x`` and its opposites. vLLM's own (``BooleanOptionalAction``) learned ``--disable-x`` in 0.33."""

    def __init__(self, option_strings: Sequence[str], dest: str, default: str, off: frozenset[str]) -> None:
        super().__init__(option_strings, dest, nargs=0, default=default)
        self.off = off

    def __call__(self, parser: object, namespace: object, values: object, flag: str | None = None) -> None:
        setattr(namespace, self.dest, flag not in self.off)


class _Help(argparse.Action):
    def __call__(self, *_arguments: object, **_options: object) -> None:
        raise Refused("--help shows vLLM's options and starts nothing; type vllm serve --help")


@cache
def _parser(version: str) -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("model_tag", nargs="?")
    options = parser.add_argument_group()  # a group tries no help text for each option: three times faster
    options.add_argument("-h", "--help", action=_Help, nargs=0)
    for option in (*serve_options(version), _SWAP_SPACE):
        _add(options, option)
    return parser


def _add(options: Any, option: ServeOption) -> None:
    if option.type == SWITCH:
        how: dict[str, Any] = {"action": _Switch, "off": option.off}
    elif option.type == "flag":
        how = {"action": "store_true", "default": argparse.SUPPRESS}
    elif option.nargs == "append":
        how = {"action": "append", "type": reader(option)}
    elif option.nargs == "?":
        how = {"nargs": "?", "const": True, "type": reader(option)}  # the bare --hf-token is true
    else:
        how = {"nargs": option.nargs, "type": reader(option)}
    options.add_argument(*option.flags, dest=option.dest, **how)


@cache
def _dests(version: str) -> Mapping[str, str]:
    """Flag → ``dest``, of the flags that do not switch off."""
    return {f: option.dest for option in serve_options(version) for f in option.flags if f not in option.off}


@cache
def _short_flags(version: str) -> tuple[str, ...]:
    return ("-O", *(f for option in serve_options(version) for f in option.flags if not f.startswith("--")))


def _passing_by(rest: Sequence[str], short_flags: tuple[str, ...]) -> tuple[str, ...]:
    """The words that belong to unknown options. A word that belongs to none is vLLM's refusal.

    So is a short flag with its value glued to it (``-tp2``): nobody meant an option of that name.
    """
    if rest and not rest[0].startswith("-"):
        raise Refused(f"{' '.join(rest)} is no option and belongs to none (a switch takes no value)")
    for word in rest:
        if word.startswith(short_flags):
            raise Refused(f"{word} is no option (type a space or = between a short flag and its value)")
    return tuple(rest)


def _check_what_fails_later(values: Mapping[str, Any], version: str) -> None:
    """Malformed values that vLLM's parser lets through, and its configuration refuses before anything loads.

    ``--kv-cache-dtype``: 0.33 takes any name at first. ``--hf-overrides``: JSON with a brace missing is text.
    """
    dtype, allowed = values.get("kv_cache_dtype"), engine_facts(version).kv_cache_dtypes
    if dtype is not None and dtype not in allowed and not is_newer_than_read(version):
        raise malformed("--kv-cache-dtype", dtype, ", ".join(sorted(allowed)))
    overrides = values.get("hf_overrides")
    if isinstance(overrides, str):
        raise malformed("--hf-overrides", overrides, "a JSON object in braces")
