"""Which block of the KV cache holds which positions of which sequence. Pure bookkeeping, no bytes.

Each cache group (slots with equal specs) has its own pool of blocks, and each sequence a block table for
each group. A step is bracketed: `reserve` makes room, the backend runs, `commit` makes the positions
count; without commit nothing happened. Blocks are shared between sequences and copied when one of them
writes. Groups with a sliding window give up blocks that no later query can see.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from minfer.engine.backends.step import BLOCK_POSITIONS, CacheStore, Ints, SequenceStep, StepBatch
from minfer.engine.graph.ops import CacheSpec
from minfer.engine.kv_blocks import ROOT, BlockPool, Digest, chain

HOLE = -1
"""In a block table: these positions were given up, because every window has passed them."""


REWIND = 64
"""Positions that a sequence can always be truncated by, whatever its windows: wrong drafts, an edited end."""


def blocks_for(spec: CacheSpec, n_positions: int, max_step: int) -> int:
    """Blocks that one sequence of n_positions needs at most, fed at most max_step rows a step."""
    whole = -(-n_positions // BLOCK_POSITIONS)
    if spec.window is None:
        return whole
    return min(whole, -(-(spec.window + REWIND + max_step) // BLOCK_POSITIONS) + 1)


@dataclass(slots=True, eq=False)
class CachedSequence:
    """One sequence: the ids it holds and where. Made by KVCache; read `length`, `ids` and `tables`.

    first_kept: for each group the first block that is no HOLE. salt: sequences with different salts
    never find each other's blocks.
    """

    tables: tuple[Ints, ...]
    first_kept: list[int]
    salt: Digest = ROOT
    ids: Ints = field(default_factory=lambda: array("i"))
    digests: list[Digest] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Positions that are committed."""
        return len(self.ids)


