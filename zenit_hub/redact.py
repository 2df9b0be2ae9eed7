"""Secrets on a command line, taken out before it is shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zenit_hub.serve_options import known_flags

SECRET_OPTIONS = ("--api-key", "--hf-token")
"""The options of ``vllm serve`` whose value is a secret (0.25.1 … 0.33.0). The others that touch one name a file."""

HIDDEN = "…"

_SECRET_NAME = (
    r"(?:[\w-]*(?:password|passwd|secret)[\w-]*|(?:[\w-]*[_-])?(?:api|access|private|encryption)[_-]?key(?:[_-]?id)?"
    r"|(?:[\w-]*[_-])?(?:hf|auth|access|api|bearer|refresh|session|admin)[_-]?token|token|credentials?|authorization)"
)
"""Names of JSON keys and of unknown options that hold a secret; ``eos_token`` and the like are none."""

_SECRET_KEY = re.compile(_SECRET_NAME, re.IGNORECASE)
_SECRET_MEMBER = re.compile(rf'("{_SECRET_NAME}"\s*:\s*)("(?:[^"\\]|\\.)*"|[^\s,"\[\]{{}}]+)', re.IGNORECASE)
_WATERMARK_MEMBER = re.compile(r'("key"\s*:\s*)("(?:[^"\\]|\\.)*"|[^\s,"\[\]{}]+)')
_URL_USER = re.compile(r"(\w://)[^\s/@\"']+@")

_WATERMARK = "--watermark-config"
"""Its ``key`` is secret (``WatermarkConfig.key``, since 0.31): the one JSON key that its name does not give away."""


def redacted_text(text: str) -> str:
    """``text`` without the user and password of a URL and without the members of a JSON object that hold a secret."""
    return _SECRET_MEMBER.sub(rf'\1"{HIDDEN}"', _URL_USER.sub(rf"\1{HIDDEN}@", text))


def redacted(words: Sequence[str]) -> list[str]:
    """``words`` with ``…`` for every secret in them, one for one, whatever way it was typed.

    Understood: ``--api-key X``, ``--api-key=X``, underscores, several values, abbreviations, dotted keys
    (``--model-loader-extra-config.s3_secret_access_key X``), members of a JSON value, users in a URL.
    """
    shown: list[str] = []
    hiding = watermark = False
    for word in words:
        if _ends_values(word, hiding=hiding):
            flag, equals, value = word.partition("=")
            hiding, watermark = _is_secret(flag), _names(flag, _WATERMARK)
            hides = equals and hiding and value
            text = f"{flag}={HIDDEN}" if hides else _text(word, watermark=watermark)
        else:
            text = HIDDEN if hiding else _text(word, watermark=watermark)
        shown.append(text)
    return shown


def _text(word: str, *, watermark: bool) -> str:
    word = redacted_text(word)
    return _WATERMARK_MEMBER.sub(rf'\1"{HIDDEN}"', word) if watermark else word


def _ends_values(word: str, *, hiding: bool) -> bool:
    """Whether an option begins here. Behind a secret option a word with one dash is rather a secret itself."""
    return word.startswith("--") or (word.startswith("-") and (not hiding or _dashed(word) in known_flags()))


def _is_secret(flag: str) -> bool:
    name, dot, keys = _dashed(flag).partition(".")
    if dot:
        last = flag.rpartition(".")[2].removesuffix("+")
        return bool(_SECRET_KEY.fullmatch(last)) or (_names(name, _WATERMARK) and last == "key")
    if name in known_flags():
        return name in SECRET_OPTIONS
    return any(_names(name, secret) for secret in SECRET_OPTIONS) or bool(_SECRET_KEY.fullmatch(name.lstrip("-")))


def _names(flag: str, option: str) -> bool:
    """Whether ``flag`` is ``option`` or might be an abbreviation of it."""
    name = _dashed(flag).partition(".")[0]
    return name == option or (len(name) > 2 and option.startswith(name) and name not in known_flags())


def _dashed(flag: str) -> str:
    name, dot, keys = flag.partition("=")[0].partition(".")
    return (name.replace("_", "-") if name.startswith("--") else name) + dot + keys
