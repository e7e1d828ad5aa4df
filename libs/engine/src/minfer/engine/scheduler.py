"""Which tokens go into the next step. Pure: counts in, counts out."""

from __future__ import annotations

from collections.abc import Sequence


def share_step(pending: Sequence[int], budget: int) -> list[int]:
    """Rows of the next step for each sequence, given its `pending` tokens (those not yet in the cache).

    Sequences that decode (one pending token) come first, so that a long prompt never holds them up; what
    is left of `budget` goes to prompts in their order. The sum is at most `budget`; order is kept.
    """
    rows = [0] * len(pending)
    left = budget
    for index, n_tokens in enumerate(pending):
        if n_tokens == 1 and left > 0:
            rows[index] = 1
            left -= 1
    for index, n_tokens in enumerate(pending):
        if n_tokens > 1 and left > 0:
            rows[index] = min(n_tokens, left)
            left -= rows[index]
    return rows
