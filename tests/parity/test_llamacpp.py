"""The binding itself: it stands only while the wheel's structs are laid out as it says."""

from __future__ import annotations

import contextlib
import math

import numpy as np
import pytest

from parity import llamacpp_samplers as samplers
from parity.llamacpp import LlamaContext, LlamaModel
from paths import shared

pytestmark = pytest.mark.parity
_LOGITS = (1.0, 3.0, 2.0, -1.0)


def _run(*chain: samplers.Sampler, history: tuple[int, ...] = ()) -> samplers.Applied:
    with contextlib.ExitStack() as stack:
        for sampler in chain:
            stack.enter_context(sampler)
        return samplers.apply_samplers(_LOGITS, chain, history=history)


@pytest.mark.parametrize("chunk", [96, 7, 1])
def test_context_gives_the_stored_logits(chunk: int) -> None:
    stored = np.load(shared("data/architectures/llama-dense.npz"))
    ids = [int(i) for i in stored["tokens"]]
    with (
        LlamaModel(shared("data/architectures/llama-dense.gguf")) as model,
        LlamaContext(model, n_ctx=96, n_threads=1, kv_type="f32") as context,
    ):
        for _ in range(2):  # the second time after clear()
            parts = [context.decode(ids[i : i + chunk]) for i in range(0, len(ids), chunk)]
            assert np.abs(np.concatenate(parts) - stored["logits"]).max() < 2e-3
            context.clear()


def test_last_row_alone() -> None:
    ids = [5, 6, 7]
    with (
        LlamaModel(shared("data/architectures/llama-dense.gguf")) as model,
        LlamaContext(model, n_ctx=96, n_threads=1) as context,
    ):
        every = context.decode(ids)
        context.clear()
        assert context.decode(ids, logits="last")[0] == pytest.approx(every[-1], abs=1e-4)


def test_top_k_and_temperature() -> None:
    applied = _run(samplers.top_k(2), samplers.temperature(0.5), samplers.dist(7))
    assert [(c.id, c.logit) for c in applied.kept] == [(1, 6.0), (2, 4.0)]
    assert applied.kept[0].p == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert applied.selected in {1, 2}


def test_penalties_and_bias_reach_the_right_ids() -> None:
    applied = _run(
        samplers.penalties(4, 8, 2.0, 0.25, 0.5), samplers.logit_bias(4, {0: 10.0}), history=(1, 1, 3)
    )
    logits = {c.id: c.logit for c in applied.kept}
    assert logits == pytest.approx({0: 11.0, 1: 3.0 / 2 - 2 * 0.25 - 0.5, 2: 2.0, 3: -2.0 - 0.25 - 0.5})


def test_greedy_selects_the_largest() -> None:
    assert _run(samplers.greedy()).selected == 1


def test_min_p_top_p_and_sigma_cut() -> None:
    assert {c.id for c in _run(samplers.min_p(0.2)).kept} == {1, 2}
    assert {c.id for c in _run(samplers.top_p(0.5)).kept} == {1}
    assert {c.id for c in _run(samplers.top_n_sigma(0.1)).kept if c.logit > -math.inf} == {1}


def test_dry_lowers_the_token_that_would_repeat() -> None:
    with LlamaModel(shared("data/vocab/ggml-vocab-gpt-2.gguf"), vocab_only=True) as model:
        logits = np.zeros(model.n_vocab, np.float32)
        with samplers.dry(model, 1.0, 2.0, 1, 64) as dry:
            applied = samplers.apply_samplers(logits, [dry], history=(10, 11, 12, 10, 11))
    lowered = {c.id: c.logit for c in applied.kept if c.logit != 0.0}
    assert lowered == {12: -2.0}


def test_tokenizer_calls() -> None:
    with LlamaModel(shared("data/vocab/ggml-vocab-llama-spm.gguf"), vocab_only=True) as model:
        ids = model.tokenize("Hello", add_special=True, parse_special=False)
        assert ids[0] == model.special("bos") == 1
        assert b"".join(model.piece(i) for i in ids) == b" Hello"
        assert model.detokenize(ids[1:]) == b"Hello"
        assert model.text(1) == b"<s>"
        assert model.is_control(1)
        assert model.adds_bos
        assert not model.adds_eos
        assert model.special("eos") in model.end_of_generation
