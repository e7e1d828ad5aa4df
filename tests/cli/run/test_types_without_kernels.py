"""A model in a type that only numpy decodes runs natively all the same, converted while it is loaded."""

from __future__ import annotations

import json

import pytest

from minfer.engine.backends import available
from minfer.engine.testing import TinyModel, tiny_model
from minfer.gguf import QuantType
from program import Program, minfer_run

__all__ = ["minfer_run"]

TEXT = "It was the best of times, it was the worst of times. " * 5
N_MATRICES = 15  # the embeddings, which are the head too, and seven in each of two layers

pytestmark = pytest.mark.skipif(available()[0] == "numpy", reason="built without the extension")


@pytest.mark.parametrize(
    "quant",
    [QuantType.Q2_K, QuantType.Q3_K, QuantType.IQ4_NL, QuantType.IQ4_XS],
    ids=lambda quant: quant.name,
)
def test_it_says_so_once_and_predicts_what_numpy_does(minfer_run: Program, quant: QuantType) -> None:
    model = TinyModel("llama", width=256, head_dim=64, feed_forward=512, quant=quant)
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(model))
    (minfer_run.here / "text").write_text(TEXT)
    base = ("perplexity", "tiny", "-c", "64", "--kl-divergence-base", "base")
    reference = minfer_run(*base, "-f", "text", MINFER_KERNELS="numpy")
    assert (reference.status, reference.err.count("native kernel")) == (0, 0)
    found = minfer_run(*base, "--kl-divergence", "--json")
    assert found.status == 0
    note = f"Note: {N_MATRICES} matrices of type {quant.name} have no native kernel and are kept as Q8_0\n"
    assert found.err.count(note) == 1
    figures = json.loads(found.out)
    assert figures["kl_mean"] < 1e-3
    assert figures["same_top"] > 0.9
