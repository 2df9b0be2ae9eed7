"""Secrets on a command line, taken out before it is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from zenit_hub.serve_options import known_flags

SECRET_OPTIONS = ("--api-key", "--hf-token")
"""The options of ``vllm serve`` whose whole value is a secret, in every version from 0.25.1 to 0.33.0. The
others that have to do with secrets name a file (``--ssl-keyfile``) or hold one in JSON."""

HIDDEN = "…"

_WATERMARK = "--watermark-config"
"""Its member ``key`` is secret (``WatermarkConfig.key``), which the name of the member does not tell."""

# Compiled when they are first used (``re`` keeps them): importing this is part of every ``plan``.
_SECRET_NAME = (
    r"(?:[\w-]*(?:password|passwd|secret)[\w-]*"
    r"|(?:[\w-]*[_-])?(?:api|access|private|encryption)[_-]?key(?:[_-]?id)?"
    r"|(?:[\w-]*[_-])?(?:hf|auth|access|api|bearer|refresh|session|admin)[_-]?token"
    r"|token|credentials?|authorization)"
)
"""Names of JSON members and of unknown options that hold a secret; ``eos_token`` and the like are none."""
_SCALAR = r'("(?:[^"\\]|\\.)*"|[^\s,"\[\]{}]+)'
_SECRET_MEMBER = rf'(?i)("{_SECRET_NAME}"\s*:\s*){_SCALAR}'
_WATERMARK_MEMBER = rf'("key"\s*:\s*){_SCALAR}'
_HUB_TOKEN = r"\bhf_[A-Za-z0-9]{16,}"
"""Wherever it stands; real ones have 34 letters."""
_URL_USER = r"(\w://)[^\s/\"']+@"
_URL_PARAMETER = rf"(?i)([?&;]{_SECRET_NAME}=)[^\s&;#\"']+"


def redacted_text(text: str) -> str:
    """``text`` without the Hub's tokens, the user of a URL and the members of a JSON object that hold a secret."""
    text = re.sub(_HUB_TOKEN, f"hf_{HIDDEN}", text)
    text = _json_without_secrets(text)
    text = re.sub(_URL_PARAMETER, rf"\1{HIDDEN}", re.sub(_URL_USER, rf"\1{HIDDEN}@", text))
    return re.sub(_SECRET_MEMBER, rf'\1"{HIDDEN}"', text)


def _json_without_secrets(text: str) -> str:
    """An object in which a secret is a list or an object, or is named with escapes, written anew."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    hidden = _hide(value)
    return text if hidden == value else json.dumps(hidden, ensure_ascii=False)


def _hide(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret_name(key) else _hide(member) for key, member in value.items()}
    return [_hide(member) for member in value] if isinstance(value, list) else value


def redacted(words: Sequence[str]) -> list[str]:
    """``words`` with ``…`` for every secret in them, one for one, whatever way it was typed.

    Understood: ``--api-key X``, ``--api-key=X``, underscores, several values, abbreviations, dotted keys
    (``--model-loader-extra-config.s3_secret_access_key X``), members of a JSON value, users in a URL.
    """
    shown: list[str] = []
    hiding = watermark = False
    for word in words:
        if not _begins_option(word, hiding=hiding):
            shown.append(HIDDEN if hiding else _text(word, watermark=watermark))
            continue
        flag, equals, value = word.partition("=")
        hiding, watermark = _is_secret(flag), _may_mean(flag, _WATERMARK)
        value = HIDDEN if hiding and value else _text(value, watermark=watermark)
        shown.append(f"{flag}{equals}{value}")
    return shown


def without_secrets(message: str, words: Sequence[str]) -> str:
    """``message``, which quotes some of ``words``, without the secrets in them."""
    for word, shown in zip(words, redacted(words), strict=True):
        if word != shown:
            secret = word if shown == HIDDEN else word.partition("=")[2] or word
            message = message.replace(word, shown) if shown != HIDDEN else message
            message = re.sub(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", HIDDEN, message)
    return message


def _text(word: str, *, watermark: bool) -> str:
    word = redacted_text(word)
    return re.sub(_WATERMARK_MEMBER, rf'\1"{HIDDEN}"', word) if watermark else word


def _begins_option(word: str, *, hiding: bool) -> bool:
    """Whether an option begins here. Behind a secret option a word with one dash is rather a secret."""
    return word.startswith("--") or (word.startswith("-") and (not hiding or word in known_flags()))


def _is_secret(flag: str) -> bool:
    name, *members = _dashed(flag).split(".")
    if members:
        last = members[-1].removesuffix("+")
        return _is_secret_name(last) or (last == "key" and _may_mean(name, _WATERMARK))
    if name in known_flags():
        return name in SECRET_OPTIONS
    if any(_may_mean(name, secret) for secret in SECRET_OPTIONS):
        return True
    return name.endswith("-token") or _is_secret_name(name.lstrip("-"))  # a plug-in's, or a newer vLLM's


def _is_secret_name(name: str) -> bool:
    return re.fullmatch(_SECRET_NAME, name, re.IGNORECASE) is not None


def _may_mean(flag: str, option: str) -> bool:
    """Whether ``flag`` is ``option``, or an abbreviation that vLLM might take for it."""
    name = _dashed(flag).partition(".")[0]
    return name == option or (len(name) > 2 and option.startswith(name) and name not in known_flags())


def _dashed(flag: str) -> str:
    name, dot, members = flag.partition(".")
    return (name.replace("_", "-") if name.startswith("--") else name) + dot + members
