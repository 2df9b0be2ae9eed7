"""What a string must look like, said for the key in which it stands: the schema's patterns in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zenit_hub.resources import schema
from zenit_hub.text import printable

_ALLOCATOR_KEYS = {
    "expandable_segments": "True or False",
    "max_split_size_mb": "a whole number above 20",
    "garbage_collection_threshold": "a number between 0 and 1, like 0.8",
    "roundup_power2_divisions": "a power of two, or a list like [256:1,512:2,>:4]",
}
_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")
_LOOKED_AT = 2000
"""Characters of a stranger's string in which the fault is searched."""

_ONE_LINE = ("holds a control character or line break", "write it on one line, in plain text")
_NAME = (
    "is not allowed",
    "use 1 to 64 of A-Z a-z 0-9 . _ -, beginning with a letter or digit; `off` is taken",
)
_FORMS = {
    "profile name": _NAME,
    "noosphere_mode": _NAME,
    "description": _ONE_LINE,
    "device": _ONE_LINE,
    "vllm": _ONE_LINE,
    "repo": (
        "must be org/name",
        "write the Hub id of the repo that was measured, like example-org/example-model",
    ),
    "receipt": (
        "must be a relative path below serving_profiles/, without ..",
        "write it like million/nvidia-geforce-rtx-5090-0123456789ab.json",
    ),
    "requires_compute_capability": ("must be a capability like 8.9", 'write it like "8.9" or "12.0"'),
    "kv_cache_dtype": ("is not the name of a type", "write it as `--kv-cache-dtype` spells it, like fp8"),
    "architecture": ("is not the name of a class", "write it as it stands in the config's `architectures`"),
}


@dataclass(frozen=True, slots=True)
class Form:
    """``fault`` continues a sentence that begins with the key; ``fix`` says what to write."""

    fault: str
    fix: str


def form_of(key: str, text: str) -> Form:
    """What is wrong with ``text`` under ``key``."""
    if key == "cuda_alloc_conf":
        return _allocator(text)
    fault, fix = _FORMS.get(
        key, ("does not have the allowed form", "see the key's description in the schema")
    )
    return Form(fault, fix)


def _allocator(text: str) -> Form:
    """The first entry that is off: its key, or its value."""
    rule = re.compile(schema()["$defs"]["profile"]["properties"]["cuda_alloc_conf"]["pattern"])
    entries = _OUTSIDE_BRACKETS.split(text[:_LOOKED_AT])
    wrong = next((entry for entry in entries if not rule.match(entry)), "")
    key, colon, _ = wrong.partition(":")
    if key in _ALLOCATOR_KEYS:
        return Form(f"gives `{key}` a wrong value", f"write {key}:<{_ALLOCATOR_KEYS[key]}>")
    name = printable(key, limit=40)
    fault = (
        f"names `{name}`, which a section may not set" if colon and key else "is not key:value[,key:value]"
    )
    return Form(fault, f"allowed keys: {', '.join(_ALLOCATOR_KEYS)}")
