"""What a section must mean beyond its shape, as rules on what passed the schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zenit_hub.compat import KV_CACHE_DTYPES
from zenit_hub.env import FLAT_PLAN
from zenit_hub.maintain.document import NotANumber
from zenit_hub.maintain.figures import figure_notes
from zenit_hub.maintain.finding import Note, Place, error, pointer, warning
from zenit_hub.maintain.shape import closest, shown
from zenit_hub.maintain.view import ProfileView, SectionView
from zenit_hub.resources import schema
from zenit_hub.section import MAX_PLAN_BYTES, WINDOW
from zenit_hub.text import listed, printable
from zenit_hub.windows import window_limit

BATCH = "max_num_batched_tokens"
CACHING = "enable_prefix_caching"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the caller knows beside the bytes.

    ``repo``: where the figures must have been measured (``org/name``); another repo is an error.
    ``hub_id``: the repo that the file was read from; another one is a warning, as at run time.
    ``block_tokens``: tokens of the model's aligned KV block, where that is known better than by architecture.
    """

    repo: str | None = None
    hub_id: str | None = None
    block_tokens: int | None = None


def meaning_notes(section: SectionView, asked: Asked) -> Iterator[Note]:
    """All that is wrong with a section whose sound values are looked at."""
    yield from _architectures(section)
    yield from _repo(section, asked)
    yield from _default_profile(section)
    block_tokens = section.block_tokens if asked.block_tokens is None else asked.block_tokens
    for profile in section.profiles:
        yield from _fractions(profile.where, profile.sound, schema()["$defs"]["profile"])
        yield from _kv_cache_dtype(profile)
        yield from _allocator(profile)
        yield from _plan(profile)
        yield from _block(profile, block_tokens)
    yield from _windows(section)
    yield from figure_notes(section)


def _architectures(section: SectionView) -> Iterator[Note]:
    own, named = section.own_architectures, section.architectures
    if own and named and not set(own) & set(named):
        what = f"the section speaks for {listed(named[:5])} and does not apply to {listed(own[:5])}"
        yield warning(section.where, what, "add the config's architecture to the section's `architectures`")
    if section.config is not None and section.config.get("speculators_config") is not None:
        what = "this is a speculator's config (`speculators_config`): a launch reads no section from it"
        yield warning(section.where, what, "put the section into the config of the model that is served")


def _repo(section: SectionView, asked: Asked) -> Iterator[Note]:
    measured = section.body.get("repo")
    expected = asked.repo or asked.hub_id
    if measured is None or expected is None or measured == expected:
        return
    what = f"the figures were measured on {printable(measured)} and are void for {printable(expected)}"
    note = error if asked.repo else warning
    yield note(
        (*section.where, "repo"),
        what,
        f"measure them again on {printable(expected)}, or take the section out",
    )


def _default_profile(section: SectionView) -> Iterator[Note]:
    name = section.body.get("default_profile")
    if name is None or not section.declared or name in section.declared:
        return
    names = sorted(section.declared)[:64]
    close = closest(name, names)
    fix = f"did you mean `{printable(close)}`?" if close else f"declared: {listed(names[:10])}"
    where = (*section.where, "default_profile")
    yield error(where, f"`default_profile` {shown(name)} is not a declared profile", fix)


def _fractions(where: Place, values: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[Note]:
    for key, value in values.items():
        if isinstance(value, float) and rule["properties"][key].get("type") == "integer":
            yield warning(
                (*where, key), f"`{key}` is a whole number written as {value!r}", f"write {int(value)}"
            )


def _kv_cache_dtype(profile: ProfileView) -> Iterator[Note]:
    name = profile.sound.get("kv_cache_dtype")
    if name is None or name in KV_CACHE_DTYPES:
        return
    known = sorted(KV_CACHE_DTYPES)
    close = closest(name, known)
    what = f"`kv_cache_dtype` {shown(name)} is known to no supported vLLM"
    yield error(
        profile.at("kv_cache_dtype"), what, f"did you mean `{close}`?" if close else f"known: {listed(known)}"
    )


def _allocator(profile: ProfileView) -> Iterator[Note]:
    entries = profile.sound.get("cuda_alloc_conf", "").split(",")
    keys = [entry.partition(":")[0] for entry in entries if entry[:1].isalpha()]
    repeated = sorted({key for key in keys if keys.count(key) > 1})
    if repeated:
        what = f"`cuda_alloc_conf` names {listed(repeated)} more than once; the last one counts"
        yield warning(profile.at("cuda_alloc_conf"), what, "keep one of them")


def _plan(profile: ProfileView) -> Iterator[Note]:
    plan = profile.sound.get("position_plan", {})
    flat = [key for key in FLAT_PLAN if key in plan]
    if plan.get("stages") and flat:
        what = (
            f"`position_plan` holds stages and flat keys ({', '.join(flat)}); the flat ones would not be read"
        )
        yield error(profile.at("position_plan"), what, "keep the stages or the flat keys, not both")
    elif plan.get("stages") == []:
        yield warning(
            profile.at("position_plan", "stages"), "an empty list of stages says nothing", "take it out"
        )


def oversized_plan(where: Place, profile: object) -> Note | None:
    """The note for a plan that is too large for an environment variable, whatever else is wrong with it."""
    plan = profile.get("position_plan") if isinstance(profile, dict) else None
    if not isinstance(plan, dict):
        return None
    text = json.dumps(plan, separators=(",", ":"), default=_stand_in)
    if len(text) <= MAX_PLAN_BYTES:
        return None
    what = f"`position_plan` takes {len(text)} bytes as compact JSON, allowed: {MAX_PLAN_BYTES}"
    return error((*where, "position_plan"), what, "use fewer stages, or shorter numbers")


def _stand_in(value: NotANumber) -> str:
    return value.text


def _block(profile: ProfileView, block_tokens: int | None) -> Iterator[Note]:
    """The rules of a hybrid model whose KV pages are aligned with its recurrent ones."""
    caching = profile.sound.get(CACHING)
    if block_tokens is None or caching is False or (caching is None and CACHING in profile.written):
        return
    batch, window = profile.sound.get(BATCH), profile.window
    if batch is not None and batch < block_tokens:
        why = "on" if caching else "left to the engine, which switches it on for hybrid models by now"
        what = (
            f"`{BATCH}` {batch} is below the KV block of {block_tokens} tokens, with prefix caching {why}: "
            f"vLLM asserts block_size ({block_tokens}) <= {BATCH} ({batch})"
        )
        fix = f"write {BATCH} {block_tokens} or more, or {CACHING} false"
        yield error(profile.at(BATCH), what, fix)
    if caching and window is not None and window <= block_tokens:
        what = f"prefix caching cannot hit: a KV block has {block_tokens} tokens, the window {window}"
        yield warning(profile.at(CACHING), what, f"write {CACHING} false")


def _windows(section: SectionView) -> Iterator[Note]:
    limit = window_limit(section.config) if section.config is not None else None
    if limit is None:
        return
    scaled = "" if limit.factor == 1 else f" × {limit.factor:g}"
    for profile in section.profiles:
        if profile.window is not None and profile.window > limit.tokens:
            what = (
                f"`{WINDOW}` {profile.window} is more than {limit.tokens:.0f}, which the config allows "
                f"({pointer(limit.where)}{scaled}): vLLM refuses that start"
            )
            yield error(profile.at(WINDOW), what, f"write {int(limit.tokens)} or less")
