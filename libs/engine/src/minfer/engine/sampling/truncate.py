"""Steps that remove candidates: top-k, typical, top-p, min-p, XTC.

A step takes a pool and returns a pool with at least one candidate. Formulas and order are llama.cpp's;
each source is named.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from minfer.engine.params import GenerationParams
from minfer.engine.sampling.candidates import Pool

Uniform = Callable[[bytes], float]
"""The random number in [0, 1) of the current position for a purpose."""


def top_k(pool: Pool, params: GenerationParams, uniform: Uniform) -> Pool:
    """Keep the k likeliest (Fan et al. 2018, arXiv:1805.04833)."""
    return pool.longer(params.top_k).keep(params.top_k)


def typical(pool: Pool, params: GenerationParams, uniform: Uniform) -> Pool:
    """Keep those whose surprise is nearest to the entropy (Meister et al. 2022, arXiv:2202.00666)."""
    pool = pool.longer(sys.maxsize)
    weights, total = pool.weights()
    log_total = math.log(total)
    largest = pool.logits[0]
    surprises = [log_total - (logit - largest) for logit in pool.logits]
    probabilities = [weight / total for weight in weights]
    entropy = sum(p * surprise for p, surprise in zip(probabilities, surprises, strict=True) if p > 0)
    order = sorted(range(len(surprises)), key=lambda i: abs(surprises[i] - entropy))
    masses = accumulate(probabilities[i] for i in order)
    n_kept = next((n for n, mass in enumerate(masses, 1) if mass > params.typical_p), len(order))
    kept = sorted(order[:n_kept])
    return Pool([pool.ids[i] for i in kept], [pool.logits[i] for i in kept])


def top_p(pool: Pool, params: GenerationParams, uniform: Uniform) -> Pool:
    """Keep the likeliest up to a total probability (Holtzman et al. 2019, arXiv:1904.09751)."""
    weights, total = pool.weights()
    n = bisect_left(list(accumulate(weights)), params.top_p * total) + 1
    if n <= len(weights):
        return pool.keep(n)
    # Rounding can leave the whole sum below the wanted one.
    return pool if pool.tail is None else top_p(pool.longer(), params, uniform)


def min_p(pool: Pool, params: GenerationParams, uniform: Uniform) -> Pool:
    """Keep those at least min_p times as likely as the likeliest (arXiv:2407.01082)."""
    least = pool.logits[0] + math.log(params.min_p)
    for n, logit in enumerate(pool.logits):
        if logit < least:
            return pool.keep(max(n, 1))
    return pool if pool.tail is None else min_p(pool.longer(), params, uniform)


def xtc(pool: Pool, params: GenerationParams, uniform: Uniform) -> Pool:
    """Now and then remove all but the last of the likely ones (text-generation-webui pull request 6335)."""
    if uniform(b"xtc") >= params.xtc_probability:
        return pool
    weights, total = pool.weights()
    least = params.xtc_threshold * total
    n_likely = next((n for n, weight in enumerate(weights) if weight < least), len(weights))
    if n_likely == len(weights) and pool.tail is not None:
        return xtc(pool.longer(), params, uniform)
    n_removed = max(n_likely - 1, 0)
    return Pool(pool.ids[n_removed:], pool.logits[n_removed:], pool.tail)


@dataclass(frozen=True, slots=True)
class Step:
    """A row of the table of truncating steps; `is_on` says whether the parameters ask for it.

    keeps_best: the likeliest candidate always survives, so that greedy decoding needs no such step.
    """

    name: str
    run: Callable[[Pool, GenerationParams, Uniform], Pool]
    is_on: Callable[[GenerationParams], bool]
    keeps_best: bool = True


STEPS: Final = (
    Step("top-k", top_k, lambda params: params.top_k > 0),
    Step("typical", typical, lambda params: params.typical_p < 1, keeps_best=False),
    Step("top-p", top_p, lambda params: params.top_p < 1),
    Step("min-p", min_p, lambda params: params.min_p > 0),
    Step(
        "XTC",
        xtc,
        lambda params: params.xtc_probability > 0 and params.xtc_threshold <= 0.5,
        keeps_best=False,
    ),
)
"""In llama.cpp's order."""
