"""Pools out of a whole vocabulary: numpy finds the first candidates, the rest stays in bulk.

A vocabulary has up to 262,144 entries; listing all of them as Python numbers would take longer than the
model itself. Nearly always the steps cut within the first few hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from minfer.engine.sampling.adjust import Changes
from minfer.engine.sampling.candidates import Pool, Row

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]
    Ids = npt.NDArray[np.intp]

N_LISTED: Final = 512
"""Candidates that are listed at first."""


def pool_of_row(row: Row, layers: Sequence[Changes]) -> Pool:
    """The pool of a row [n_vocab] of raw logits after the changes of each layer, in turn."""
    import numpy as np

    logits = np.array(row, dtype=np.float64)
    for layer in layers:
        for id_, change in layer.items():
            logits[id_] = change.apply(float(logits[id_]))
    return _RowTail(logits).first(N_LISTED)


class _RowTail:
    """A row in which the candidates listed before (and the banned ones) are minus infinity."""

    def __init__(self, logits: Array) -> None:
        self._logits = logits

    def mass(self, maximum: float, temperature: float) -> float:
        """Sum of exp((logit - maximum) / temperature)."""
        import numpy as np

        # float32 is ten times as fast, and the error of its sum is below that of the logits themselves.
        scaled = ((self._logits - maximum) / temperature).astype(np.float32)
        return float(np.exp(scaled).sum(dtype=np.float64))

    def first(self, n: int) -> Pool:
        """The first n candidates in total order, and the tail behind them."""
        import numpy as np

        ids = _first(self._logits, n)
        rest = self._logits.copy()
        rest[ids] = -np.inf
        has_more = bool(rest.max() > -np.inf)
        return Pool(ids.tolist(), self._logits[ids].tolist(), _RowTail(rest) if has_more else None)


def _first(logits: Array, n: int) -> Ids:
    """The ids of the n largest logits above minus infinity, in total order."""
    import numpy as np

    ids: Ids
    if n < len(logits):
        least = np.partition(logits, len(logits) - n)[len(logits) - n]
        above = np.flatnonzero(logits > least)
        level = np.flatnonzero(logits == least)[: n - len(above)]  # ties: the lower ids
        ids = np.concatenate([above, level])
    else:
        ids = np.arange(len(logits))
    ids = ids[logits[ids] > -np.inf]
    order: Ids = np.lexsort((ids, -logits[ids]))
    return ids[order]
