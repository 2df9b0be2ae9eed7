"""What vLLM makes of a command line before argparse sees it: dashes, ``-O3``, dotted keys.

Follows ``FlexibleArgumentParser.parse_args`` (``utils/argparse_utils.py``), which reads alike from 0.25.1
to 0.33.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from zenit_hub.serve_values import human_int


class Refused(Exception):
    """What vLLM's parser would exit with, as a sentence; it may hold a secret that was typed."""


def prepared(words: Sequence[str]) -> list[str]:
    """``words`` as argparse gets them. Raises :class:`Refused` where vLLM ends before that."""
    return _collected(dashed(words))


def dashed(words: Sequence[str]) -> list[str]:
    """Underscores in names become dashes; ``-O3``, ``-O=3``, ``-O 3`` become ``--optimization-level 3``."""
    changed: list[str] = []
    for position, word in enumerate(words):
        if word.startswith("--help="):
            changed.append("--help")
        elif word.startswith("--"):
            changed.append(_dashed_name(word))
        elif word.startswith("-O") and word != "-O":
            changed += ["--optimization-level", word[3:] if word[2] == "=" else word[2:]]
        elif word == "-O" and words[position + 1 : position + 2] in (["0"], ["1"], ["2"], ["3"]):
            changed.append("--optimization-level")
        else:
            changed.append(word)
    return changed


def _dashed_name(word: str) -> str:
    """``--hf_overrides.rope_theta=a_b`` → ``--hf-overrides.rope_theta=a_b``: only up to the first dot."""
    key, equals, value = word.partition("=")
    key = re.sub(r"(?<=--)[^\.]*", lambda name: name[0].replace("_", "-"), key, count=1)
    return f"{key}{equals}{value}"


def _collected(words: Sequence[str]) -> list[str]:
    """Dotted keys (``--hf-overrides.a 1``, ``-cc.mode=3``, ``--x.list+ a,b``) as one JSON value an option.

    As in vLLM the JSON comes behind all other words, and so replaces a JSON value of the same option rather
    than join it; and any word that begins with a dash and has a dot in it is taken for a dotted key, a value
    of ``-0.5``, too.
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
            raise Refused(f"{path}: expected one argument")
        option, *keys = path.removesuffix("+").split(".")
        if option.removeprefix("-").isdigit() or option == "-":
            raise Refused(f"{path} is taken for a dotted key, as it begins with a dash; type --option={path}")
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
        raise Refused("a value behind a dotted key is too long a number or too deep") from None
    try:
        return human_int(word)
    except ValueError:
        return word
    except OverflowError:
        raise Refused("a value behind a dotted key is too large a number") from None


def _join(into: dict[str, Any], more: dict[str, Any]) -> None:
    """``more`` into ``into``: objects member by member, lists end to end, of other values the later one."""
    for key, value in more.items():
        known = into.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            _join(known, value)
        elif isinstance(value, list) and isinstance(known, list):
            known += value
        else:
            into[key] = value
