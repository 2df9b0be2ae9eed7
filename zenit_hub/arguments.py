"""What stands behind ``vllm serve MODEL``, understood as vLLM understands it, without vLLM.

The rules are those of ``FlexibleArgumentParser.parse_args`` (``utils/argparse_utils.py``, the same from 0.25.1 to
0.33.0), the options those of the version asked for (:mod:`zenit_hub.serve_options`). Both parsers stand on
the standard library's argparse, so that abbreviations and the words that an option takes come out alike.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, NoReturn

from zenit_hub.compat import NEWEST_SUPPORTED, engine_facts
from zenit_hub.errors import UsageError
from zenit_hub.redact import HIDDEN, SECRET_OPTIONS, redacted
from zenit_hub.serve_config import with_config
from zenit_hub.serve_options import SWITCH, ServeOption, is_newer_than_read, serve_options
from zenit_hub.serve_values import human_int, reader
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
    """``dest`` → value of every option that was typed or stands in the ``--config`` file, typed as vLLM has it, but
    an object of a config class is the ``dict`` that it is made of; ``max_model_len`` is −1 for ``auto``."""
    yaml_false: frozenset[str]
    """``dest`` of the options with a plain ``false`` in the ``--config`` file, which vLLM drops, and no value."""
    words: tuple[str, ...] = field(repr=False)
    """The words as given."""
    unknown: tuple[str, ...] = field(default=(), repr=False)
    """The words that passed by: options that this version of vLLM does not know, with their values."""


def read_arguments(words: Sequence[str], version: str = NEWEST_SUPPORTED) -> ServeArguments:
    """Read ``words`` as ``vllm serve MODEL`` of ``version`` would.

    Options that vLLM does not know pass by with their values. Everything else that it refuses while it
    reads its command line is a :class:`UsageError`, which shows no secret.
    """
    expanded, false_keys = with_config(words)
    prepared = expanded
    try:
        prepared = _collected(_dashed(expanded))
        namespace, rest = _parser(version).parse_known_args([_MODEL, *prepared])
        unknown = _passing_by(rest)
    except _Refused as refusal:
        hidden = _without_secrets(str(refusal), [*words, *expanded, *prepared])
        raise UsageError(f"vllm serve would refuse this: {printable(hidden)}") from None
    values = vars(namespace)
    del values["model_tag"]
    _check_kv_cache_dtype(values.get("kv_cache_dtype"), version)
    dests = _dests(version)
    false = frozenset(dests[flag] for flag in _dashed([f"--{key}" for key in false_keys]) if flag in dests)
    return ServeArguments(MappingProxyType(values), false - values.keys(), tuple(words), unknown)


class _Refused(Exception):
    """What vLLM's parser would exit with."""


class _Parser(argparse.ArgumentParser):
    """argparse without exits and output."""

    def error(self, message: str) -> NoReturn:
        raise _Refused(message)

    def _get_option_tuples(self, option_string: str) -> list[Any]:
        """The options that ``option_string`` may abbreviate: what vLLM does not have makes nothing ambiguous."""
        return [match for match in super()._get_option_tuples(option_string) if match[0].dest != _SWAP_SPACE.dest]


class _Switch(argparse.Action):
    """``--x`` and its opposites. vLLM's own (``BooleanOptionalAction``) learned ``--disable-x`` in 0.33."""

    def __init__(self, *arguments: Any, off: frozenset[str], **options: Any) -> None:
        super().__init__(*arguments, nargs=0, **options)
        self.off = off

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, option_string not in self.off)


class _Help(argparse.Action):
    def __call__(self, *arguments: Any, **options: Any) -> None:
        raise _Refused("--help shows vLLM's options and starts nothing; type vllm serve --help")


