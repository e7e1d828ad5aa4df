"""Which tokens go into the next step. Pure: counts in, counts out."""

from __future__ import annotations

from collections.abc import Sequence


def share_step(pending: Sequence[int], budget: int, prompt_budget: int | None = None) -> list[int]:
    """Rows of the next step for each sequence, given its `pending` tokens (those not yet in the cache).

    Sequences that decode (one pending token) come first, so that a long prompt never holds them up; what
    is left of `budget`, at most prompt_budget, goes to prompts: at least half of it to the first of them,
    the rest to the shortest, so that nobody waits behind a long one and no long one starves. The sum is at
    most `budget`; order is kept.
    """
    rows = [0] * len(pending)
    left = budget
    for index, n_tokens in enumerate(pending):
        if n_tokens == 1 and left > 0:
            rows[index] = 1
            left -= 1
    prompts = [index for index, n_tokens in enumerate(pending) if n_tokens > 1]
    if prompt_budget is not None:
        left = min(left, prompt_budget)
    if prompts and left > 0:
        rows[prompts[0]] = min(pending[prompts[0]], -(-left // 2))
        left -= rows[prompts[0]]
    for index in sorted(prompts, key=pending.__getitem__):
        more = min(pending[index] - rows[index], left)
        rows[index] += more
        left -= more
    return rows
