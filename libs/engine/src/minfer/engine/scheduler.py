"""Which tokens go into the next step. Pure: counts and seconds in, counts out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LEAST_ROWS: Final = 16
_MARGIN: Final = 0.8  # of the target: what a step costs varies with the depth of its sequences
_MEMORY: Final = 0.3  # weight of the newest measurement


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


class Pace:
    """How many rows of prompts a step may hold so that those who decode meanwhile are not kept waiting.

    It learns what a prompt's row costs from the steps it is told of.
    """

    def __init__(self, target: float = 0.0) -> None:
        """target: the longest step in seconds while somebody decodes; 0 sets no limit."""
        self._target = target
        self._per_row = 0.0
        self._decode_step = 0.0

    def prompt_rows(self, n_decoding: int, most: int) -> int:
        """The most rows of prompts for the next step, at least a few so that prompts always advance."""
        if not self._target or not n_decoding or not self._per_row:
            return most
        rows = int((self._target * _MARGIN - self._decode_step) / self._per_row)
        return max(min(_LEAST_ROWS, most), min(most, rows - rows % _LEAST_ROWS))

    def observe(self, n_decoding: int, n_prompt: int, seconds: float) -> None:
        """A step with that many decoding sequences and rows of prompts took so long."""
        if not n_prompt:
            self._decode_step = _mixed(self._decode_step, seconds)
        elif n_prompt >= _LEAST_ROWS:
            rest = max(seconds - (self._decode_step if n_decoding else 0.0), seconds / 10)
            self._per_row = _mixed(self._per_row, rest / n_prompt)


def _mixed(known: float, newest: float) -> float:
    """A mean that forgets; the first value as it is."""
    return known + _MEMORY * (newest - known) if known else newest
