"""A first section for a model that carries none: windows that its config allows, values pinned, no figures.

Nothing here is measured, and nothing is guessed that a measurement finds: the figure and the KV pin are left
to ``zenit-hub measure``. Until then a launch takes the widest window, as it would without a section.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from zenit_hub.errors import PublicationError
from zenit_hub.limits import CONFIG_NAME
from zenit_hub.maintain.publish.content import Rendered
from zenit_hub.maintain.publish.hub import Message
from zenit_hub.maintain.publish.refusals import fault
from zenit_hub.maintain.publish.snapshot import Snapshot
from zenit_hub.maintain.publish.splice import refusal, splice
from zenit_hub.resources import schema
from zenit_hub.section import CONFIG_KEY, NEUTRAL_KEY, WINDOW, section_key
from zenit_hub.text import printable
from zenit_hub.windows import window_limit

_FAMILY = "Lomonosov"
"""Architectures of this family keep their section under the family's own key."""

_KI, _THOUSAND = 2**10, 1000
_NARROWEST = 8 * _KI
"""No window below it is proposed beside the config's own: it would save less than a GiB of KV cache."""

_STEPS = (3, 12)
"""Beside the whole window a third and a twelfth of it, down to a power of two: of a power of two these are
its quarter and its sixteenth."""

_BATCH = 4096
"""Tokens of a step: activations stay small, and it holds the aligned KV block of the hybrids known here."""

_SEQUENCES, _SEQUENCES_RECURRENT = 64, 8
"""The KV pool will hold one whole window or as many shorter requests. In a model with recurrent layers every
sequence takes a block of state beside it."""

_RECURRENT_KEY = re.compile(r"(linear_(conv|num|key|value)|mamba|ssm|rwkv|recurrent|hybrid_override)")
_RECURRENT_LAYER = re.compile(r"linear|mamba|recurrent|ssm|conv|rwkv")


@dataclass(frozen=True, slots=True)
class Proposal:
    """``key``: under which the section is to stand. ``remarks``: what its author should know, a sentence each."""

    key: str
    section: Mapping[str, Any]
    remarks: tuple[str, ...]


def propose(
    config: Mapping[str, Any], repo: str | None = None, windows: Sequence[int] = (), model: str = "MODEL"
) -> Proposal:
    """A section for ``config``. ``repo``: where it will be measured; ``windows``: tokens, instead of proposed ones;
    ``model``: as it was typed, for the sentence about the next step.

    Raises :class:`~zenit_hub.errors.PublicationError` where there is a section already, for a speculator,
    and where nothing says how wide a window may be.
    """
    key = section_key(config)
    if key is not None:
        raise PublicationError(
            f"the config carries serving profiles already, under `{key}`",
            next_step=f"`zenit-hub validate {model}` checks them, `zenit-hub measure {model}` measures them.",
        )
    if config.get("speculators_config") is not None:
        raise PublicationError(
            "this is a speculator's config, from which a launch reads no section",
            next_step="Name the model that is served.",
        )
    own = _architectures(config)
    widths = sorted(set(windows), reverse=True) or _proposed(config)
    recurrent = _has_recurrent_layers(config)
    profiles = _profiles(widths, recurrent)
    section = {
        "schema_version": 1,
        **({"architectures": own} if own else {}),
        **({"repo": repo} if repo is not None else {}),
        "default_profile": next(iter(profiles)),
        "profiles": profiles,
    }
    remarks = ["nothing is measured yet: until then a launch takes the widest window, whatever is free"]
    if recurrent:
        remarks.append("the config names recurrent layers: prefix caching is off, and the sequences are few")
    family = any(name.startswith(_FAMILY) for name in own)
    return Proposal(CONFIG_KEY if family else NEUTRAL_KEY, section, tuple(remarks))


def with_section(
    data: bytes, repo: str | None, windows: Sequence[int] = (), model: str = "MODEL"
) -> tuple[Proposal, bytes]:
    """The bytes of a ``config.json`` with a first section at the end of its object, all else as it was.

    Raises :class:`~zenit_hub.errors.PublicationError` like :func:`propose`, for bytes that cannot be changed, and
    for a section that ``validate`` would not accept.
    """
    why = refusal(data)
    if why is not None:
        raise PublicationError(f"{CONFIG_NAME} cannot be changed: {why}")
    proposal = propose(json.loads(data), repo, windows, model)
    new = splice(data, {(proposal.key,): proposal.section})
    why = fault(new)
    if why is not None:
        raise PublicationError(f"the section would not be valid: {why}")
    return proposal, new


