"""Block tables: who shares what, what is copied, what windows give up, what prefixes find."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.backends.step import BLOCK_POSITIONS
from minfer.engine.graph.ops import CacheSpec
from minfer.engine.kv_cache import HOLE, CachedSequence, KVCache, blocks_for

_FULL = CacheSpec("kv", 1, 4, 4, None, "f32")
_WINDOWED = CacheSpec("kv", 1, 4, 4, 20, "f32")


class _Store:
    """Remembers which blocks were copied."""

    n_blocks: tuple[int, ...] = (8, 8)
    n_bytes = 0

    def __init__(self) -> None:
        self.copies: list[tuple[int, int, int]] = []

    def copy_block(self, group: int, source: int, target: int) -> None:
        self.copies.append((group, source, target))

    def read_block(self, group: int, block: int) -> bytes:
        raise NotImplementedError

    def write_block(self, group: int, block: int, data: bytes) -> None:
        raise NotImplementedError


class _RememberingStore(_Store):
    """Blocks of token ids in place of keys and values."""

    def __init__(self, n_blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.n_blocks = n_blocks
        self.cells = [[[-1] * BLOCK_POSITIONS for _ in range(n)] for n in n_blocks]

    def copy_block(self, group: int, source: int, target: int) -> None:
        self.cells[group][target] = list(self.cells[group][source])

    def write(self, cache: KVCache, sequence: CachedSequence, ids: list[int]) -> None:
        """What a step would do."""
        if not cache.reserve(sequence, len(ids)):
            return
        for group, table in enumerate(cache.step(sequence, 0, len(ids)).block_tables):
            for position, token in enumerate(ids, sequence.length):
                self.cells[group][table[position // BLOCK_POSITIONS]][position % BLOCK_POSITIONS] = token
        cache.commit(sequence, ids)

    def seen(self, sequence: CachedSequence, group: int, window: int | None) -> list[int]:
        """What the next query reads through the table."""
        first = 0 if window is None else max(sequence.length - window + 1, 0)
        table = sequence.tables[group]
        return [
            self.cells[group][table[position // BLOCK_POSITIONS]][position % BLOCK_POSITIONS]
            for position in range(first, sequence.length)
        ]


def _feed(cache: KVCache, sequence: CachedSequence, ids: list[int]) -> None:
    assert cache.reserve(sequence, len(ids))
    cache.commit(sequence, ids)


def test_blocks_come_as_positions_need_them() -> None:
    cache = KVCache([_FULL], [3], _Store())
    sequence = cache.new_sequence()
    _feed(cache, sequence, list(range(16)))
    assert len(sequence.tables[0]) == 1
    _feed(cache, sequence, [16])
    assert len(sequence.tables[0]) == 2
    assert cache.n_free == (1,)


def test_reserving_too_much_changes_nothing() -> None:
    cache = KVCache([_FULL, _WINDOWED], [3, 1], _Store())
    sequence = cache.new_sequence()
    assert not cache.reserve(sequence, 17)
    assert cache.n_free == (3, 1)
    assert cache.reserve(sequence, 16)


def test_without_commit_a_step_did_not_happen() -> None:
    cache = KVCache([_FULL], [4], _Store())
    sequence = cache.new_sequence()
    _feed(cache, sequence, [1, 2, 3])
    cache.reserve(sequence, 40)
    assert sequence.length == 3
    _feed(cache, sequence, [4])
    assert sequence.ids.tolist() == [1, 2, 3, 4]


def test_a_fork_shares_and_the_writer_copies_the_half_filled_block() -> None:
    store = _Store()
    cache = KVCache([_FULL], [8], store)
    first = cache.new_sequence()
    _feed(cache, first, list(range(20)))
    second = cache.fork(first)
    assert first.tables == second.tables
    shared_full, shared_half = first.tables[0]
    _feed(cache, second, [99])
    assert second.tables[0][0] == shared_full
    assert store.copies == [(0, shared_half, second.tables[0][1])]
    _feed(cache, first, [98])  # alone now: nothing to copy
    assert len(store.copies) == 1
    cache.free(first)
    cache.free(second)
    assert cache.n_free == (8,)


def test_windowed_groups_give_up_what_no_query_sees() -> None:
    cache = KVCache([_FULL, _WINDOWED], [10, 10], _Store())
    sequence = cache.new_sequence()
    for i in range(160):
        _feed(cache, sequence, [i])
    # A query at 160 - 64 sees 77 and later, which lie in block 4 and later.
    assert sequence.tables[1][:4].tolist() == [HOLE] * 4
    assert HOLE not in sequence.tables[1][4:]
    assert HOLE not in sequence.tables[0]
    assert cache.n_free == (0, 4)
    assert cache.truncate(sequence, 96)
    assert not cache.truncate(sequence, 80)
    assert cache.truncate(sequence, 0)
    assert cache.n_free == (10, 10)


def test_one_sequence_never_needs_more_blocks_than_planned() -> None:
    for step in (1, 7, 40):
        needed = blocks_for(_WINDOWED, 400, step)
        cache = KVCache([_WINDOWED], [needed], _Store())
        sequence = cache.new_sequence()
        for start in range(0, 400, step):
            _feed(cache, sequence, list(range(start, min(start + step, 400))))


def test_a_freed_prefix_is_found_again() -> None:
    cache = KVCache([_FULL], [8], _Store())
    first = cache.new_sequence()
    _feed(cache, first, list(range(40)))
    blocks = first.tables[0].tolist()
    cache.free(first)
    second = cache.new_sequence()
    assert cache.adopt(second, [*range(33), 7, 7]) == 32
    assert second.tables[0].tolist() == blocks[:2]
    third = cache.new_sequence()
    assert cache.adopt(third, [5, *range(40)]) == 0


def test_adopting_through_a_window_needs_only_its_blocks() -> None:
    cache = KVCache([_FULL, _WINDOWED], [10, 10], _Store())
    first = cache.new_sequence()
    for i in range(160):
        _feed(cache, first, [i])
    second = cache.new_sequence()
    assert cache.adopt(second, list(range(160))) == 160
    assert second.tables[1][:8].tolist() == [HOLE] * 8  # a query at 160 sees 141 and later


def test_a_block_that_is_written_again_is_not_found_under_its_old_content() -> None:
    cache = KVCache([_FULL], [8], _Store())
    first = cache.new_sequence()
    _feed(cache, first, list(range(16)))
    cache.truncate(first, 8)
    _feed(cache, first, [0] * 8)
    assert cache.adopt(cache.new_sequence(), list(range(16))) == 0
    assert cache.adopt(cache.new_sequence(), [*range(8), *[0] * 8]) == 16


def test_remembered_blocks_are_reused_when_nothing_blank_is_left() -> None:
    cache = KVCache([_FULL], [2], _Store())
    first = cache.new_sequence()
    _feed(cache, first, list(range(32)))
    cache.free(first)
    second = cache.new_sequence()
    _feed(cache, second, [9] * 32)
    assert cache.adopt(cache.new_sequence(), list(range(32))) == 0


def test_only_an_empty_sequence_adopts() -> None:
    cache = KVCache([_FULL], [2], _Store())
    sequence = cache.new_sequence()
    _feed(cache, sequence, [1])
    with pytest.raises(ValueError, match="empty"):
        cache.adopt(sequence, [1, 2])


_ACTIONS = st.lists(
    st.tuples(st.sampled_from(["feed", "fork", "truncate", "free", "adopt"]), st.integers(0, 60)), max_size=40
)


@settings(max_examples=100, deadline=None)
@given(_ACTIONS)
def test_every_sequence_reads_its_own_tokens_whatever_happens(actions: list[tuple[str, int]]) -> None:
    groups, n_blocks = [_FULL, _WINDOWED], (24, 16)
    store = _RememberingStore(n_blocks)
    cache = KVCache(groups, n_blocks, store)
    sequences = [cache.new_sequence()]
    for action, n in actions:
        sequence = sequences[n % len(sequences)]
        if action == "feed":
            store.write(cache, sequence, [n % 3] * (n % 23))
        elif action == "fork":
            sequences.append(cache.fork(sequence))
        elif action == "truncate":
            cache.truncate(sequence, max(0, sequence.length - n))
        elif action == "free":
            cache.free(sequence)
        elif action == "adopt":
            cache.free(sequence)
            cache.adopt(sequence, [n % 3] * n)
        for group, total in enumerate(n_blocks):
            held = {block for s in sequences for block in s.tables[group] if block != HOLE}
            assert len(held) + cache.n_free[group] == total
            window = groups[group].window
            for s in sequences:
                first = 0 if window is None else max(s.length - window + 1, 0)
                assert store.seen(s, group, window) == s.ids[first:].tolist()
    for sequence in sequences:
        cache.free(sequence)
    assert cache.n_free == n_blocks
