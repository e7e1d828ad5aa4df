"""The sampler chain against llama.cpp's sampler objects: same candidates kept, same probabilities."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from minfer.engine.params import GenerationParams
from minfer.engine.sampling import Candidates, SamplerChain, mirostat
from minfer.engine.sampling.candidates import Pool
from parity import llamacpp_samplers as oracle
from parity.llamacpp import LlamaModel
from paths import shared

pytestmark = pytest.mark.parity

_N_VOCAB = 1500
_N_CASES = 200
_TOLERANCE = 1e-4

T = TypeVar("T")
Logits = npt.NDArray[np.float32]


class _Vocabulary:
    """The first _N_VOCAB tokens of an oracle's vocabulary."""

    n_vocab = _N_VOCAB

    def __init__(self, model: LlamaModel) -> None:
        self._model = model

    def piece(self, id_: int, /) -> bytes:
        return self._model.piece(id_, special=True)

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        return self._model.tokenize(text, add_special=add_special, parse_special=parse_special)


@pytest.fixture(scope="module")
def model() -> Iterator[LlamaModel]:
    with LlamaModel(shared("data/vocab/ggml-vocab-gpt-2.gguf"), vocab_only=True) as model:
        yield model


def _random_params(dice: random.Random) -> GenerationParams:
    """Any mix of settings; half of them at their neutral value."""

    def some(neutral: T, other: T) -> T:
        return other if dice.random() < 0.5 else neutral

    ids = dice.sample(range(_N_VOCAB), 3)
    typical_p = some(1.0, dice.uniform(0.2, 1.0))
    # llama.cpp's entropy is not a number where a token is banned: 0 * log(0).
    third_bias = -math.inf if typical_p == 1.0 else -3.0
    return GenerationParams(
        temp=dice.uniform(0.2, 2.0),
        top_k=some(0, dice.randint(1, 200)),
        top_p=some(1.0, dice.uniform(0.1, 1.0)),
        min_p=some(0.0, dice.uniform(0.001, 0.5)),
        typical_p=typical_p,
        repeat_penalty=some(1.0, dice.uniform(0.8, 1.5)),
        repeat_last_n=dice.choice([0, 5, 64]),
        frequency_penalty=some(0.0, dice.uniform(-1, 1)),
        presence_penalty=some(0.0, dice.uniform(-1, 1)),
        dry_multiplier=some(0.0, dice.uniform(0.2, 2.0)),
        dry_base=dice.uniform(1.0, 2.5),
        dry_allowed_length=dice.randint(1, 3),
        dry_penalty_last_n=dice.choice([20, 64]),
        dry_sequence_breakers=some((), ("\n", ":", "he", "ing ")),
        xtc_probability=some(0.0, 1.0),
        xtc_threshold=dice.uniform(0.01, 0.4),
        logit_bias=some((), tuple(zip(ids, (2.5, -1.5, third_bias), strict=True))),
    )


def _random_history(dice: random.Random) -> list[int]:
    """Tokens with repeated passages."""
    alphabet = dice.sample(range(_N_VOCAB), 6)
    return [dice.choice(alphabet) for _ in range(dice.randint(0, 80))]


def _reference(
    params: GenerationParams, logits: Logits, history: list[int], model: LlamaModel
) -> dict[int, float]:
    """Ids and probabilities that llama.cpp's chain keeps."""
    dry = (params.dry_multiplier, params.dry_base, params.dry_allowed_length, params.dry_penalty_last_n)
    penalties = (
        params.repeat_last_n,
        params.repeat_penalty,
        params.frequency_penalty,
        params.presence_penalty,
    )
    with ExitStack() as stack:
        chain = [
            stack.enter_context(sampler)
            for sampler in (
                oracle.logit_bias(_N_VOCAB, dict(params.logit_bias)),
                oracle.penalties(_N_VOCAB, *penalties),
                oracle.dry(model, *dry, params.dry_sequence_breakers),
                oracle.top_k(params.top_k),
                oracle.typical(params.typical_p, 0),
                oracle.top_p(params.top_p, 0),
                oracle.min_p(params.min_p, 0),
                oracle.xtc(params.xtc_probability, params.xtc_threshold, 0),
                oracle.temperature(params.temp),
                oracle.dist(0),
            )
        ]
        kept = oracle.apply_samplers(logits, chain, history=history).kept
    return {candidate.id: candidate.p for candidate in kept if candidate.logit > -math.inf}


@pytest.mark.parametrize("case", range(_N_CASES))
def test_kept_candidates_and_probabilities(case: int, model: LlamaModel) -> None:
    dice = random.Random(case)
    params = _random_params(dice)
    history = _random_history(dice)
    logits = np.random.default_rng(case).normal(0, dice.uniform(0.5, 4), _N_VOCAB).astype(np.float32)
    for id_ in set(history):
        logits[id_] += 2.0  # so that penalised tokens matter
    chain = SamplerChain(params, _Vocabulary(model))
    candidates = Candidates(
        range(_N_VOCAB), logits.tolist(), 0.0
    )  # listed, so that the stages tell all of them
    stage = chain.sample(candidates, history, len(history), explain=True).stages[-1]
    found = dict(zip(stage.ids, stage.probabilities, strict=True))
    reference = _reference(params, logits, history, model)
    assert found.keys() == reference.keys()
    worst = max(abs(p - reference[id_]) for id_, p in found.items())
    assert worst <= _TOLERANCE


@pytest.mark.parametrize("case", range(20))
def test_greedy(case: int, model: LlamaModel) -> None:
    dice = random.Random(case)
    params = replace(_random_params(dice), temp=0.0)
    history = _random_history(dice)
    logits = np.random.default_rng(case).normal(0, 2, _N_VOCAB).astype(np.float32)
    draw = SamplerChain(params, _Vocabulary(model)).sample(Candidates.of_row(logits), history, len(history))
    reference = _reference(params, logits, history, model)
    assert max(reference, key=lambda id_: reference[id_]) == draw.id


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("case", range(10))
def test_mirostat(case: int, version: int) -> None:
    """Over several tokens, each time with mu corrected by what llama.cpp drew."""
    dice = random.Random(case)
    tau, eta, temp = dice.uniform(2, 6), dice.uniform(0.1, 0.5), dice.uniform(0.5, 1.5)
    numbers = np.random.default_rng(case)
    mu = 2 * tau
    make = oracle.mirostat(_N_VOCAB, case, tau, eta) if version == 1 else oracle.mirostat_v2(case, tau, eta)
    with make as sampler, oracle.temperature(temp) as warmth:
        for _ in range(8):
            logits = numbers.normal(0, 3, _N_VOCAB).astype(np.float32)
            reference = oracle.apply_samplers(logits, [warmth, sampler])
            order = sorted(range(_N_VOCAB), key=lambda id_: (-logits[id_], id_))
            pool = Pool(order, logits[order].astype(float).tolist())
            kept = mirostat.VERSIONS[version](pool, temp, mu, _N_VOCAB)
            found = dict(zip(kept.ids, kept.probabilities(temp), strict=True))
            expected = {candidate.id: candidate.p for candidate in reference.kept}
            assert found.keys() == expected.keys()
            assert max(abs(found[id_] - expected[id_]) for id_ in found) <= _TOLERANCE
            assert reference.selected is not None
            mu = mirostat.corrected(mu, expected[reference.selected], tau, eta)