@dataclass(frozen=True, slots=True)
class FirstSection:
    """A first section on its way to the Hub, as :class:`~zenit_hub.maintain.publish.content.Content`.

    ``repo``: where it will be measured; ``None`` where the repo has no owner in its id, which a section cannot name.
    """

    repo: str | None
    windows: tuple[int, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def message(self) -> Message:
        body = "\n".join(
            [
                "A section of serving profiles: windows that `vllm serve` can choose from by what a card has free.",
                "Nothing is measured yet; `zenit-hub measure` finds the figures, `zenit-hub publish` adds them.",
            ]
        )
        return Message("Serving profiles: a first section", body)

    def needs(self, config: bytes) -> tuple[str, ...]:
        return ()

    def render(self, here: Snapshot) -> Rendered:
        """Where the very section stands already (sent, and the answer was lost) there is nothing to change."""
        if refusal(here.config) is None:
            config = json.loads(here.config)
            key = section_key(config)
            if key is not None:
                bare = {name: value for name, value in config.items() if name != key}
                proposal = propose(bare, self.repo, self.windows)
                if (proposal.key, proposal.section) == (key, config[key]):
                    return self._rendered(proposal, here.config, proposal.section)
        proposal, new = with_section(here.config, self.repo, self.windows, self.repo or "MODEL")
        return self._rendered(proposal, new, None)

    def shown(self, key: Hashable) -> str:
        return printable(key)

    def _rendered(self, proposal: Proposal, config: bytes, before: object) -> Rendered:
        profiles = ", ".join(proposal.section["profiles"])
        return Rendered(
            {CONFIG_NAME: config},
            {proposal.key: before},
            {proposal.key: proposal.section},
            (f"{proposal.key}: a first section with {profiles}",),
            proposal.remarks,
        )


def _architectures(config: Mapping[str, Any]) -> list[str]:
    """The config's own, those that a section can name."""
    rule = schema()["properties"]["architectures"]
    pattern = re.compile(rule["items"]["pattern"])
    own = config.get("architectures")
    names = [name for name in own if isinstance(name, str)] if isinstance(own, list) else []
    return [name for name in names if pattern.search(name)][: rule["maxItems"]]


def _proposed(config: Mapping[str, Any]) -> list[int]:
    limit = window_limit(config)
    widest = int(limit.tokens) if limit is not None else 0
    if widest < 1:
        raise PublicationError(
            "the config does not say how many tokens a window may hold (no max_position_embeddings, or the like)",
            next_step="Name the windows: --window 32768 --window 131072",
        )
    widest = min(widest, schema()["$defs"]["profile"]["properties"][WINDOW]["maximum"])
    narrower = [1 << (widest // step).bit_length() - 1 for step in _STEPS if widest // step >= _NARROWEST]
    return [widest, *narrower]


def _profiles(widths: Iterable[int], recurrent: bool) -> dict[str, dict[str, Any]]:
    profiles: dict[str, dict[str, Any]] = {}
    for tokens in widths:
        name = _short(tokens)
        profiles[str(tokens) if name in profiles else name] = {
            WINDOW: tokens,
            "max_num_batched_tokens": _BATCH,
            "max_num_seqs": _SEQUENCES_RECURRENT if recurrent else _SEQUENCES,
            "enable_prefix_caching": not recurrent,
        }
    return profiles


def _short(tokens: int) -> str:
    """``1m``, ``256k``, ``1010k``, or the digits."""
    if tokens and tokens % _KI**2 == 0:
        return f"{tokens // _KI**2}m"
    unit = next((unit for unit in (_KI, _THOUSAND) if tokens and tokens % unit == 0), 0)
    return f"{tokens // unit}k" if unit else str(tokens)


def _has_recurrent_layers(config: Mapping[str, Any]) -> bool:
    """As far as a config tells without the model's code."""
    nested = config.get("text_config")
    text = nested if isinstance(nested, dict) else config
    layers = text.get("layer_types")
    kinds = [kind for kind in layers if isinstance(kind, str)] if isinstance(layers, list) else []
    names = [*text, str(text.get("model_type"))]
    return any(_RECURRENT_LAYER.search(kind) for kind in kinds) or any(map(_RECURRENT_KEY.match, names))
