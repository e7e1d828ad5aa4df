"""Mirostat: truncation that steers the surprise of the text to a target (Basu et al. 2020, arXiv:2007.14966).

`mu` is the surprise allowed for the next token, in bits. It starts at twice the target tau and is
corrected after every token by eta times the error.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final

from minfer.engine.sampling.candidates import Pool

_N_FOR_ESTIMATE: Final = 100  # the paper's m: candidates that the slope of Zipf's law is estimated from


def version_1(pool: Pool, temperature: float, mu: float, n_vocab: int) -> Pool:
    """Keep the k likeliest, with k from the estimated exponent of Zipf's law."""
    pool = pool.longer(_N_FOR_ESTIMATE)
    k = _zipf_k(pool.logits[:_N_FOR_ESTIMATE], temperature, mu, n_vocab)
    return pool.longer(k).keep(k)


def _zipf_k(logits: list[float], temperature: float, mu: float, n_vocab: int) -> int:
    ratios = [math.log((i + 2) / (i + 1)) for i in range(len(logits) - 1)]
    drops = [(a - b) / temperature for a, b in pairwise(logits)]
    norm = sum(ratio * ratio for ratio in ratios)
    slope = sum(ratio * drop for ratio, drop in zip(ratios, drops, strict=True)) / norm if norm else 0.0
    if slope <= 0:
        return n_vocab  # equal logits: nothing to estimate, and none is more surprising than the others
    excess = slope - 1
    # The limit for slope = 1 is the harmonic one, log(n_vocab).
    spread = -math.expm1(-excess * math.log(n_vocab)) / excess if excess else math.log(n_vocab)
    log2_k = (mu - math.log2(spread)) / slope if spread > 0 else math.inf
    return max(1, int(2.0 ** min(log2_k, 62.0)))


def version_2(pool: Pool, temperature: float, mu: float, n_vocab: int) -> Pool:
    """Keep those whose surprise is at most mu; the likeliest always."""
    weights, total = pool.weights(temperature)
    least = total * 2.0**-mu
    for n, weight in enumerate(weights):
        if weight < least:
            return pool.keep(max(n, 1))
    return pool if pool.tail is None else version_2(pool.longer(), temperature, mu, n_vocab)


def corrected(mu: float, probability: float, tau: float, eta: float) -> float:
    """mu after a token was drawn that had this probability among the kept candidates."""
    return mu - eta * (-math.log2(probability) - tau)


VERSIONS: Final = {1: version_1, 2: version_2}
