"""How far a model's distributions are from those of another one, row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from minfer.run.measure.statistics import percentile, spread
from minfer.run.scoring.windows import Perplexity

_LEAST = 1e-9  # of a rest: float32 log probabilities say no more


def divergence(base: Sequence[float], ours: Sequence[float]) -> float:
    """KL(base ‖ ours) in nats, from log probabilities of the same ids; all other ids count as one.

    This is never more than the divergence over the whole vocabulary.
    """
    total = 0.0
    base_rest = ours_rest = 1.0
    for log_p, log_q in zip(base, ours, strict=True):
        p = math.exp(log_p)
        total += p * (log_p - log_q)
        base_rest -= p
        ours_rest -= math.exp(log_q)
    base_rest, ours_rest = max(base_rest, _LEAST), max(ours_rest, _LEAST)
    return max(0.0, total + base_rest * math.log(base_rest / ours_rest))


class Comparison:
    """Sums over rows that both models scored."""

    def __init__(self) -> None:
        self.base = Perplexity()
        self.ours = Perplexity()
        self._divergences: list[float] = []
        self._changes: list[float] = []
        self._rests: list[float] = []
        self._n_same = 0

    def add(self, base: Sequence[float], ours: Sequence[float], *, is_same: bool) -> None:
        """One row: log probabilities of the token that followed, then of the base's likeliest ids.

        is_same: whether both have the same likeliest id.
        """
        self.base.add(base[0])
        self.ours.add(ours[0])
        self._divergences.append(divergence(base[1:], ours[1:]))
        self._changes.append(math.exp(ours[0]) - math.exp(base[0]))
        self._rests.append(max(0.0, 1 - sum(map(math.exp, base[1:]))))
        self._n_same += is_same

    def facts(self) -> dict[str, Any]:
        """Everything, rounded to what it is worth."""
        found = self._divergences
        n = len(found)
        same = self._n_same / n
        return {
            "n_tokens": n,
            "perplexity": round(self.ours.value, 6),
            "perplexity_error": round(self.ours.error, 6),
            "base_perplexity": round(self.base.value, 6),
            "base_perplexity_error": round(self.base.error, 6),
            "log_perplexity_ratio": round(self.ours.nats - self.base.nats, 6),
            "kl_mean": round(fmean(found), 6),
            "kl_error": round(spread(found) / math.sqrt(n), 6),
            "kl_median": round(percentile(found, 0.5), 6),
            "kl_99": round(percentile(found, 0.99), 6),
            "kl_max": round(max(found), 6),
            "rms_probability_change": round(math.sqrt(fmean(one * one for one in self._changes)), 6),
            "same_top": round(same, 6),
            "same_top_error": round(math.sqrt(same * (1 - same) / max(n - 1, 1)), 6),
            "base_rest": round(fmean(self._rests), 6),
        }
