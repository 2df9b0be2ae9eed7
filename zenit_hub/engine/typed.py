"""What the caller said, also where it equals the default: remembered where vLLM itself would forget it.

vLLM copies every parsed value into ``EngineArgs``, typed or not. The patches here (read on 0.28.0 and
0.32.0) change nothing that vLLM sees; they can go when ``EngineArgs`` knows its explicit fields itself.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from zenit_hub.caller import Caller, kept_values
from zenit_hub.errors import ZenitHubError
from zenit_hub.serve_config import CONFIG, with_config

_MARK = "_zenit_hub"


@dataclass(slots=True)
class _Record:
    """The options that one call of ``parse_args`` stored."""

    names: set[str] = field(default_factory=set)
    yaml_false: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Given:
    """The fields of one ``EngineArgs`` that its maker named."""

    names: frozenset[str]
    yaml_false: frozenset[str] = frozenset()
    unsaid: frozenset[str] = frozenset()
    """Fields that ``LLM`` filled with defaults of its own."""


class TypedNamespace(argparse.Namespace):
    """A namespace that knows what was typed; ``vars()`` does not show it, pickling to API servers keeps it."""

    __slots__ = ("given",)
    given: Given

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (vars(self), getattr(self, "given", None))


def _arrived(values: dict[str, Any], given: Given | None) -> TypedNamespace:
    """The namespace in an API server. Its ``from_cli_args`` runs before vLLM loads a plug-in there, so that
    the patches have to come along with what they are to carry over."""
    watch()
    namespace = TypedNamespace(**values)
    if given is not None:
        namespace.given = given
    return namespace


class _Open(threading.local):
    """The parses and ``LLM`` constructions under way in this thread."""

    def __init__(self) -> None:
        self.parses: list[_Record] = []
        self.named: list[frozenset[str]] = []


_open = _Open()


class Marks:
    """Notes about ``EngineArgs`` objects, gone with them. They are unhashable and copied by ``vars()``."""

    def __init__(self) -> None:
        self._notes: dict[int, Any] = {}

    def put(self, owner: object, note: Any) -> None:
        if id(owner) not in self._notes:
            weakref.finalize(owner, self._notes.pop, id(owner), None).atexit = False
        self._notes[id(owner)] = note

    def get(self, owner: object) -> Any:
        return self._notes.get(id(owner))


_given = Marks()


def watch() -> None:
    """Put the patches in. Raises ``AttributeError`` or ``ImportError`` where vLLM has not what they need."""
    from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    _patch(FlexibleArgumentParser, "parse_args", _parse_args)
    _patch(FlexibleArgumentParser, "_get_values", _get_values)
    _patch(FlexibleArgumentParser, "load_config_file", _load_config_file)
    for owner in (EngineArgs, AsyncEngineArgs):
        _patch(owner, "__init__", _engine_args_init)
    _patch_from_cli_args(EngineArgs)
    _watch_llm()


def _watch_llm() -> bool:
    """Watch ``LLM`` once its module is there; ``True`` where it was not watched before.

    The module is not imported for it: it takes a second that ``vllm serve`` has no use for.
    """
    llm = getattr(sys.modules.get("vllm.entrypoints.llm"), "LLM", None)
    if llm is None or getattr(llm.__init__, _MARK, False):
        return False
    _patch(llm, "__init__", _llm_init)
    return True


def _patch(owner: type, name: str, around: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by ``around(original, …)``, once."""
    original = getattr(owner, name)
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def patched(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    setattr(patched, _MARK, True)
    setattr(owner, name, patched)


def _patch_from_cli_args(owner: Any) -> None:
    original = owner.__dict__["from_cli_args"].__func__
    if getattr(original, _MARK, False):
        return

    @functools.wraps(original)
    def from_cli_args(cls: type, args: argparse.Namespace) -> Any:
        made = original(cls, args)
        # A namespace of somebody else's: every field is in it, typed or not.
        _given.put(made, getattr(args, "given", None) if isinstance(args, TypedNamespace) else None)
        return made

    setattr(from_cli_args, _MARK, True)
    owner.from_cli_args = classmethod(from_cli_args)


def _parse_args(original: Any, parser: Any, args: Any = None, namespace: Any = None) -> Any:
    record = _Record()
    _open.parses.append(record)
    try:
        parsed = original(parser, args, TypedNamespace() if namespace is None else namespace)
    finally:
        _open.parses.pop()
    if isinstance(parsed, TypedNamespace):
        parsed.given = Given(frozenset(record.names), frozenset(record.yaml_false - record.names))
    return parsed


def _get_values(original: Any, parser: Any, action: argparse.Action, words: list[str]) -> Any:
    """argparse stores every option that it meets through this method (CPython 3.10 to 3.13)."""
    if _open.parses and action.option_strings:
        _open.parses[-1].names.add(action.dest)
    return original(parser, action, words)


def _load_config_file(original: Any, parser: Any, file_path: str) -> Any:
    words = original(parser, file_path)
    if _open.parses:
        try:
            _, false_keys = with_config([CONFIG, file_path])
        except ZenitHubError:
            # vLLM has read the file and goes on: so does the launch.
            return words
        _open.parses[-1].yaml_false |= {key.replace("-", "_") for key in false_keys}
    return words


def _engine_args_init(original: Any, made: Any, *args: Any, **kwargs: Any) -> None:
    original(made, *args, **kwargs)
    if _watch_llm():
        # Perhaps inside an LLM whose making was not watched.
        return
    fields = [f.name for f in dataclasses.fields(made)]
    passed = frozenset((*fields[: len(args)], *kwargs))
    names = passed & _open.named[-1] if _open.named else passed
    if len(names) < len(fields):
        # All fields at once are a copy of another object and say nothing about who chose them.
        _given.put(made, Given(names, unsaid=passed - names))


def _llm_init(original: Any, llm: Any, *args: Any, **kwargs: Any) -> None:
    """``LLM`` hands its own defaults on as if they were the caller's."""
    _open.named.append(frozenset(("model", *kwargs)))
    try:
        original(llm, *args, **kwargs)
    finally:
        _open.named.pop()


def caller_of(
    engine_args: Any, environment: Any, *, headless: bool, ours: Mapping[str, Any] | None = None
) -> tuple[Caller, bool]:
    """The caller behind ``engine_args``, and whether his words could be seen.

    A value that differs from the default is his in any case: he may have set it on the object. One that
    equals it is his where his words were seen. ``ours`` is what this package wrote into the object before.
    """
    from zenit_hub.engine.facts import field_defaults

    given: Given | None = _given.get(engine_args)
    defaults = field_defaults()
    everything = {name: getattr(engine_args, name, None) for name in defaults}
    names = {name for name in defaults if _is_set(name, everything[name], defaults[name], ours or {})}
    if given is not None:
        # vLLM itself writes into its config objects, the parser's defaults among them.
        names -= {name for name in names if dataclasses.is_dataclass(everything[name])}
        names = (names - given.unsaid) | given.names
    values = {name: everything[name] for name in defaults if name in names}
    if headless:
        values["headless"] = True
    return (
        Caller(
            values=values,
            kept=kept_values(environment, everything),
            yaml_false=given.yaml_false if given else frozenset(),
        ),
        given is not None,
    )


def _is_set(name: str, value: Any, default: Any, ours: Mapping[str, Any]) -> bool:
    """Whether somebody set the field, to judge by its value. Of a process's own (``_api_process_rank``): no."""
    if value is None or name.startswith("_") or (name in ours and value == ours[name]):
        return False
    return _differs(value, default)


def _differs(value: Any, default: Any) -> bool:
    if value is default:
        return False
    different = value != default
    return different if isinstance(different, bool) else True
