"""The requests of a measured boot: the largest that a profile allows, and the answers counted.

1. one prompt that fills the window but for the tokens it generates;
2. the scheduler's widest batch: all sequences at once, with more tokens than one step takes;
3. ``max_num_seqs`` short requests at once, which generate long enough to run beside each other.

2 and 3 are each one HTTP request with a list of prompts, which vLLM runs as that many sequences: the tool, whose
process also samples, need not hold a thousand connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zenit_hub.maintain.measure.launch import Engine, EngineStopped
from zenit_hub.maintain.measurement import Answers, Failure
from zenit_hub.text import printable

GENERATED_TOKENS = 16
SHORT_PROMPT_TOKENS = 16
SHORT_GENERATED_TOKENS = 64

BATCHES = 2
"""Steps that the second request fills. The prompts arrive one by one: the first step may begin with a few."""

TOKEN_IDS = 7
"""Prompts are made of so few ids, because a vocabulary may be tiny."""

_DIGITS = 8
"""A prompt begins with its number in so many ids, so that no two have a prefix that could be cached."""

_LAST_MOMENT_S = 0.001


@dataclass(frozen=True, slots=True)
class Shape:
    """What the profile allows. ``lowest_token_id``: the prompts are made of the few ids from there on."""

    window_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    lowest_token_id: int = 3


@dataclass(frozen=True, slots=True)
class Batch:
    """``sequences`` prompts of ``prompt_tokens`` that are sent together; each generates ``generated_tokens``."""

    sequences: int
    prompt_tokens: int
    generated_tokens: int


def run_workload(engine: Engine, shape: Shape, timeout_s: float) -> Answers:
    """All requests within ``timeout_s``. Raises ``EngineStopped`` when an answer is missing or short."""
    deadline_s = time.monotonic() + timeout_s
    model = _served_model(engine, shape, timeout_s)
    asked = sequences = prompt_tokens = generated_tokens = 0
    for batch in batches(shape):
        prompts = [
            _prompt(asked + n, batch.prompt_tokens, shape.lowest_token_id) for n in range(batch.sequences)
        ]
        body = {
            "model": model,
            "prompt": prompts,
            "max_tokens": batch.generated_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        left_s = max(deadline_s - time.monotonic(), _LAST_MOMENT_S)
        answered = _counted(engine.request("/v1/completions", body, timeout_s=left_s), batch)
        asked += batch.sequences
        sequences += answered.answered
        prompt_tokens += answered.prompt_tokens
        generated_tokens += answered.generated_tokens
    return Answers(asked, sequences, prompt_tokens, generated_tokens)


def batches(shape: Shape) -> Iterator[Batch]:
    """What is sent, in order."""
    yield _within(shape, 1, shape.window_tokens, GENERATED_TOKENS)
    wide_tokens = -(-BATCHES * shape.max_num_batched_tokens // shape.max_num_seqs)
    yield _within(shape, shape.max_num_seqs, wide_tokens, GENERATED_TOKENS)
    yield _within(shape, shape.max_num_seqs, SHORT_PROMPT_TOKENS, SHORT_GENERATED_TOKENS)


def _within(shape: Shape, sequences: int, prompt_tokens: int, generated_tokens: int) -> Batch:
    """Prompt and answer share the window; the prompt gives way, but never more than half of it."""
    generated_tokens = max(1, min(generated_tokens, shape.window_tokens // 2))
    return Batch(
        sequences, max(1, min(prompt_tokens, shape.window_tokens - generated_tokens)), generated_tokens
    )


def _prompt(number: int, length: int, lowest_id: int) -> list[int]:
    digits = [lowest_id + number // TOKEN_IDS**place % TOKEN_IDS for place in range(_DIGITS)]
    return (digits * (length // _DIGITS + 1))[:length]


def _served_model(engine: Engine, shape: Shape, timeout_s: float) -> str:
    """The name that requests must give. Raises ``EngineStopped`` where another window is served."""
    answer = engine.request("/v1/models", timeout_s=timeout_s)
    try:
        first = answer["data"][0]
        name, window = first["id"], first.get("max_model_len")
    except (LookupError, TypeError, AttributeError):
        raise EngineStopped(Failure("no_answer", "/v1/models names no model")) from None
    if window is not None and window != shape.window_tokens:
        raise EngineStopped(
            Failure(
                "cannot_start",
                f"the engine serves a window of {printable(window)} tokens instead of {shape.window_tokens}",
                "zenit-hub must be installed in the environment of the `vllm` command that is started",
            )
        )
    return str(name)


def _counted(answer: Any, batch: Batch) -> Answers:
    """What the engine itself counted. Raises ``EngineStopped`` where it is less than was asked for."""
    try:
        choices, usage = len(answer["choices"]), answer["usage"]
        counted = Answers(
            batch.sequences, choices, int(usage["prompt_tokens"]), int(usage["completion_tokens"])
        )
    except (LookupError, TypeError, ValueError):
        raise EngineStopped(Failure("no_answer", "the answer to a completion counts nothing")) from None
    wanted = Answers(
        requests=batch.sequences,
        answered=batch.sequences,
        prompt_tokens=batch.sequences * batch.prompt_tokens,
        generated_tokens=batch.sequences * batch.generated_tokens,
    )
    if counted != wanted:
        raise EngineStopped(
            Failure(
                "no_answer",
                f"{counted.generated_tokens} of {wanted.generated_tokens} tokens came, in {choices} of "
                f"{batch.sequences} answers to prompts of {counted.prompt_tokens} tokens "
                f"({wanted.prompt_tokens} were sent)",
            )
        )
    return counted
