"""Ids that stand for text where only the time counts."""

from __future__ import annotations


def synthetic_ids(n: int, n_vocab: int, first: int = 0) -> list[int]:
    """n ids spread over the vocabulary; the same ones every time. `first`: where in the series to begin."""
    return [(i * 7919 + 13) % n_vocab for i in range(first, first + n)]
