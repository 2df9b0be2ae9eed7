"""The engine's last words as a typed failure.

vLLM's processes write one log between them. What counts is the last exception that somebody raised for a
reason: frames of a traceback, "see root cause above" and what follows from another process's end do not.
The forms of the messages were read in vLLM 0.25.1, 0.28.0 to 0.32.0 (the CPU build) and 0.33.0.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from zenit_hub.maintain.measurement import Failure, FailureKind
from zenit_hub.redact import redacted_text
from zenit_hub.text import printable

Numbers = Mapping[str, float | None]

MAX_MESSAGE = 1000
MAX_LINE = 20_000
"""A longer line is no sentence."""

_GIB_PER_UNIT = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "GB": 1.0, "TiB": 2.0**10}
"""vLLM before 0.8 wrote GB and meant GiB."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of the log without colours and prefix. ``level``: where the prefix names one."""

    text: str
    level: str = ""

    @property
    def raised(self) -> bool:
        """Whether it is the last line of a traceback: an exception's name, and what it says."""
        return re.match(_EXCEPTION, self.text) is not None

    @property
    def names_no_reason(self) -> bool:
        return re.search(_CONSEQUENCE, self.text) is not None


@dataclass(frozen=True, slots=True)
class _Rule:
    """What a message looks like; its named groups are the numbers."""

    kind: FailureKind
    pattern: str
    advice: Callable[[Numbers], str]
    message: Callable[[Numbers], str] | None = None
    """In our words, where the engine's own do not say it."""


_COLOUR = r"\x1b\[[0-9;]*m"
_PREFIX = (
    r"(?:\([^()]*\bpid=\d+[^()]*\) ?)*(?:\[rank\d+\]: ?)?"
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
_EXCEPTION = (
    r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Timeout|NotFound|Resources|Refusal|NotDeclared|Interrupt|Exit)\b"
    r"(?::|\s*$)|(?:Error|Exception|Timeout)(?::|\s*$)"
)
_CONSEQUENCE = (
    r"EngineDeadError|[Rr]oot cause|Engine core process \S+ died unexpectedly"
    r"|^(?:\w+\.)*(?:CancelledError|KeyboardInterrupt|SystemExit|BrokenPipeError|ConnectionResetError|EOFError)\b"
)
_RELAYED = r"Worker failed with error '(.*)', please check the"
_DIED_OF = r"died unexpectedly \(exit code: (-\d+)\)|Failed core proc\(s\): \{.*?: (-\d+)\b"
_USAGE = r"[\w.-]+(?: [\w.-]+)*: error: "
_LOADING = r"Starting to load model|Loading safetensors|Loading weights"
_AMOUNT = r"[\d.]+ (?:bytes|KiB|MiB|GiB|TiB)"
_ROOM = r"\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\)"

_KV_CACHE = (
    r"max seq len \((?P<max_model_len>\d+)\),? \(?(?P<needed_gib>[\d.]+) Gi?B\b.*?"
    r"available KV cache\s+memory \((?P<available_gib>[\d.]+) Gi?B\)"
    r"(?:[^\n]*?estimated maximum model length is (?P<estimated_max_model_len>\d+))?"
)
_STATE_BLOCKS = (
    r"max_num_seqs \((?P<requested_sequences>\d+)\) exceeds available Mamba cache blocks \((?P<state_blocks>\d+)\)",
    r"requested (?P<requested_sequences>\d+) sequences, (?P<state_blocks>\d+) state blocks available",
)
_UTILIZATION = (
    r"utilization=(\d\.\d+) is equivalent to --gpu-memory-utilization=(\d\.\d+)\b.*?"
    r"increase --gpu-memory-utilization to (\d\.\d+)",
    r"increasing --gpu-memory-utilization from (\d\.\d+) to (\d\.\d+)",
)


def _shorter_or_more(numbers: Numbers) -> str:
    estimated = numbers["estimated_max_model_len"]
    window = "shorten max_model_len" if estimated is None else f"set max_model_len ≤ {estimated:.0f}"
    return f"{window}, or give the KV cache {numbers['needed_gib']:.2f} GiB (kv_cache_memory_bytes)"