def shared_blocks(spec: CacheSpec, n_positions: int, n_sequences: int, max_step: int) -> int:
    """Blocks for n_sequences that have n_positions together, however they share them."""
    whole = -(-n_positions // BLOCK_POSITIONS) + n_sequences
    return min(whole, n_sequences * blocks_for(spec, n_positions, max_step) + 1)


class KVCache:
    """The block tables of all sequences of one cache."""

    def __init__(self, groups: Sequence[CacheSpec], n_blocks: Sequence[int], store: CacheStore) -> None:
        """groups and n_blocks: as the store was made; `store` copies blocks when they part ways."""
        self.store = store
        self._groups = tuple(groups)
        self._pools = tuple(BlockPool(n) for n in n_blocks)

    @property
    def n_free(self) -> tuple[int, ...]:
        """Free blocks of each group, those that still hold a known prefix included."""
        return tuple(pool.n_free for pool in self._pools)

    @property
    def n_positions(self) -> int:
        """Positions that sequences without windows can hold together."""
        return self._positions([pool.n_blocks for pool in self._pools])

    @property
    def n_positions_free(self) -> int:
        """Those that are free, known prefixes included."""
        return self._positions(self.n_free)

    def _positions(self, n_blocks: Sequence[int]) -> int:
        whole = [n for spec, n in zip(self._groups, n_blocks, strict=True) if spec.window is None]
        return min(whole or n_blocks) * BLOCK_POSITIONS

    def has_room(self, n_positions: int, n_spare: int = 0) -> bool:
        """Whether so many new positions, and n_spare blocks besides, could be reserved in every group."""
        return all(
            blocks_for(spec, n_positions, REWIND) + n_spare <= pool.n_free
            for spec, pool in zip(self._groups, self._pools, strict=True)
        )

    def new_sequence(self, salt: Digest = ROOT) -> CachedSequence:
        """An empty sequence. A salt of its own hides its content from others, and theirs from it."""
        n = len(self._groups)
        return CachedSequence(tuple(array("i") for _ in range(n)), [0] * n, salt)

    def reserve(self, sequence: CachedSequence, n_rows: int) -> bool:
        """Make room for n_rows after the committed ones; False, with nothing changed, when blocks lack."""
        n_blocks = -(-(sequence.length + n_rows) // BLOCK_POSITIONS)
        copies = [self._must_copy(sequence, group) for group in range(len(self._groups))]
        for pool, table, copy in zip(self._pools, sequence.tables, copies, strict=True):
            if max(0, n_blocks - len(table)) + copy > pool.n_free:
                return False
        for group, (pool, table) in enumerate(zip(self._pools, sequence.tables, strict=True)):
            if copies[group]:
                self._copy_last(sequence, group)
            elif len(table) and sequence.length % BLOCK_POSITIONS:
                pool.forget(table[sequence.length // BLOCK_POSITIONS])
            while len(table) < n_blocks:
                table.append(pool.allocate())
        return True

    def step(self, sequence: CachedSequence, first_row: int, n_rows: int) -> SequenceStep:
        """The sequence's part of a batch whose rows were reserved."""
        n_blocks = -(-(sequence.length + n_rows) // BLOCK_POSITIONS)
        tables = tuple(table[:n_blocks] for table in sequence.tables)
        return SequenceStep(first_row, n_rows, sequence.length, tables)

    def batch(self, parts: Iterable[tuple[CachedSequence, Sequence[int], int]]) -> StepBatch:
        """One step of new ids for each sequence, whose rows were reserved; of each part's rows the last
        n_logits want logits."""
        ids, positions, logit_rows, steps = array("i"), array("i"), array("i"), []
        for sequence, new, n_logits in parts:
            steps.append(self.step(sequence, len(ids), len(new)))
            ids.extend(new)
            positions.extend(range(sequence.length, sequence.length + len(new)))
            logit_rows.extend(range(len(ids) - n_logits, len(ids)))
        return StepBatch(ids, positions, positions, tuple(steps), logit_rows)

    def commit(self, sequence: CachedSequence, ids: Sequence[int]) -> None:
        """The rows of these ids are in the cache now. Old blocks of windowed groups become free."""
        sequence.ids.extend(ids)
        while (len(sequence.digests) + 1) * BLOCK_POSITIONS <= sequence.length:
            self._remember_next(sequence)
        for group, spec in enumerate(self._groups):
            if spec.window is not None:
                self._pass_window(sequence, group, spec)

    def truncate(self, sequence: CachedSequence, length: int) -> bool:
        """Keep the first `length` positions. False, with nothing changed, when a window has passed them."""
        if not self.can_resume(sequence, length):
            return False
        n_blocks = -(-length // BLOCK_POSITIONS)
        for group, (pool, table) in enumerate(zip(self._pools, sequence.tables, strict=True)):
            for block in table[max(n_blocks, sequence.first_kept[group]) :]:
                pool.release(block)
            del table[n_blocks:]
            sequence.first_kept[group] = min(sequence.first_kept[group], n_blocks)
        del sequence.ids[length:]
        del sequence.digests[length // BLOCK_POSITIONS :]
        return True

    def can_resume(self, sequence: CachedSequence, length: int) -> bool:
        """Whether all positions that a query at `length` sees are still there."""
        if not 0 < length <= sequence.length:
            return length == 0
        return all(
            first * BLOCK_POSITIONS <= _first_visible(spec, length)
            for spec, first in zip(self._groups, sequence.first_kept, strict=True)
        )

    def fork(self, sequence: CachedSequence) -> CachedSequence:
        """A second sequence with the same past; blocks are shared until one of the two writes."""
        n_blocks = -(-sequence.length // BLOCK_POSITIONS)
        tables = tuple(table[:n_blocks] for table in sequence.tables)
        for pool, table in zip(self._pools, tables, strict=True):
            for block in table:
                if block != HOLE:
                    pool.share(block)
        return CachedSequence(
            tables, list(sequence.first_kept), sequence.salt, sequence.ids[:], sequence.digests[:]
        )

    def free(self, sequence: CachedSequence) -> None:
        """Give everything back; full blocks can still be found by `adopt`. The sequence is empty then."""
        for pool, table in zip(self._pools, sequence.tables, strict=True):
            # The last blocks of a prefix are of no use without the first: those are to be given up last.
            for block in reversed(table):
                if block != HOLE:
                    pool.release(block)
            del table[:]
        sequence.first_kept[:] = [0] * len(self._groups)
        del sequence.ids[:]
        del sequence.digests[:]

    def adopt(self, sequence: CachedSequence, ids: Sequence[int]) -> int:
        """Start an empty sequence with the longest known prefix of `ids`; returns its length.

        Pass the prompt without its last token: logits need at least one row to be computed.
        """
        if sequence.length:
            raise ValueError("only an empty sequence can adopt a prefix")
        digests, found = self._known(sequence.salt, ids)
        n_blocks = len(digests)
        while n_blocks and not all(map(self._has_visible, self._groups, found, [n_blocks] * len(found))):
            n_blocks -= 1
        for group, (pool, table) in enumerate(zip(self._pools, sequence.tables, strict=True)):
            first = _first_visible(self._groups[group], n_blocks * BLOCK_POSITIONS) // BLOCK_POSITIONS
            table.extend([HOLE] * first + found[group][first:n_blocks])
            sequence.first_kept[group] = first
            for block in table[first:]:
                pool.share(block)
        sequence.digests[:] = digests[:n_blocks]
        sequence.ids.extend(ids[: n_blocks * BLOCK_POSITIONS])
        return sequence.length

    def rebuild(self, sequence: CachedSequence, ids: Sequence[int], first_kept: Sequence[int]) -> bool:
        """Give an empty sequence its length and blocks, whose bytes the caller puts back at once.

        first_kept: for each group the first block that is not given up. False, with nothing changed, when
        blocks lack or no query could follow.
        """
        if sequence.length:
            raise ValueError("only an empty sequence can be rebuilt")
        n_blocks = -(-len(ids) // BLOCK_POSITIONS)
        for spec, pool, first in zip(self._groups, self._pools, first_kept, strict=True):
            sees = _first_visible(spec, len(ids)) // BLOCK_POSITIONS
            if not 0 <= first <= min(sees, n_blocks) or n_blocks - first > pool.n_free:
                return False
        for pool, table, first in zip(self._pools, sequence.tables, first_kept, strict=True):
            table.extend([HOLE] * first)
            table.extend(pool.allocate() for _ in range(n_blocks - first))
        sequence.first_kept[:] = first_kept
        sequence.ids.extend(ids)
        while (len(sequence.digests) + 1) * BLOCK_POSITIONS <= sequence.length:
            self._remember_next(sequence)
        return True

    def export_known(self) -> Iterator[tuple[int, Digest, bytes]]:
        """Every block with a known prefix: its group, its digest and its bytes in the backend's layout."""
        for group, pool in enumerate(self._pools):
            for digest, block in pool.known():
                yield group, digest, self.store.read_block(group, block)

    def import_known(self, group: int, digest: Digest, data: bytes) -> bool:
        """Take a block that export_known gave, of the same model and backend. False when there is no room
        or the prefix is known already.
        """
        pool = self._pools[group]
        block = None if pool.find(digest) is not None else pool.allocate_blank()
        if block is None:
            return False
        self.store.write_block(group, block, data)
        pool.remember(block, digest)
        pool.release(block)
        return True

    def _known(self, salt: Digest, ids: Sequence[int]) -> tuple[list[Digest], list[list[int]]]:
        """Digests of the full blocks of `ids` that every group without window knows; each group's blocks."""
        digests: list[Digest] = []
        found: list[list[int]] = [[] for _ in self._groups]
        for start in range(0, len(ids) - BLOCK_POSITIONS + 1, BLOCK_POSITIONS):
            digest = chain(digests[-1] if digests else salt, ids[start : start + BLOCK_POSITIONS])
            blocks = [pool.find(digest) for pool in self._pools]
            if any(
                block is None and spec.window is None
                for spec, block in zip(self._groups, blocks, strict=True)
            ):
                break
            digests.append(digest)
            for known, block in zip(found, blocks, strict=True):
                known.append(HOLE if block is None else block)
        return digests, found

    @staticmethod
    def _has_visible(spec: CacheSpec, found: Sequence[int], n_blocks: int) -> bool:
        """Whether every block that a query after n_blocks sees was found."""
        first = _first_visible(spec, n_blocks * BLOCK_POSITIONS) // BLOCK_POSITIONS
        return HOLE not in found[first:n_blocks]

    def _must_copy(self, sequence: CachedSequence, group: int) -> bool:
        """Whether the half-filled last block is also somebody else's."""
        table, last = sequence.tables[group], sequence.length // BLOCK_POSITIONS
        return bool(sequence.length % BLOCK_POSITIONS) and self._pools[group].is_shared(table[last])

    def _copy_last(self, sequence: CachedSequence, group: int) -> None:
        pool, table, last = self._pools[group], sequence.tables[group], sequence.length // BLOCK_POSITIONS
        fresh = pool.allocate()
        self.store.copy_block(group, table[last], fresh)
        pool.release(table[last])
        table[last] = fresh

    def _remember_next(self, sequence: CachedSequence) -> None:
        """Make the first full block that has no digest findable."""
        block = len(sequence.digests)
        start = block * BLOCK_POSITIONS
        previous = sequence.digests[-1] if sequence.digests else sequence.salt
        digest = chain(previous, sequence.ids[start : start + BLOCK_POSITIONS])
        sequence.digests.append(digest)
        for pool, table in zip(self._pools, sequence.tables, strict=True):
            if table[block] != HOLE:
                pool.remember(table[block], digest)

    def _pass_window(self, sequence: CachedSequence, group: int, spec: CacheSpec) -> None:
        """Give up blocks that queries at and after length - REWIND do not see."""
        table = sequence.tables[group]
        first = _first_visible(spec, max(0, sequence.length - REWIND)) // BLOCK_POSITIONS
        for block in range(sequence.first_kept[group], first):
            self._pools[group].release(table[block])
            table[block] = HOLE
        sequence.first_kept[group] = max(first, sequence.first_kept[group])


def _first_visible(spec: CacheSpec, position: int) -> int:
    """The first position that a query at `position` sees."""
    return 0 if spec.window is None else max(0, position - spec.window + 1)
