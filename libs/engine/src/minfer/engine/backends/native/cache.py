"""The native KV cache: bytes that C lays out, in blocks of 16 positions for each cache group."""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING

from minfer.engine.backends.native import _native
from minfer.engine.backends.native.errors import ProgramMemoryError, StepRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minfer.engine.graph.ops import CacheSpec, Graph

_GROUP = struct.Struct("=6i")


def pack_group(spec: CacheSpec, n_slots: int) -> bytes:
    """A group as mf_cache_group. A latent's values are kept apart from its keys, whose prefix they are."""
    return _GROUP.pack(n_slots, spec.n_kv, spec.dk, spec.dv, spec.window or 0, spec.dtype == "f16")


def pack_groups(graph: Graph) -> bytes:
    """All groups of a graph, in order."""
    slots = graph.cache_slots
    return b"".join(pack_group(spec, slots.count(spec)) for spec in graph.cache_groups)


def slot_places(slots: Sequence[CacheSpec], groups: Sequence[CacheSpec]) -> tuple[array[int], array[int]]:
    """For each slot its group, and which of the group's slots it is."""
    of_group = array("i", [groups.index(spec) for spec in slots])
    index = array("i", [slots[:i].count(spec) for i, spec in enumerate(slots)])
    return of_group, index


class NativeCache:
    """Blocks of keys and values. Pages are touched when written: unused blocks cost no memory."""

    def __init__(self, graph: Graph, n_blocks: tuple[int, ...]) -> None:
        """Raises ProgramMemoryError."""
        groups = graph.cache_groups
        self.n_blocks = n_blocks
        self._block_bytes = tuple(
            graph.cache_slots.count(spec) * _native.cache_block_bytes(pack_group(spec, 1)) for spec in groups
        )
        try:
            self.native = _native.Cache(pack_groups(graph), len(groups), array("q", n_blocks))
        except MemoryError:
            wanted = sum(n * size for n, size in zip(n_blocks, self._block_bytes, strict=True))
            raise ProgramMemoryError(
                f"no memory for a cache of {wanted} bytes",
                hint="ask for a shorter context or fewer sequences",
            ) from None
        self.n_bytes = self.native.n_bytes()

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Copy one block of a group, all its layers."""
        _check(self.native.copy(group, source, target), group, max(source, target))

    def read_block(self, group: int, block: int) -> bytes:
        """The bytes of one block, by slot, kv head, keys, values and, of f16, their magnitudes."""
        data = bytearray(self._block_bytes[group])
        _check(self.native.read(group, block, data, len(data)), group, block)
        return bytes(data)

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """Put back what read_block gave. Raises ValueError when the length is another."""
        if len(data) != self._block_bytes[group]:
            raise ValueError(f"{len(data)} bytes for a block of {self._block_bytes[group]}")
        _check(self.native.write(group, block, data, len(data)), group, block)


def _check(status: int, group: int, block: int) -> None:
    if status != _native.OK:
        raise StepRefusedError(f"cache group {group} has no block {block}")
