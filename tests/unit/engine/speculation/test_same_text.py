"""With any drafter the ids are those without one; and no step wants more logits than there is room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from minfer.engine import LoadOptions, open_model
from minfer.engine.backends.step import CacheStore, Cancel, HeadQuery, StepBatch, StepResult
from minfer.engine.events import Stopped, Token
from minfer.engine.feeding import Feeder
from minfer.engine.generate import GenerationLoop, generate
from minfer.engine.generation import Drafter, Request
from minfer.engine.model import Model
from minfer.engine.params import GenerationParams
from minfer.engine.speculation import DraftModel, DraftVocabularyError, NgramDrafter, check_vocabulary
from minfer.engine.testing import TinyModel, tiny_model
from minfer.engine.tokenizer import load_tokenizer
from minfer.gguf import open_bytes

N_CTX = 128
MAX_LOGIT_ROWS = 6


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel(request.param, n_layers=7 if request.param == "gemma3" else 2)))
    options = LoadOptions(n_threads=1, max_tokens=32, max_logit_rows=MAX_LOGIT_ROWS)
    with open_model(path, options) as opened, opened.load() as loaded:
        yield loaded


def _run(model: Model, request: Request) -> tuple[list[int], Stopped]:
    events = list(generate(GenerationLoop(model, model.new_cache(N_CTX), N_CTX, max_rows=32), request))
    last = events[-1]
    assert isinstance(last, Stopped)
    return [event.id for event in events if isinstance(event, Token)], last


def _request(**settings: object) -> Request:
    text = b"the quick brown fox and the quick brown"
    return Request(tuple(text), GenerationParams(n_ctx=N_CTX).updated({"n_predict": 60, **settings}))


GREEDY = {"temp": 0.0, "repeat_penalty": 1.0}
SAMPLED = {"temp": 0.3, "seed": 11}


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED, {"temp": 0.0}])
def test_ngram_drafts_change_no_id(model: Model, settings: dict[str, float]) -> None:
    request = _request(**settings)
    plain, _ = _run(model, request)
    drafted, last = _run(model, replace(request, drafter=NgramDrafter(5)))
    assert drafted == plain
    assert 0 <= last.n_accepted <= last.n_drafted


@pytest.mark.parametrize("settings", [GREEDY, SAMPLED])
def test_a_draft_model_changes_no_id_and_is_right_when_it_is_the_model(
    model: Model, settings: dict[str, float]
) -> None:
    request = _request(**settings)
    plain, _ = _run(model, request)
    drafter = _Sure(model, N_CTX)
    drafted, last = _run(model, replace(request, drafter=drafter))
    assert drafted == plain
    if settings is GREEDY and model.is_batch_invariant:
        assert last.n_accepted == last.n_drafted > 30


class _Sure:
    """A draft model that guesses four ids however unsure it is."""

    def __init__(self, model: Model, n_ctx: int) -> None:
        self._feeder = Feeder(model, model.new_cache(n_ctx))

    def __call__(self, ids: Sequence[int]) -> Sequence[int]:
        self._feeder.clear()
        draft: list[int] = []
        new = list(ids)
        while len(draft) < 4 and len(ids) + len(draft) < N_CTX:
            draft.append(int(self._feeder.feed(new).top_ids[0][0]))
            new = draft[-1:]
        return draft


def test_the_draft_model_feeds_only_what_is_new_and_guesses_as_from_nothing(model: Model) -> None:
    class Easy(DraftModel):
        """Every guess is sure enough."""

        least_logprob = float("-inf")

    kept = Easy(model, model.new_cache(N_CTX), N_CTX, 4)
    ids = list(b"the quick brown fox")
    for wrong in range(5):
        fresh = _Sure(model, N_CTX)(ids)
        assert list(kept(ids)) == fresh
        ids += [*fresh[:wrong], 200 + wrong]
    assert list(kept(list(range(N_CTX)))) == []


class _Watched:
    """A program that notes the most logit rows it was asked for."""

    def __init__(self, model: Model) -> None:
        self._program = model.program
        self.n_bytes = model.program.n_bytes
        self.most = 0

    def new_cache(self, n_blocks: tuple[int, ...]) -> CacheStore:
        return self._program.new_cache(n_blocks)

    def run(
        self, batch: StepBatch, cache: CacheStore, query: HeadQuery, cancel: Cancel | None = None
    ) -> StepResult:
        self.most = max(self.most, len(batch.logit_rows))
        return self._program.run(batch, cache, query, cancel)

    def close(self) -> None:
        """The model's own."""


def test_drafts_are_cut_to_the_logit_rows_there_are(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def eager(ids: Sequence[int]) -> Sequence[int]:
        return [1] * 20

    watched = _Watched(model)
    requests: list[tuple[Request, Drafter]] = [(_request(seed=seed), eager) for seed in (1, 2, 3)]
    plain = [_run(model, request)[0] for request, _ in requests]
    monkeypatch.setattr(model, "program", watched)
    loop = GenerationLoop(model, model.new_cache(N_CTX, 3), N_CTX, max_rows=32)
    running = [loop.add(replace(request, drafter=drafter)) for request, drafter in requests]
    while any(one.stopped is None for one in running):
        loop.step()
    n_prompt = len(requests[0][0].prompt)
    ends = model.tokenizer.end_of_generation
    assert [[id_ for id_ in one.ids[n_prompt:] if id_ not in ends] for one in running] == plain
    assert watched.most == MAX_LOGIT_ROWS


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    data = tiny_model(TinyModel("llama"))
    same = load_tokenizer(open_bytes(data).metadata)
    renamed = data.replace(b"<|im_end|>", b"<|im_fin|>")
    other = load_tokenizer(open_bytes(renamed).metadata)
    check_vocabulary(same, same)
    with pytest.raises(DraftVocabularyError, match=r"token 258 is '<\|im_fin\|>' in the draft model"):
        check_vocabulary(other, same)
