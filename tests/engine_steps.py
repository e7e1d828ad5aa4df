"""Feeding token ids to compiled programs, for tests: any chunks, any sequences, scattered cache blocks."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends.step import (
    BLOCK_POSITIONS,
    Backend,
    CacheStore,
    Cancel,
    CompileOptions,
    HeadQuery,
    Program,
    SequenceStep,
    StepBatch,
    StepResult,
)
from minfer.engine.graph.ops import Graph
from minfer.engine.kv_cache import CachedSequence, KVCache
from minfer.engine.testing import TinyModel, tiny_model
from minfer.gguf import GGUFFile, open_bytes

Floats = npt.NDArray[np.float32]
ALL = HeadQuery()


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
        result = program.run(batch(ids[start : start + chunk], start, tables), cache, ALL)
        parts.append(np.asarray(result.logits))
    return np.concatenate(parts)


@dataclass
class Runner:
    """A compiled tiny model with a cache, fed through the cache's own bookkeeping."""

    graph: Graph
    program: Program
    cache: KVCache

    @classmethod
    def of(
        cls,
        backend: Backend,
        file: GGUFFile | TinyModel,
        build: BuildOptions | None = None,
        options: CompileOptions | None = None,
        n_blocks: int = 32,
    ) -> Runner:
        """Build, compile, and make room for n_blocks blocks of each group."""
        if isinstance(file, TinyModel):
            file = open_bytes(tiny_model(file))
        graph = build_graph(file.metadata, file, build or BuildOptions(kv_type="f32"))
        program = backend.compile(graph, file, options or CompileOptions())
        blocks = (n_blocks,) * len(graph.cache_groups)
        return cls(graph, program, KVCache(graph.cache_groups, blocks, program.new_cache(blocks)))

    def feed(
        self,
        parts: Sequence[tuple[CachedSequence, Sequence[int]]],
        query: HeadQuery = ALL,
        *,
        logits_of: Sequence[int] | None = None,
        cancel: Cancel | None = None,
    ) -> StepResult:
        """One step that adds ids to each sequence; `logits_of`: rows of the batch, None for all."""
        ids, positions, steps = array("i"), array("i"), []
        for sequence, new in parts:
            assert self.cache.reserve(sequence, len(new))
            steps.append(self.cache.step(sequence, len(ids), len(new)))
            ids.extend(new)
            positions.extend(range(sequence.length, sequence.length + len(new)))
        rows = array("i", range(len(ids)) if logits_of is None else logits_of)
        step = StepBatch(ids, positions, positions, tuple(steps), rows)
        result = self.program.run(step, self.cache.store, query, cancel)
        for sequence, new in parts:
            self.cache.commit(sequence, new)
        return result

    def logits(self, ids: Sequence[int], chunk: int = 512) -> Floats:
        """Logits at every position of a fresh sequence, which is freed again."""
        sequence = self.cache.new_sequence()
        parts = [
            np.asarray(self.feed([(sequence, ids[start : start + chunk])]).logits)
            for start in range(0, len(ids), chunk)
        ]
        self.cache.free(sequence)
        return np.concatenate(parts)


def random_ids(n: int, seed: int = 0) -> list[int]:
    """Ids that every tiny model has."""
    ids: list[int] = np.random.default_rng(seed).integers(0, 256, n).tolist()
    return ids
