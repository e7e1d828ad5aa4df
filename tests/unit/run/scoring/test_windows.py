"""Windows of a text, and the scores of their second halves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from minfer.engine import LoadOptions, open_model
from minfer.engine.backends.step import HeadQuery
from minfer.engine.feeding import Feeder
from minfer.engine.model import Model
from minfer.engine.testing import TinyModel, tiny_model
from minfer.run.scoring.windows import Perplexity, Scorer, TextTooShortError, windows_of

N = 48


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel("gemma3", n_layers=7)))
    options = LoadOptions(n_threads=1, max_tokens=20, max_logit_rows=9)
    with open_model(path, options) as opened, opened.load() as loaded:
        yield loaded


def test_a_text_is_cut_and_the_rest_left_out(model: Model) -> None:
    text = "abcdefgh" * 5
    assert windows_of(model.tokenizer, text, 16, None) == [tuple(b"abcdefghabcdefgh")] * 2
    assert len(windows_of(model.tokenizer, text, 16, 1)) == 1
    with pytest.raises(TextTooShortError, match="has 40 tokens"):
        windows_of(model.tokenizer, text, 41, None)


def test_every_window_begins_with_bos_where_the_model_wants_it(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.tokenizer, "adds_bos", True)
    bos = model.tokenizer.bos
    first, second = windows_of(model.tokenizer, "abcdefghijklmno", 8, None)
    assert first == (bos, *b"abcdefg")
    assert second == (bos, *b"ijklmno")  # h made room


def test_scores_are_those_of_the_whole_window_at_once(tmp_path: Path, model: Model) -> None:
    window = tuple(np.random.default_rng(3).integers(0, 256, N).tolist())
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model(TinyModel("gemma3", n_layers=7)))
    options = LoadOptions(n_threads=1, max_tokens=N, max_logit_rows=N)
    with open_model(path, options) as opened, opened.load() as whole:
        result = Feeder(whole, whole.new_cache(N)).feed(window, N, HeadQuery())
        logits = np.asarray(result.logits, np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    first = N // 2
    listed = [(5, row) for row in range(first, N - 1)]
    rows = list(Scorer(model, N).score(window, 3, listed))
    assert len(rows) == N - 1 - first
    for row, at in zip(rows, range(first, N - 1), strict=True):
        assert row.logprob == pytest.approx(logprobs[at, window[at + 1]], abs=1e-3)
        assert list(row.top_ids) == np.argsort(-logits[at], kind="stable")[:3].tolist()
        assert row.top_logprobs == pytest.approx(logprobs[at, row.top_ids].tolist(), abs=1e-3)
        assert row.listed_logprobs == pytest.approx([logprobs[at, 5], logprobs[at, at]], abs=1e-3)


def test_perplexity_and_its_error() -> None:
    total = Perplexity()
    for probability in (0.5, 0.25, 0.5, 0.25):
        total.add(math.log(probability))
    assert total.value == pytest.approx(2**1.5)
    # nats are ln 2 and 2 ln 2: a deviation of ln 2 / 2, over the root of n - 1
    assert total.error == pytest.approx(2**1.5 * (math.log(2) / 2) / math.sqrt(3))
