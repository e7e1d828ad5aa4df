"""The loop on tiny models: what a request yields depends on the request alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from minfer.engine import LoadOptions, open_model
from minfer.engine.events import Event, Prefilled, Stopped, StopReason, Token
from minfer.engine.generate import CacheFullError, GenerationLoop, PromptTooLongError, generate
from minfer.engine.generation import Request
from minfer.engine.model import Model
from minfer.engine.pace import Pace, StepWork
from minfer.engine.params import GenerationParams
from minfer.engine.testing import TinyModel, tiny_model

N_CTX = 128


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel("llama")))
    with open_model(path, LoadOptions(n_threads=1)) as opened, opened.load() as loaded:
        yield loaded


def _loop(model: Model, n_sequences: int = 1, max_rows: int = 32) -> GenerationLoop:
    return GenerationLoop(model, model.new_cache(N_CTX, n_sequences), N_CTX, max_rows)


def _request(text: str, **settings: object) -> Request:
    params = GenerationParams(n_ctx=N_CTX).updated({"n_predict": 12, "temp": 1.5, "seed": 7, **settings})
    return Request(tuple(text.encode()), params)


def _ids(events: Sequence[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, Token)]


def _run_together(loop: GenerationLoop, requests: Sequence[Request]) -> list[list[int]]:
    generations = [loop.add(request) for request in requests]
    found: dict[int, list[Event]] = {id(one): [] for one in generations}
    while any(one.stopped is None for one in generations):
        for generation, event in loop.step():
            found[id(generation)].append(event)
    return [_ids(found[id(one)]) for one in generations]


def test_events_come_in_order_and_count_right(model: Model) -> None:
    events = list(generate(_loop(model), _request("hello")))
    assert isinstance(events[0], Prefilled)
    assert (events[0].n_prompt, events[0].n_reused) == (5, 0)
    assert all(isinstance(event, Token) for event in events[1:-1])
    last = events[-1]
    assert isinstance(last, Stopped)
    assert last.n_generated == 12
    assert last.reason is StopReason.LENGTH


def test_the_same_request_gives_the_same_tokens_and_the_choice_another(model: Model) -> None:
    first = _ids(list(generate(_loop(model), _request("hello"))))
    assert _ids(list(generate(_loop(model), _request("hello")))) == first
    other = replace(_request("hello"), choice=1)
    assert _ids(list(generate(_loop(model), other))) != first


def test_chunked_prompts_and_neighbours_change_nothing(model: Model) -> None:
    requests = [_request("the quick brown fox " * 3), _request("b"), _request("something else entirely")]
    alone = [_ids(list(generate(_loop(model), request))) for request in requests]
    assert _run_together(_loop(model, 3, max_rows=7), requests) == alone


def test_a_full_cache_preempts_the_youngest_and_changes_nothing(model: Model) -> None:
    requests = [_request(text, n_predict=100) for text in ("first in line", "second one", "third of them")]
    alone = [_ids(list(generate(_loop(model), request))) for request in requests]
    loop = _loop(model)  # blocks for one sequence of 128; the three want more than 300
    assert _run_together(loop, requests) == alone
    assert loop.n_preempted > 0


def test_wrong_and_right_drafts_change_nothing(model: Model) -> None:
    plain = _ids(list(generate(_loop(model), _request("hello", n_predict=30))))
    whole = [*b"hello", *plain]

    def oracle(ids: Sequence[int]) -> Sequence[int]:
        return whole[len(ids) : len(ids) + 4]

    def half_right(ids: Sequence[int]) -> Sequence[int]:
        return [*whole[len(ids) : len(ids) + 2], 1, 2]

    for drafter in (oracle, half_right, lambda _: [3, 4, 5]):
        request = replace(_request("hello", n_predict=30), drafter=drafter)
        events = list(generate(_loop(model), request))
        assert _ids(events) == plain
        last = events[-1]
        assert isinstance(last, Stopped)
        assert last.n_drafted >= last.n_accepted
        assert last.n_accepted > 0 or drafter not in (oracle, half_right)


def test_a_kept_sequence_prefills_only_what_is_new(model: Model) -> None:
    cache = model.new_cache(N_CTX)
    loop = GenerationLoop(model, cache, N_CTX)
    sequence = cache.new_sequence()
    list(generate(loop, _request("hello there"), sequence))
    events = list(generate(loop, _request("hello world"), sequence))
    assert isinstance(events[0], Prefilled)
    assert events[0].n_reused == len("hello ")
    assert _ids(events) == _ids(list(generate(_loop(model), _request("hello world"))))


def test_a_cancelled_generation_stops_and_the_others_go_on(model: Model) -> None:
    loop = _loop(model, 2)
    first, second = loop.add(_request("one", n_predict=50)), loop.add(_request("two"))
    loop.step()
    first.is_cancelled = True
    seen: list[Event] = []
    while second.stopped is None:
        seen += [event for generation, event in loop.step() if generation is second]
    assert first.stopped is not None
    assert first.stopped.reason is StopReason.CANCELLED
    assert second.n_generated == 12


def test_the_context_ends_the_answer(model: Model) -> None:
    events = list(generate(_loop(model), _request("x" * (N_CTX - 5), n_predict=-1)))
    last = events[-1]
    assert isinstance(last, Stopped)
    assert (last.reason, last.n_generated) == (StopReason.CONTEXT, 5)


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(model: Model) -> None:
    with pytest.raises(PromptTooLongError, match="128 tokens and the context 128"):
        _loop(model).add(_request("x" * N_CTX))


def test_kept_sequences_that_fill_the_cache_are_an_error_not_a_hang(model: Model) -> None:
    cache = model.new_cache(N_CTX)
    loop = GenerationLoop(model, cache, N_CTX)
    list(generate(loop, _request("x" * 100), cache.new_sequence()))
    with pytest.raises(CacheFullError):
        list(generate(loop, _request("y" * 60)))


def test_stop_strings_are_not_shown_and_end_the_answer(model: Model) -> None:
    plain = list(generate(_loop(model), _request("hello", n_predict=30)))
    text = "".join(event.text for event in plain if isinstance(event, Token | Stopped))
    stop = text[8:10]
    events = list(generate(_loop(model), _request("hello", n_predict=30, stop_strings=(stop,))))
    last = events[-1]
    assert isinstance(last, Stopped)
    assert (last.reason, last.stop_string) == (StopReason.STOP_STRING, stop)
    shown = "".join(event.text for event in events if isinstance(event, Token | Stopped))
    assert shown == text[: text.index(stop)]


def test_alternatives_are_the_most_likely_in_order(model: Model, tmp_path: Path) -> None:
    request = replace(_request("hello", temp=0.0, repeat_penalty=1.0), n_alternatives=3)
    for event in generate(_loop(model), request):
        if isinstance(event, Token):
            ids, logprobs = zip(*event.alternatives, strict=True)
            assert len(ids) == 3
            assert ids[0] == event.id
            assert logprobs[0] == pytest.approx(event.logprob)
            assert sorted(logprobs, reverse=True) == list(logprobs)


def test_the_pace_is_told_what_each_step_holds(model: Model) -> None:
    told: list[StepWork] = []
    asked: list[tuple[int, int]] = []

    class Listening(Pace):
        def observe(self, work: StepWork, seconds: float) -> None:
            assert seconds > 0
            told.append(work)

        def prompt_rows(self, n_decoding: int, depth: int, most: int) -> int:
            asked.append((n_decoding, depth))
            return 8

    loop = GenerationLoop(model, model.new_cache(N_CTX, 2), N_CTX, 32, Listening())
    loop.add(_request("hello"))
    loop.step()
    loop.step()
    loop.add(_request("hello world, hello"))
    for _ in range(4):
        loop.step()
    assert told[:2] == [StepWork(0, 5, 15), StepWork(1)]
    assert told[2:] == [StepWork(1, 8, 36), StepWork(1, 8, 100), StepWork(1, 2, 35), StepWork(2)]
    assert asked[2:5] == [(1, 0), (1, 8), (1, 16)]