def _fewer_sequences(numbers: Numbers) -> str:
    return f"set max_num_seqs ≤ {numbers['state_blocks']:.0f}"


def _free_first(numbers: Numbers) -> str:
    asked = numbers.get("needed_gib")
    amount = f"{asked:.2f} GiB" if asked is not None else "what it asks for"
    return f"free {amount} on the device before the start, or set gpu_memory_utilization lower"


def _less(_: Numbers) -> str:
    return "set max_num_batched_tokens, max_num_seqs or kv_cache_memory_bytes lower, or measure on a larger device"


def _fewer_at_once(numbers: Numbers) -> str:
    return f"set max_num_seqs < {numbers['requested_sequences']:.0f}"


def _quiet(_: Numbers) -> str:
    return "measure again while nothing else on the device starts or ends"


def _freed(numbers: Numbers) -> str:
    return (
        f"another process freed memory while vLLM was profiling: {numbers['before_gib']:.2f} GiB were free at first, "
        f"{numbers['now_gib']:.2f} GiB afterwards"
    )


_RULES = (
    _Rule("kv_cache_too_small", _KV_CACHE, _shorter_or_more),
    *(_Rule("too_few_state_blocks", pattern, _fewer_sequences) for pattern in _STATE_BLOCKS),
    _Rule("no_kv_cache_memory", r"No available memory for the cache blocks", _less),
    _Rule(
        "no_kv_cache_memory",
        rf"Available memory on node \S+ {_ROOM} on kv cache allocation is less than requested memory for kv "
        r"\((?P<needed_gib>[\d.]+)",
        _less,
    ),
    _Rule(
        "not_admitted",
        rf"(?:Free memory on device|Available memory on node) \S+ {_ROOM} on startup is less than "
        r"(?:desired \w+ memory utilization|the engine's budget[^(]*) \((?P<utilization>[\d.]+), "
        r"(?P<needed_gib>[\d.]+) GiB\)",
        _free_first,
    ),
    _Rule("not_admitted", r"\bStrictRefusal\b", lambda _: "measure without ZENIT_SERVING_STRICT"),
    _Rule(
        "disturbed",
        r"Error in memory profiling\. Initial free memory (?P<before_gib>[\d.]+) GiB, "
        r"current free memory (?P<now_gib>[\d.]+) GiB",
        _quiet,
        _freed,
    ),
    _Rule(
        "out_of_memory",
        r"out of memory occurred when warming up sampler with (?P<requested_sequences>\d+) dummy requests",
        _fewer_at_once,
    ),
    _Rule(
        "out_of_memory",
        rf"out of memory\. Tried to allocate (?P<asked_gib>{_AMOUNT})\. GPU \S+ has a total capacity of "
        rf"(?P<total_gib>{_AMOUNT}) of which (?P<free_gib>{_AMOUNT}) is free",
        _less,
    ),
    _Rule("out_of_memory", rf"can't allocate memory: you tried to allocate (?P<asked_gib>{_AMOUNT})", _less),
    _Rule(
        "out_of_memory",
        r"(?i:out of memory)|\bOutOfMemoryError\b|^MemoryError\b|Cannot allocate memory"
        r"|CUBLAS_STATUS_ALLOC_FAILED|cudaErrorMemoryAllocation",
        _less,
    ),
)


