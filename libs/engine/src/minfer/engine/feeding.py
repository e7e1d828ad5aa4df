"""Token ids into a model by hand, without sampling. For measuring, scoring and drafting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from minfer.engine.backends.step import HeadQuery, Program, StepResult
from minfer.engine.generate import CacheFullError

if TYPE_CHECKING:
    from minfer.engine.kv_cache import CachedSequence, KVCache
    from minfer.engine.model import Model

LIKELIEST: Final = HeadQuery(top=1)


class Feeder:
    """One sequence of a model's cache that is fed ids and tells the logits after the last of them."""

    def __init__(self, model: Model, cache: KVCache, max_rows: int | None = None) -> None:
        """max_rows: the most tokens of a step; None takes as many as the model was loaded for."""
        self._model = model
        self._cache = cache
        self._max_rows = min(max_rows or model.max_tokens, model.max_tokens)
        self.sequence = cache.new_sequence()

    def feed(self, ids: Sequence[int], n_logits: int = 1, query: HeadQuery = LIKELIEST) -> StepResult:
        """Add ids to the sequence, in as few steps as can be; the result of the last step, whose logit rows
        are those of the last n_logits ids.

        Raises ValueError when a step cannot hold so many logit rows, CacheFullError.
        """
        if not 0 <= n_logits <= min(len(ids), self._max_rows, self._model.max_logit_rows) or not ids:
            raise ValueError(f"{n_logits} logit rows of {len(ids)} ids")
        most = self._max_rows
        n_last = max(n_logits, (len(ids) - 1) % most + 1)
        for start in range(0, len(ids) - n_last, most):
            self._step(ids[start : min(start + most, len(ids) - n_last)], 0, LIKELIEST)
        return self._step(ids[len(ids) - n_last :], n_logits, query)

    def truncate(self, length: int) -> bool:
        """Keep the first `length` ids. False, and then empty, when a window has passed them."""
        if self._cache.truncate(self.sequence, length):
            return True
        self._cache.free(self.sequence)
        return False

    def clear(self) -> None:
        """Start again with nothing."""
        self._cache.free(self.sequence)

    def _step(self, ids: Sequence[int], n_logits: int, query: HeadQuery) -> StepResult:
        return feed_together(self._model.program, self._cache, [(self.sequence, ids, n_logits)], query)


def feed_together(
    program: Program,
    cache: KVCache,
    parts: Sequence[tuple[CachedSequence, Sequence[int], int]],
    query: HeadQuery = LIKELIEST,
) -> StepResult:
    """One step that adds ids to each sequence; of each the last n_logits want logits.

    Raises CacheFullError.
    """
    for sequence, ids, _ in parts:
        if not cache.reserve(sequence, len(ids)):
            raise CacheFullError(sequence.length + len(ids), cache.n_positions)
    result = program.run(cache.batch(parts), cache.store, query)
    for sequence, ids, _ in parts:
        cache.commit(sequence, ids)
    return result
