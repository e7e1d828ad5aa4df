"""The cache's bookkeeping against a store that remembers what was written where."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.backends.step import BLOCK_POSITIONS
from minfer.engine.graph.ops import CacheSpec
from minfer.engine.kv_cache import FREED, CacheFullError, CacheSequence, KvCache, blocks_for, group_blocks

FULL = CacheSpec("kv", 1, 8, 8, None, "f16")
WINDOWED = CacheSpec("kv", 1, 8, 8, 24, "f16")


class RememberingStore:
    """Blocks of token ids in place of keys and values."""

    def __init__(self, n_blocks: tuple[int, ...]) -> None:
        self.n_blocks = n_blocks
        self.n_bytes = 0
        self.cells = [[[-1] * BLOCK_POSITIONS for _ in range(count)] for count in n_blocks]

    def copy_block(self, group: int, source: int, target: int) -> None:
        self.cells[group][target] = list(self.cells[group][source])

    def read_block(self, group: int, block: int) -> bytes:
        raise NotImplementedError

    def write_block(self, group: int, block: int, data: bytes) -> None:
        raise NotImplementedError


def _cache(
    *n_blocks: int, groups: Sequence[CacheSpec] = (FULL, WINDOWED)
) -> tuple[KvCache, RememberingStore]:
    store = RememberingStore(n_blocks)
    return KvCache(groups, store), store


def _write(store: RememberingStore, sequence: CacheSequence, ids: list[int]) -> None:
    sequence.reserve(len(ids))
    for group, table in enumerate(sequence.block_tables()):
        for offset, token in enumerate(ids):
            position = sequence.length + offset
            store.cells[group][table[position // BLOCK_POSITIONS]][position % BLOCK_POSITIONS] = token
    sequence.append(ids)


def _seen(store: RememberingStore, sequence: CacheSequence, group: int, window: int | None) -> list[int]:
    """What the next query reads through the table."""
    first = 0 if window is None else max(sequence.length - window + 1, 0)
    table = sequence.block_tables()[group]
    return [
        store.cells[group][table[position // BLOCK_POSITIONS]][position % BLOCK_POSITIONS]
        for position in range(first, sequence.length)
    ]


def _check(cache: KvCache, store: RememberingStore, sequences: list[CacheSequence]) -> None:
    for group, spec in enumerate(cache.groups):
        uses = [0] * cache.n_blocks(group)
        for sequence in sequences:
            for block in sequence.block_tables()[group]:
                if block != FREED:
                    uses[block] += 1
            window = spec.window
            first = 0 if window is None else max(sequence.length - window + 1, 0)
            assert _seen(store, sequence, group, window) == sequence.ids[first:]
        assert uses == cache.pool(group).uses
        assert sorted(cache.pool(group).free) == [block for block, count in enumerate(uses) if not count]


_STEP = st.tuples(
    st.sampled_from(["write", "cut", "fork", "close", "reuse"]), st.integers(0, 5), st.integers(0, 60)
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_STEP, max_size=30))
def test_every_sequence_reads_its_own_tokens_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    cache, store = _cache(40, 40)
    sequences = [cache.open_sequence()]
    next_token = 0
    for action, which, amount in steps:
        sequence = sequences[which % len(sequences)]
        if action == "write":
            ids = list(range(next_token, next_token + amount))
            next_token += amount
            with contextlib.suppress(CacheFullError):
                _write(store, sequence, ids)
        elif action == "cut":
            length = max(sequence.length - amount, 0)
            if sequence.can_truncate(length):
                sequence.truncate(length)
        elif action == "fork" and len(sequences) < 6:
            sequences.append(sequence.fork())
        elif action == "reuse":
            wanted = [*sequence.ids[: max(sequence.length - amount, 0)], 10**6, 10**6 + 1]
            kept = sequence.reuse(wanted)
            assert kept in (0, len(wanted) - 2)
        elif action == "close":
            sequence.close()
        _check(cache, store, sequences)


def test_a_full_cache_says_so_and_changes_nothing() -> None:
    cache, store = _cache(2, groups=(FULL,))
    sequence = cache.open_sequence()
    _write(store, sequence, list(range(20)))
    with pytest.raises(CacheFullError, match="all 2 blocks"):
        sequence.reserve(13)
    _check(cache, store, [sequence])
    _write(store, sequence, list(range(20, 32)))
    assert sequence.length == 32


def test_forks_share_full_blocks_and_copy_the_one_they_write() -> None:
    cache, store = _cache(8, groups=(FULL,))
    sequence = cache.open_sequence()
    _write(store, sequence, list(range(24)))
    twin = sequence.fork()
    assert cache.n_free(0) == 6
    _write(store, twin, [99])
    assert cache.n_free(0) == 5
    assert twin.block_tables()[0][0] == sequence.block_tables()[0][0]
    assert twin.block_tables()[0][1] != sequence.block_tables()[0][1]


@pytest.mark.parametrize("max_rows", [1, 7, 64])
def test_a_window_holds_no_more_than_was_planned(max_rows: int) -> None:
    planned = group_blocks(WINDOWED, 1000, max_rows)
    cache, store = _cache(planned, groups=(WINDOWED,))
    sequence = cache.open_sequence()
    for start in range(0, 1000, max_rows):
        _write(store, sequence, list(range(start, min(start + max_rows, 1000))))
    assert planned < blocks_for(1000)
    assert sequence.can_truncate(1000 - 64)
    assert not sequence.can_truncate(500)


def test_reuse_leaves_one_token_to_compute() -> None:
    cache, store = _cache(8, 8)
    sequence = cache.open_sequence()
    _write(store, sequence, [1, 2, 3])
    assert sequence.reuse([1, 2, 3]) == 2
    assert sequence.ids == [1, 2]
