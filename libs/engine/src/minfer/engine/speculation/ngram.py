"""Drafts out of the text itself: what followed the last time when the same few ids stood there.

It costs nothing but the verification of wrong guesses, so a drafter keeps accounts: what verifying costs,
what right guesses save, both in single steps. While the account is empty it does not guess, and it begins
with short guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LENGTHS: Final = (4, 3)  # of the ids that must be the same; the longer one is asked first
_PROBE: Final = 3  # ids guessed until a guess was right as a whole
_CREDIT: Final = 1.0  # single steps that may be lost on wrong guesses at first
_CREDIT_A_TOKEN: Final = 0.01
_MOST_CREDIT: Final = 16.0
# Verifying nt rows takes about so many single steps (minfer-run specverify; two x86-64 cores).
_FIXED_COST, _COST_A_ROW = 1.2, 0.25


class NgramDrafter:
    """Guesses for one generation, whose ids only grow. Bounded by the length of its text."""

    def __init__(self, n_draft: int) -> None:
        """n_draft: ids guessed at a time, at most."""
        self._most = n_draft
        self._n_draft = min(_PROBE, n_draft)
        self._after: dict[tuple[int, ...], int] = {}  # ids → the position behind their last occurrence
        self._n_known = 0  # ids whose n-grams are in `_after`
        self._n_seen = 0
        self._draft: list[int] = []
        self._credit = _CREDIT

    def __call__(self, ids: Sequence[int]) -> Sequence[int]:
        """The ids that may follow; none when nothing is known or guessing does not pay here."""
        self._settle(ids)
        self._learn(ids)
        self._n_seen = len(ids)
        self._draft = self._guess(ids) if self._credit > 0 else []
        return self._draft

    def _settle(self, ids: Sequence[int]) -> None:
        """Book what the last draft cost and brought."""
        new = ids[self._n_seen :] if self._n_seen else ()
        self._credit += _CREDIT_A_TOKEN * len(new)
        if self._draft:
            cost = _FIXED_COST + _COST_A_ROW * (len(self._draft) + 1)
            self._credit += len(new) - cost
            if len(new) > len(self._draft):
                self._n_draft = self._most
            elif len(new) == 1:
                self._n_draft = min(_PROBE, self._most)
        self._credit = min(self._credit, _MOST_CREDIT)

    def _learn(self, ids: Sequence[int]) -> None:
        """Index every n-gram that something follows."""
        for end in range(self._n_known + 1, len(ids)):
            for n in _LENGTHS:
                if end >= n:
                    self._after[tuple(ids[end - n : end])] = end
        self._n_known = max(self._n_known, len(ids) - 1)

    def _guess(self, ids: Sequence[int]) -> list[int]:
        for n in _LENGTHS:
            at = self._after.get(tuple(ids[-n:])) if len(ids) >= n else None
            if at is not None:
                known = ids[at : at + self._n_draft]
                period = len(ids) - at  # a text that repeats itself goes on into its own draft
                return [known[i % period] for i in range(self._n_draft)]
        return []
