"""``--config FILE``: the YAML file that ``vllm serve`` expands into words before it reads them.

Follows ``FlexibleArgumentParser._pull_args_from_config`` and ``load_config_file`` of vLLM 0.33.0
(``utils/argparse_utils.py``). ``vllm serve`` calls them on the parser of the ``vllm`` command, which knows no
``--no-…`` flag of ``serve``: a plain ``false`` is dropped in every version from 0.25.1 to 0.33.0.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zenit_hub.errors import UsageError
from zenit_hub.files import read_limited
from zenit_hub.text import printable

CONFIG = "--config"

MAX_FILE_BYTES = 256 * 1024
MAX_VALUES = 10_000
"""No settings of a server come near; vLLM itself has no limit."""


def with_config(words: Sequence[str]) -> tuple[list[str], frozenset[str]]:
    """``words`` with the file's in front of them, and the file's keys that are plainly ``false``.

    Only ``--config`` as a word of its own makes vLLM read a file; ``--config=FILE`` is taken and forgotten.
    The typed words come later and win.
    """
    if CONFIG not in words:
        return list(words), frozenset()
    if words.count(CONFIG) > 1:
        raise UsageError("--config is there twice", allowed="one", next_step="Put everything into one file.")
    position = words.index(CONFIG)
    if position == len(words) - 1:
        raise UsageError("--config names no file", allowed="--config FILE.yaml")
    settings = _settings(words[position + 1])
    rest = [*words[:position], *words[position + 2 :]]
    return [*_as_words(settings), *rest], frozenset(str(k) for k, value in settings.items() if value is False)


def _settings(path: str) -> Mapping[Any, Any]:
    shown = printable(path)
    if path.rpartition(".")[2] not in ("yaml", "yml"):
        raise UsageError("--config takes YAML only", got=shown, allowed="a file named *.yaml or *.yml")
    try:
        yaml = importlib.import_module("yaml")  # comes with huggingface_hub, and is needed here alone
    except ImportError:
        raise UsageError("--config needs PyYAML", next_step="Type: pip install pyyaml") from None
    try:
        data = read_limited(Path(path), MAX_FILE_BYTES)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError("the --config file is too large", got=shown, allowed=f"{MAX_FILE_BYTES} bytes")
        settings = yaml.safe_load(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"the --config file cannot be read: {error.strerror}", got=shown) from None
    except (yaml.YAMLError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Not the error's own words: they quote what stands in the file, which may be a secret.
        mark = getattr(error, "problem_mark", None)
        place = f" (line {mark.line + 1})" if mark is not None else ""
        raise UsageError(f"the --config file is no YAML{place}", got=shown) from None
    if _expands_too_far(settings):
        raise UsageError("the --config file expands too far", got=shown, allowed=f"{MAX_VALUES} values")
    if not isinstance(settings, dict):
        raise UsageError("the --config file holds no settings", got=shown, allowed="max-model-len: 256k, …")
    return settings


def _expands_too_far(settings: object) -> bool:
    """Whether anchors and aliases multiply to more than any settings hold."""
    left, count = [settings], 0
    while left and count <= MAX_VALUES:
        node = left.pop()
        count += 1
        if isinstance(node, dict):
            left.extend((*node.keys(), *node.values()))
        elif isinstance(node, (list, set)):
            left.extend(node)
    return count > MAX_VALUES


def _as_words(settings: Mapping[Any, Any]) -> list[str]:
    words: list[str] = []
    for key, value in settings.items():
        if not isinstance(key, str):
            raise UsageError("a key in the --config file is no option's name", got=printable(key))
        if value is False or value == []:
            continue
        words.append(f"--{key}")
        if isinstance(value, list):
            words.extend(str(item) for item in value)
        elif isinstance(value, dict):
            words.append(_as_json(key, value))
        elif value is not True:
            words.append(str(value))
    return words


def _as_json(key: str, value: dict[Any, Any]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{printable(key)} in the --config file is no JSON: {printable(error)}") from None
