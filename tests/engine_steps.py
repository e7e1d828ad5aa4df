"""Feeding token ids to a compiled program, for tests: one sequence, any chunks, scattered cache blocks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from minfer.engine.backends.step import (
    BLOCK_POSITIONS,
    CacheStore,
    HeadQuery,
    Program,
    SequenceStep,
    StepBatch,
)

Floats = npt.NDArray[np.float32]


def batch(ids: Sequence[int], start: int, tables: Sequence[Sequence[int]]) -> StepBatch:
    """A step of one sequence whose first row is position `start`; logits of every row are wanted."""
    stop = start + len(ids)
    n_blocks = -(-stop // BLOCK_POSITIONS)
    positions = array("i", range(start, stop))
    sequence = SequenceStep(0, len(ids), start, tuple(array("i", table[:n_blocks]) for table in tables))
    return StepBatch(array("i", ids), positions, positions, (sequence,), array("i", range(len(ids))))


def all_logits(program: Program, cache: CacheStore, ids: Sequence[int], chunk: int, n_groups: int) -> Floats:
    """Logits at every position, the ids fed `chunk` at a time into blocks in a shuffled order."""
    n_blocks = min(cache.n_blocks)
    tables = [np.random.default_rng(group).permutation(n_blocks).tolist() for group in range(n_groups)]
    parts = []
    for start in range(0, len(ids), chunk):
        result = program.run(batch(ids[start : start + chunk], start, tables), cache, HeadQuery())
        parts.append(np.asarray(result.logits))
    return np.concatenate(parts)
