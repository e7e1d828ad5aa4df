"""A text in windows, and what a model thinks of the second half of each, as llama-perplexity measures it.

Each window starts from nothing; its first half is context and its second half is scored, so every scored
token has at least half a window before it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from minfer.core.errors import UsageError
from minfer.engine.backends.step import HeadQuery
from minfer.engine.feeding import Feeder

if TYPE_CHECKING:
    from minfer.engine.model import Model
    from minfer.engine.tokenizer import Tokenizer

LOGIT_ROWS: Final = 64
"""Rows scored in one step: enough for the kernels, and few enough for the largest vocabularies."""


class TextTooShortError(UsageError):
    """The text does not fill one window."""

    code = "text-too-short"


def windows_of(tokenizer: Tokenizer, text: str, n_ctx: int, limit: int | None) -> list[tuple[int, ...]]:
    """The text's ids in windows of n_ctx; a rest is left out. Where the model begins texts with BOS, each
    window does. limit: at most so many windows. Raises TextTooShortError.
    """
    ids = tokenizer.encode(text, add_special=True, parse_special=False)
    if len(ids) < n_ctx:
        raise TextTooShortError(
            f"the text has {len(ids)} tokens, which do not fill one window of {n_ctx}",
            hint=f"give a longer text, or a smaller window: -c {max(8, len(ids) // 2)}",
        )
    starts = range(0, len(ids) - n_ctx + 1, n_ctx)[:limit]
    windows = [ids[start : start + n_ctx] for start in starts]
    if tokenizer.adds_bos and tokenizer.bos is not None:
        for window in windows:
            window[0] = tokenizer.bos
    return [tuple(window) for window in windows]


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """The distribution before one token: log probabilities of it, of the likeliest ids and of listed ones."""

    logprob: float
    top_ids: Sequence[int]
    top_logprobs: Sequence[float]
    listed_logprobs: Sequence[float]


class Scorer:
    """Scores windows one after the other."""

    def __init__(self, model: Model, n_ctx: int) -> None:
        """n_ctx: ids of a window."""
        self._feeder = Feeder(model, model.new_cache(n_ctx))
        self._n_rows = min(LOGIT_ROWS, model.max_logit_rows)

    def score(
        self, window: Sequence[int], top: int = 1, listed: Sequence[Sequence[int]] = ()
    ) -> Iterator[ScoredRow]:
        """The rows before the tokens n_ctx / 2 + 1 to the end. top: likeliest ids wanted of each row;
        listed: for each row, ids whose log probabilities are wanted.
        """
        first, end = len(window) // 2, len(window) - 1
        self._feeder.clear()
        self._feeder.feed(window[:first], 0)
        for start in range(first, end, self._n_rows):
            stop = min(start + self._n_rows, end)
            extra = listed[start - first : stop - first] or ((),) * (stop - start)
            wanted = tuple(
                (target, *ids) for target, ids in zip(window[start + 1 : stop + 1], extra, strict=True)
            )
            result = self._feeder.feed(window[start:stop], stop - start, HeadQuery(top, wanted))
            for row in range(stop - start):
                total = float(result.log_sum_exp[row])
                logits = [float(one) - total for one in result.listed_logits[row]]
                yield ScoredRow(
                    logits[0],
                    [int(one) for one in result.top_ids[row]],
                    [float(one) - total for one in result.top_logits[row]],
                    logits[1:],
                )


class Perplexity:
    """Sums over scored tokens."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = 0.0
        self._squares = 0.0

    def add(self, logprob: float) -> None:
        """One token's log probability."""
        self.n += 1
        self._sum -= logprob
        self._squares += logprob * logprob

    @property
    def nats(self) -> float:
        """Mean nats a token."""
        return self._sum / self.n

    @property
    def value(self) -> float:
        """exp of the mean."""
        return math.exp(self.nats)

    @property
    def error(self) -> float:
        """Standard error of `value`, tokens taken as independent; 0 for a single token."""
        if self.n < 2:
            return 0.0
        variance = max(0.0, self._squares / self.n - self.nats**2)
        return math.sqrt(variance / (self.n - 1)) * self.value
