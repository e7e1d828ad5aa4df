"""Which blocks of the KV cache hold which positions of which sequence. Pure bookkeeping.

The bytes belong to the backend's CacheStore. A block holds BLOCK_POSITIONS positions of one cache group;
every sequence has a table of blocks for each group. Blocks are counted: sequences that begin alike share
them, and one that is written while shared is copied first. In a group with a sliding window, blocks that
no later query can see are given back.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from minfer.core.errors import MinferError
from minfer.engine.backends.step import BLOCK_POSITIONS

if TYPE_CHECKING:
    from minfer.engine.backends.step import CacheStore
    from minfer.engine.graph.ops import CacheSpec

FREED = -1
"""In a block table: the window has passed this block."""

REWIND_POSITIONS = 64
"""How far a windowed sequence can always be cut back: drafts that were wrong, an undone turn's last words."""


class CacheFullError(MinferError):
    """No block is free. The scheduler makes room or waits; a single run has reserved enough."""

    code, http_status = "cache-full", 503

    def __init__(self, group: int, n_blocks: int) -> None:
        super().__init__(
            f"all {n_blocks} blocks of cache group {group} are in use",
            hint="raise --n-ctx, or run fewer at once",
        )
        self.group = group


def blocks_for(n_positions: int) -> int:
    """Blocks that n_positions take when they start at the beginning of one."""
    return -(-n_positions // BLOCK_POSITIONS)


def group_blocks(spec: CacheSpec, n_positions: int, max_rows: int) -> int:
    """Blocks that one sequence of n_positions holds at most in a group, when a step adds up to max_rows."""
    if spec.window is None:
        return blocks_for(n_positions)
    # The window, what may be rewound, the rows being written, and a partly used block at either end.
    return min(blocks_for(n_positions), blocks_for(spec.window + REWIND_POSITIONS + max_rows) + 1)


class _Pool:
    """The blocks of one group and how often each is used."""

    def __init__(self, group: int, n_blocks: int) -> None:
        self.group = group
        self.uses = [0] * n_blocks
        self.free = list(range(n_blocks - 1, -1, -1))

    def take(self) -> int:
        if not self.free:
            raise CacheFullError(self.group, len(self.uses))
        block = self.free.pop()
        self.uses[block] = 1
        return block

    def share(self, block: int) -> None:
        if block != FREED:
            self.uses[block] += 1

    def give_back(self, block: int) -> None:
        if block == FREED:
            return
        self.uses[block] -= 1
        if not self.uses[block]:
            self.free.append(block)


class KvCache:
    """The blocks of every cache group, and the sequences that use them."""

    def __init__(self, groups: Sequence[CacheSpec], store: CacheStore) -> None:
        """`groups` are the graph's cache groups; `store` has the bytes and says how many blocks each has."""
        self.groups = tuple(groups)
        self.store = store
        self._pools = [_Pool(group, n_blocks) for group, n_blocks in enumerate(store.n_blocks)]

    def open_sequence(self) -> CacheSequence:
        """An empty sequence."""
        return CacheSequence(self)

    def n_free(self, group: int) -> int:
        """Blocks of the group that nothing uses."""
        return len(self._pools[group].free)

    def n_blocks(self, group: int) -> int:
        """All blocks of the group."""
        return len(self._pools[group].uses)

    def pool(self, group: int) -> _Pool:
        """The blocks of one group, for the sequences."""
        return self._pools[group]


class CacheSequence:
    """The tokens whose keys and values are cached, and where."""

    def __init__(self, cache: KvCache) -> None:
        """Made by KvCache.open_sequence."""
        self._cache = cache
        self.ids: list[int] = []
        self._tables: list[array[int]] = [array("i") for _ in cache.groups]

    @property
    def length(self) -> int:
        """Positions in the cache."""
        return len(self.ids)

    def blocks_needed(self, n_rows: int) -> list[int]:
        """New blocks that `reserve(n_rows)` will take from each group."""
        wanted = blocks_for(self.length + n_rows)
        is_partial = n_rows > 0 and self.length % BLOCK_POSITIONS != 0
        needed = []
        for group, table in enumerate(self._tables):
            last = table[self.length // BLOCK_POSITIONS] if is_partial else FREED
            copies = last != FREED and self._cache.pool(group).uses[last] > 1
            needed.append(max(wanted - len(table), 0) + int(copies))
        return needed

    def reserve(self, n_rows: int) -> None:
        """Make the tables reach n_rows beyond the length. Raises CacheFullError, having changed nothing."""
        for group, n_new in enumerate(self.blocks_needed(n_rows)):
            if n_new > self._cache.n_free(group):
                raise CacheFullError(group, self._cache.n_blocks(group))
        wanted = blocks_for(self.length + n_rows)
        for group, table in enumerate(self._tables):
            pool = self._cache.pool(group)
            if self.length % BLOCK_POSITIONS:
                self._own(group, self.length // BLOCK_POSITIONS)
            while len(table) < wanted:
                table.append(pool.take())

    def block_tables(self) -> tuple[array[int], ...]:
        """A copy of the block table of each group. Blocks behind the window are FREED (-1)."""
        return tuple(array("i", table) for table in self._tables)

    def append(self, ids: Sequence[int]) -> None:
        """The step has stored these tokens; blocks that the windows have passed are given back."""
        self.ids.extend(ids)
        for group, spec in enumerate(self._cache.groups):
            if spec.window is None:
                continue
            table, pool = self._tables[group], self._cache.pool(group)
            # The next query, at position length, sees positions from length - window + 1 on.
            n_passed = max(self.length - spec.window + 1 - REWIND_POSITIONS, 0) // BLOCK_POSITIONS
            for index in range(min(n_passed, len(table))):
                if table[index] == FREED:
                    continue
                pool.give_back(table[index])
                table[index] = FREED

    def can_truncate(self, length: int) -> bool:
        """Whether the cache can go on from `length`: what the windows then see must still be there."""
        for group, spec in enumerate(self._cache.groups):
            if spec.window is not None and length < self.length:
                first = max(length - spec.window + 1, 0) // BLOCK_POSITIONS
                last = blocks_for(length)
                if any(block == FREED for block in self._tables[group][first:last]):
                    return False
        return True

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on. Check `can_truncate` first when a window may have passed."""
        del self.ids[length:]
        n_kept = blocks_for(length)
        for group, table in enumerate(self._tables):
            for block in table[n_kept:]:
                self._cache.pool(group).give_back(block)
            del table[n_kept:]

    def reuse(self, ids: Sequence[int]) -> int:
        """Keep the longest cached prefix of `ids` that leaves at least one to compute; its length.

        Everything after it is forgotten; all of it, when a window no longer holds what is needed.
        """
        n_same = 0
        for ours, wanted in zip(self.ids, ids[: len(ids) - 1], strict=False):
            if ours != wanted:
                break
            n_same += 1
        self.truncate(n_same if self.can_truncate(n_same) else 0)
        return self.length

    def fork(self) -> CacheSequence:
        """A second sequence with the same tokens, sharing the blocks until one of them writes."""
        twin = CacheSequence(self._cache)
        twin.ids = list(self.ids)
        for group, table in enumerate(self._tables):
            for block in table:
                self._cache.pool(group).share(block)
            twin._tables[group] = array("i", table)
        return twin

    def close(self) -> None:
        """Give all blocks back."""
        self.truncate(0)

    def _own(self, group: int, index: int) -> None:
        """Copy the block at `index` if another sequence uses it too: it is about to be written."""
        table, pool = self._tables[group], self._cache.pool(group)
        block = table[index]
        if block == FREED or pool.uses[block] == 1:
            return
        mine = pool.take()
        self._cache.store.copy_block(group, block, mine)
        pool.give_back(block)
        table[index] = mine
