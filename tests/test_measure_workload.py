"""The requests of a measured boot: as large as the profile allows, valid everywhere, and each answer counted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rigs import small_engine
from zenit_hub.maintain.measure.launch import EngineStopped, Order, ServedEngine
from zenit_hub.maintain.measure.workload import (
    BATCHES,
    TOKEN_IDS,
    Batch,
    Shape,
    batches,
    run_workload,
)
from zenit_hub.maintain.measurement import Answers

SHAPE = Shape(window_tokens=small_engine.WINDOW, max_num_batched_tokens=40, max_num_seqs=5)

Begin = Callable[..., ServedEngine]


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Begin]:
    """A small engine that answers."""
    begun: list[ServedEngine] = []

    def start(does: str = "") -> ServedEngine:
        command = (sys.executable, "-S", small_engine.__file__)
        order = Order(command, "org/m", "p", tmp_path, environment={small_engine.VARIABLE: does})
        begun.append(ServedEngine(order, grace_s=0.2))
        begun[-1].start()
        begun[-1].wait_until_ready(15, lambda _phase: None)
        return begun[-1]

    yield start
    for engine in begun:
        engine.end()


def said(engine: ServedEngine, kind: str) -> list[str]:
    start = f"made {kind} "
    return [line.removeprefix(start) for line in engine.log_text().splitlines() if line.startswith(start)]


def test_all_answers_are_counted(ready: Begin) -> None:
    """Three requests under the engine's own name of the model, each with prompts of its own, none cached."""
    engine = ready()

    answers = run_workload(engine, SHAPE, 15)

    lengths = [json.loads(text) for text in said(engine, "lengths")]
    assert lengths == [[48], [16] * 5, [16] * 5]
    assert answers == Answers(
        requests=11, answered=11, prompt_tokens=sum(map(sum, lengths)), generated_tokens=16 + 5 * 16 + 5 * 32
    )
    bodies = [json.loads(text) for text in said(engine, "request")]
    prompts = [tuple(prompt) for body in bodies for prompt in body.pop("prompt")]
    assert len(set(prompts)) == len(prompts) == 11
    assert bodies == [
        {"model": "org/m", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        for tokens in (16, 16, 32)
    ]


def test_a_short_answer_is_no_answer(ready: Begin) -> None:
    """Both counts are in the message."""
    engine = ready("short")

    with pytest.raises(EngineStopped) as caught:
        run_workload(engine, SHAPE, 15)

    assert caught.value.failure.kind == "no_answer"
    assert caught.value.failure.message.startswith("15 of 16 tokens came, in 1 of 1 answers")


class Answering:
    """An engine that says what it is told to; everything else is a launch's."""

    def __init__(self, models: object, completion: object) -> None:
        self.answers = {"/v1/models": models, "/v1/completions": completion}
        self.timeouts_s: list[float] = []

    def request(self, path: str, body: object = None, timeout_s: float = 0) -> object:
        self.timeouts_s.append(timeout_s)
        return self.answers[path]


MODELS = {"data": [{"id": "m"}]}


@pytest.mark.parametrize(
    ("models", "completion", "message"),
    [
        (None, None, "names no model"),
        ({"data": []}, None, "names no model"),
        ({"data": [3]}, None, "names no model"),
        (MODELS, None, "counts nothing"),
        (MODELS, {"choices": [], "usage": None}, "counts nothing"),
        (
            MODELS,
            {"choices": [], "usage": {"prompt_tokens": "many", "completion_tokens": 1}},
            "counts nothing",
        ),
        (
            MODELS,
            {"choices": [], "usage": {"prompt_tokens": 48, "completion_tokens": 16}},
            "in 0 of 1 answers",
        ),
        (
            MODELS,
            {"choices": [{}], "usage": {"prompt_tokens": 47, "completion_tokens": 16}},
            r"prompts of 47 tokens \(48 were sent\)",
        ),
    ],
)
def test_whatever_an_engine_answers_is_one_line(models: object, completion: object, message: str) -> None:
    """Never a traceback, never a figure."""
    with pytest.raises(EngineStopped, match=message) as caught:
        run_workload(Answering(models, completion), SHAPE, 5)

    assert caught.value.failure.kind == "no_answer"


def test_another_window_than_the_profiles_is_not_measured() -> None:
    """Such an engine runs without our plug-in."""
    engine = Answering({"data": [{"id": "m", "max_model_len": 4096}]}, None)

    with pytest.raises(EngineStopped, match="serves a window of 4096 tokens instead of 64") as caught:
        run_workload(engine, SHAPE, 15)

    assert "zenit-hub must be installed" in str(caught.value)


def test_the_deadline_is_for_all_requests_together() -> None:
    """A window of a million tokens may take minutes; the caller says how many."""
    completion = {"choices": [{}], "usage": {"prompt_tokens": 48, "completion_tokens": 16}}
    engine = Answering(MODELS, completion)

    with pytest.raises(EngineStopped):
        run_workload(engine, SHAPE, 900)

    assert all(890 < timeout_s <= 900 for timeout_s in engine.timeouts_s)
    assert sorted(engine.timeouts_s, reverse=True) == engine.timeouts_s


def test_the_sizes_of_a_million_tokens() -> None:
    """The model card's largest profile."""
    shape = Shape(window_tokens=1_010_000, max_num_batched_tokens=8192, max_num_seqs=4)

    assert list(batches(shape)) == [Batch(1, 1_009_984, 16), Batch(4, 4096, 16), Batch(4, 16, 64)]


SHAPES = st.builds(
    Shape,
    window_tokens=st.integers(2, 3_000_000),
    max_num_batched_tokens=st.integers(1, 2**31 - 1),
    max_num_seqs=st.integers(1, 65_536),
)


@given(SHAPES)
def test_every_request_fits_the_window_and_one_fills_it(shape: Shape) -> None:
    """The first fills the window; the second is wider than a step, where the window lets it."""
    whole, wide, short = batches(shape)

    assert whole.sequences == 1
    assert whole.prompt_tokens + whole.generated_tokens == shape.window_tokens
    assert all(batch.prompt_tokens + batch.generated_tokens <= shape.window_tokens for batch in (wide, short))
    assert wide.sequences == short.sequences == shape.max_num_seqs
    at_most = shape.window_tokens - wide.generated_tokens
    assert (
        wide.prompt_tokens == at_most
        or wide.prompt_tokens * wide.sequences >= BATCHES * shape.max_num_batched_tokens
    )
    assert all(batch.prompt_tokens > 0 < batch.generated_tokens for batch in (whole, wide, short))


@given(st.integers(0, 100))
def test_prompts_are_valid_in_a_tiny_vocabulary(lowest_id: int) -> None:
    """A few small ids, from the lowest on."""
    sent: list[int] = []

    class Listening(Answering):
        def request(self, path: str, body: object = None, timeout_s: float = 0) -> object:
            if isinstance(body, dict):
                sent.extend(token for prompt in body["prompt"] for token in prompt)
            return super().request(path, body, timeout_s)

    engine = Listening(MODELS, {})
    with pytest.raises(EngineStopped):
        run_workload(engine, Shape(1000, 40, 5, lowest_id), 5)

    assert {lowest_id} <= set(sent) <= set(range(lowest_id, lowest_id + TOKEN_IDS))
