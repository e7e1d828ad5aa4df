"""KL divergence against sums done by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.run.scoring.divergence import Comparison, divergence

LN2 = math.log(2)


def _logs(*probabilities: float) -> list[float]:
    return [math.log(one) for one in probabilities]


def test_by_hand() -> None:
    assert divergence(_logs(0.5, 0.25), _logs(0.25, 0.5)) == pytest.approx(0.25 * LN2)
    # the rest, 1/4 here and 1/2 there, counts as one id
    assert divergence(_logs(0.75), _logs(0.5)) == pytest.approx(0.75 * math.log(1.5) - 0.25 * LN2)
    assert divergence(_logs(0.3, 0.7), _logs(0.3, 0.7)) == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(-8, 8), st.floats(-8, 8)), min_size=2, max_size=12))
def test_the_whole_vocabulary_gives_the_definition_and_a_part_no_more(
    logits: list[tuple[float, float]],
) -> None:
    p, q = (np.array(one) - np.log(np.exp(one).sum()) for one in zip(*logits, strict=True))
    exact = float(np.exp(p) @ (p - q))
    assert divergence(p.tolist(), q.tolist()) == pytest.approx(exact, abs=1e-6)
    best = np.argsort(-p)[: len(p) // 2]
    assert divergence(p[best].tolist(), q[best].tolist()) <= exact + 1e-6


def test_a_comparison_sums_up() -> None:
    comparison = Comparison()
    comparison.add(_logs(0.5, 0.5, 0.25), _logs(0.25, 0.25, 0.5), is_same=False)
    comparison.add(_logs(0.25, 0.5, 0.25), _logs(0.25, 0.5, 0.25), is_same=True)
    facts = comparison.facts()
    assert facts["n_tokens"] == 2
    assert facts["kl_mean"] == pytest.approx(0.125 * LN2, abs=1e-6)
    assert facts["kl_max"] == pytest.approx(0.25 * LN2, abs=1e-6)
    assert facts["base_perplexity"] == pytest.approx(2**1.5, abs=1e-5)
    assert facts["perplexity"] == pytest.approx(4, abs=1e-5)
    assert facts["same_top"] == 0.5
    assert facts["rms_probability_change"] == pytest.approx(0.25 / math.sqrt(2), abs=1e-6)
    assert facts["base_rest"] == pytest.approx(0.25, abs=1e-6)
