"""States before the head, pooled; and prompts scored token by token."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minfer.engine.events import Embedded, Prefilled, PromptToken, Stopped, StopReason, Token
from minfer.engine.generate import GenerationLoop
from minfer.engine.generation import Generation, Request
from minfer.engine.model import LoadOptions, Model, load_model
from minfer.engine.params import GenerationParams
from minfer.engine.testing import TinyModel, tiny_model

PROMPT = tuple(b"The quick brown fox jumps over the lazy dog, twice over.")
N_CTX = 128


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tiny.gguf"
        path.write_bytes(io.BytesIO(tiny_model(TinyModel("llama"))).getvalue())
        options = LoadOptions(backend="numpy", has_states=True, max_logit_rows=16, n_threads=1)
        with load_model(path, options) as loaded:
            yield loaded


def _loop(model: Model, max_rows: int = 512, n_sequences: int = 1) -> GenerationLoop:
    return GenerationLoop(model, model.new_cache(N_CTX, n_sequences), N_CTX, max_rows)


def _run(loop: GenerationLoop, *generations: Generation) -> list[list[object]]:
    events: list[list[object]] = [[] for _ in generations]
    while any(one.stopped is None for one in generations):
        for one, event in loop.step():
            events[generations.index(one)].append(event)
    return events


def _vector(loop: GenerationLoop, request: Request) -> tuple[float, ...]:
    (events,) = _run(loop, loop.add(request))
    prefilled, embedded, stopped = events
    assert isinstance(prefilled, Prefilled)
    assert isinstance(embedded, Embedded)
    assert isinstance(stopped, Stopped)
    return embedded.vector


def test_mean_is_the_mean_of_the_last_states_of_all_prefixes(model: Model) -> None:
    params = GenerationParams(n_predict=0)
    mean = _vector(_loop(model), Request(PROMPT, params, pooling="mean"))
    last = [
        _vector(_loop(model), Request(PROMPT[: n + 1], params, pooling="last")) for n in range(len(PROMPT))
    ]
    np.testing.assert_allclose(mean, np.mean(last, axis=0), rtol=1e-4, atol=1e-5)
    assert len(mean) == 64


def test_a_known_prefix_changes_neither_pooling(model: Model) -> None:
    params = GenerationParams(n_predict=0)
    loop = _loop(model, n_sequences=3)
    for pooling in ("last", "mean"):
        request = Request(PROMPT, params, pooling=pooling)
        fresh = _vector(_loop(model), request)
        for _ in range(2):
            np.testing.assert_allclose(_vector(loop, request), fresh, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("max_rows", [7, 512])
def test_scores_are_those_of_drawing_the_same_tokens(model: Model, max_rows: int) -> None:
    params = GenerationParams(n_predict=20, temp=0, repeat_penalty=1.0)
    loop = _loop(model)
    (drawn,) = _run(loop, loop.add(Request(PROMPT, params, n_alternatives=2)))
    tokens = [event for event in drawn if isinstance(event, Token)]
    whole = PROMPT + tuple(token.id for token in tokens)
    loop = _loop(model, max_rows)
    request = Request(whole, GenerationParams(n_predict=0), n_alternatives=2, scores_prompt=True)
    (events,) = _run(loop, loop.add(request))
    scored = [event for event in events if isinstance(event, PromptToken)]
    assert [event.id for event in scored] == list(whole)
    assert scored[0].logprob is None
    for token, score in zip(tokens, scored[len(PROMPT) :], strict=True):
        assert score.logprob == pytest.approx(token.logprob, abs=1e-4)
        assert [id_ for id_, _ in score.alternatives] == [id_ for id_, _ in token.alternatives]
    (stopped,) = [event for event in events if isinstance(event, Stopped)]
    assert stopped.reason is StopReason.LENGTH
    assert stopped.n_generated == 0


def test_scoring_beside_others_and_after_preemption(model: Model) -> None:
    alone = _loop(model)
    request = Request(PROMPT * 2, GenerationParams(n_predict=0), scores_prompt=True)
    (expected,) = _run(alone, alone.add(request))
    crowded = GenerationLoop(model, model.new_cache(160), N_CTX, max_rows=40)  # too small for both
    older = crowded.add(Request(PROMPT, GenerationParams(n_predict=60, temp=0)))
    younger = crowded.add(request)
    _, events = _run(crowded, older, younger)
    got = [event for event in events if isinstance(event, PromptToken)]
    for one, other in zip(got, [e for e in expected if isinstance(e, PromptToken)], strict=True):
        assert one.id == other.id
        assert one.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_a_generation_that_fails_ends_alone(model: Model) -> None:
    banned = tuple((id_, float("-inf")) for id_ in range(259))
    loop = _loop(model, n_sequences=2)
    bad = loop.add(Request(PROMPT, GenerationParams(n_predict=5, logit_bias=banned)))
    good = loop.add(Request(PROMPT, GenerationParams(n_predict=5)))
    while good.stopped is None:
        loop.step()
    assert bad.is_failed
    assert good.n_generated > 0
    assert not loop.step()


def test_a_paused_generation_waits_and_goes_on_the_same(model: Model) -> None:
    params = GenerationParams(n_predict=12)
    loop = _loop(model, n_sequences=2)
    (expected,) = _run(loop, loop.add(Request(PROMPT, params)))
    paused, other = loop.add(Request(PROMPT, params)), loop.add(Request(PROMPT, params, choice=1))
    for _ in range(4):
        loop.step()
    paused.is_paused = True
    n_before = paused.n_generated
    while other.stopped is None:
        loop.step()
    assert paused.n_generated == n_before
    assert loop.step() == []
    paused.is_paused = False
    while paused.stopped is None:
        loop.step()
    assert paused.ids[len(PROMPT) :][: len(expected) - 2] == [e.id for e in expected if isinstance(e, Token)]