def parse_failure(log: str, status: int | None, killed: bool = False) -> Failure:
    """Why the engine ended.

    ``status``: as ``Popen.returncode``, or the 128 + N of a shell; ``None`` where it still runs.
    ``killed``: this tool ended it, at the deadline; a signal then says nothing about the engine.
    """
    lines = list(_lines(log))
    reason = _last_reason(lines)
    if reason is not None and (known := _recognised(reason)) is not None:
        return known
    number = None if killed else _signal(lines, status)
    if number == signal.SIGKILL:
        message = "the kernel ended a process of the engine with SIGKILL, as it does when memory runs out"
        return Failure("out_of_memory", message, _less({}))
    if killed:
        last = reason or next((line.text for line in reversed(lines) if line.text.strip()), "")
        return Failure(
            "hang", _with_last("no answer before the deadline", last), "give it more time: --timeout"
        )
    if number is not None:
        return Failure("died", _with_last(f"a process of the engine ended by {_name(number)}", reason or ""))
    if reason is not None:
        loading = any(re.search(_LOADING, line.text) for line in lines)
        return Failure("died" if loading else "cannot_start", _shown(reason))
    said = next((line.text for line in reversed(lines) if _complains(line)), "")
    ended = "the engine ended" if status is None else f"the engine ended with status {status}"
    return Failure("died", _with_last(ended, said))


def kv_cache_numbers(text: str) -> tuple[int, float, float, int | None] | None:
    """Asked length in tokens, GiB needed, GiB available, estimated length, where vLLM says that it does not fit."""
    found = re.search(_KV_CACHE, text)
    if found is None:
        return None
    estimated = found["estimated_max_model_len"]
    return (
        int(found["max_model_len"]),
        float(found["needed_gib"]),
        float(found["available_gib"]),
        None if estimated is None else int(estimated),
    )


def utilization_numbers(text: str) -> list[float]:
    """Current, equivalent without the estimate of the CUDA graphs, suggested (vLLM ≥ 0.21); empty: not said.

    With the estimate switched off vLLM names two: current and suggested.
    """
    for pattern in _UTILIZATION:
        if (found := re.search(pattern, text)) is not None:
            return [float(number) for number in found.groups()]
    return []


def _lines(log: str) -> Iterator[_Line]:
    for line in log.splitlines():
        plain = re.sub(_COLOUR, "", line[:MAX_LINE])
        prefix = re.match(_PREFIX, plain)
        yield _Line(plain[prefix.end() :], prefix["level"] or "") if prefix else _Line(plain)


def _last_reason(lines: list[_Line]) -> str | None:
    """The last exception that is a reason of its own, with the part that pydantic puts on the lines below."""
    for index in reversed(range(len(lines))):
        line = lines[index]
        if relayed := re.search(_RELAYED, line.text):
            return relayed[1]
        if line.raised and not line.names_no_reason:
            below = (line.text for line in lines[index + 1 : index + 4])
            detail = next((text.strip() for text in below if text.startswith("  Value error, ")), "")
            return f"{line.text} {detail}".strip()
        if re.match(_USAGE, line.text):
            return line.text
    return None


def _recognised(reason: str) -> Failure | None:
    for rule in _RULES:
        if (found := re.search(rule.pattern, reason)) is not None:
            numbers = {name: _number(value) for name, value in found.groupdict().items()}
            message = rule.message(numbers) if rule.message else _shown(reason)
            return Failure(rule.kind, message, rule.advice(numbers), numbers)
    return None


def _number(text: str | None) -> float | None:
    """``20.00 MiB`` in GiB, a bare number as it is."""
    if text is None:
        return None
    number, _, unit = text.partition(" ")
    value = float(number.rstrip(".")) * _GIB_PER_UNIT.get(unit, 1.0)
    return int(value) if value.is_integer() and not unit and "." not in number else value


def _signal(lines: list[_Line], status: int | None) -> int | None:
    """The signal that ended the engine's first process, or the one of its processes that vLLM reports."""
    for line in reversed(lines):
        if (found := re.search(_DIED_OF, line.text)) is not None:
            return -int(found[1] or found[2])
    if status is None or 0 <= status <= 128:
        return None
    return -status if status < 0 else status - 128


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _complains(line: _Line) -> bool:
    return (
        line.level in ("ERROR", "CRITICAL")
        and bool(line.text.strip())
        and not line.text.startswith((" ", "Traceback"))
    )


def _with_last(what: str, last: str) -> str:
    return f"{what}; its last words: {_shown(last)}" if last else what


def _shown(text: str) -> str:
    """A line of the log, fit for a file that is published: no tokens, no control characters."""
    return printable(redacted_text(text.strip()), limit=MAX_MESSAGE)
