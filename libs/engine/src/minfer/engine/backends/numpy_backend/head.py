"""From hidden rows to what the sampler asked for: the largest logits, listed ones, or all."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from minfer.engine.backends.numpy_backend.operations import Floats
from minfer.engine.backends.step import HeadQuery

LOGITS_AT_ONCE = 1 << 22
"""Logits held at a time when not all are wanted: 16 MiB."""


@dataclass(slots=True)
class Answers:
    """What StepResult carries of the logits, one entry for each row. All logits come in one piece."""

    logits: Floats | None = None
    top_ids: list[list[int]] = field(default_factory=list)
    top_logits: list[list[float]] = field(default_factory=list)
    listed: list[list[float]] = field(default_factory=list)
    max_logit: list[float] = field(default_factory=list)
    log_sum_exp: list[float] = field(default_factory=list)

    def take(self, logits: Floats, query: HeadQuery) -> None:
        """Answer for the next rows; `logits` is (rows, vocabulary)."""
        most = logits.max(axis=-1)
        self.max_logit += most.tolist()
        for row, highest in zip(logits, most, strict=True):
            at = len(self.log_sum_exp)
            total = float(np.exp(row - highest).sum(dtype=np.float64))
            self.log_sum_exp.append(float(highest) + float(np.log(total)))
            if query.top > 0:
                ids = top_ids(row, query.top)
                self.top_ids.append(ids.tolist())
                self.top_logits.append(row[ids].tolist())
            if query.listed:
                self.listed.append(row[list(query.listed[at])].tolist())
        if query.top == 0:
            self.logits = logits


def top_ids(row: Floats, k: int) -> npt.NDArray[np.intp]:
    """Ids of the k largest, by falling logit and then by rising id."""
    k = min(k, len(row))
    if k == 1:
        return np.asarray([row.argmax()])  # the first of equals
    least = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= least)
    order = np.argsort(-row[candidates], kind="stable")
    return candidates[order[:k]]