@cache
def _parser(version: str) -> _Parser:
    parser = _Parser(prog="vllm serve", add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("model_tag", nargs="?")
    options = parser.add_argument_group()  # a group's add_argument formats no help: 320 options in 4 ms, not 12
    options.add_argument("-h", "--help", action=_Help, nargs=0)
    for option in (*serve_options(version), _SWAP_SPACE):
        _add(options, option)
    return parser


def _add(options: Any, option: ServeOption) -> None:
    if option.type == SWITCH:
        options.add_argument(*option.flags, dest=option.dest, action=_Switch, off=option.off)
    elif option.type == "flag":
        options.add_argument(*option.flags, dest=option.dest, action="store_true", default=argparse.SUPPRESS)
    elif option.nargs == "append":
        options.add_argument(*option.flags, dest=option.dest, action="append", type=reader(option))
    elif option.nargs == "?":  # the bare flag is true: --hf-token
        options.add_argument(*option.flags, dest=option.dest, nargs="?", const=True, type=reader(option))
    else:
        options.add_argument(*option.flags, dest=option.dest, nargs=option.nargs, type=reader(option))


@cache
def _dests(version: str) -> Mapping[str, str]:
    """Flag → ``dest``, of the flags that do not switch off."""
    return {f: option.dest for option in serve_options(version) for f in option.flags if f not in option.off}


def _dashed(words: Sequence[str]) -> list[str]:
    """Underscores in names become dashes, up to the first dot; ``-O3`` and ``-O 3`` become ``--optimization-level``."""
    dashed: list[str] = []
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        if word.startswith("--help="):
            dashed.append("--help")
        elif word.startswith("--"):
            key, equals, value = word.partition("=")
            dashed.append(re.sub(r"(?<=--)[^\.]*", lambda name: name[0].replace("_", "-"), key, count=1) + equals + value)
        elif word.startswith("-O") and word != "-O":
            dashed += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and following in {"0", "1", "2", "3"}:
            dashed.append("--optimization-level")
        else:
            dashed.append(word)
    return dashed


def _collected(words: Sequence[str]) -> list[str]:
    """Dotted keys (``--hf-overrides.a 1``, ``-cc.mode=3``, ``--x.list+ a,b``) gathered into one JSON value each.

    As in vLLM they come after all other words, and so replace a JSON value of the same option rather than join it;
    any word that begins with a dash and has a dot in it is taken for one, ``-0.5``, too.
    """
    rest: list[str] = []
    gathered: dict[str, dict[str, Any]] = {}
    following = iter(words)
    for word in following:
        path, equals, value = word.partition("=")
        if not (word.startswith("-") and "." in path):
            rest.append(word)
            continue
        text = value if equals else next(following, None)
        if text is None:
            raise _Refused(f"{path}: expected one argument")
        option, *keys = path.removesuffix("+").split(".")
        item: Any = text.split(",") if path.endswith("+") else _json_or_text(text)
        for key in reversed(keys):
            item = {key: item}
        _join(gathered.setdefault(option, {}), item)
    return [*rest, *(word for option, value in gathered.items() for word in (option, json.dumps(value)))]


def _json_or_text(word: str) -> Any:
    try:
        return json.loads(word)
    except json.JSONDecodeError:
        pass
    except (ValueError, RecursionError):  # 5,000 digits, 5,000 brackets: vLLM ends with a traceback
        raise _Refused("a value behind a dotted key is too long a number or too deep") from None
    try:
        return human_int(word)
    except ValueError:
        return word
    except OverflowError:
        raise _Refused("a value behind a dotted key is too large a number") from None


def _join(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        known = into.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            _join(known, value)
        elif isinstance(value, list) and isinstance(known, list):
            known += value
        else:
            into[key] = value


def _passing_by(rest: Sequence[str]) -> tuple[str, ...]:
    """The words that belong to unknown options. A word that belongs to none is vLLM's refusal."""
    if "--" in rest or (rest and not rest[0].startswith("-")):
        raise _Refused(f"unrecognized arguments: {' '.join(rest)}")
    return tuple(rest)


def _check_kv_cache_dtype(value: Any, version: str) -> None:
    """vLLM 0.33 takes any name from the command line and refuses it only when it builds its configuration."""
    allowed = engine_facts(version).kv_cache_dtypes
    if value is not None and value not in allowed and not is_newer_than_read(version):
        raise UsageError(
            "vllm serve would refuse the value of --kv-cache-dtype",
            got=repr(printable(value)),
            allowed=", ".join(sorted(allowed)),
        )


def _without_secrets(message: str, words: Sequence[str]) -> str:
    for word, shown in zip(words, redacted(words), strict=True):
        if word != shown:
            secret = word if shown == HIDDEN else word.partition("=")[2] or word
            message = message.replace(word, shown).replace(secret, HIDDEN)
    return message
