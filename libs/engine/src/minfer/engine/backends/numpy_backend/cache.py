"""The bytes of a KV cache as numpy arrays."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from minfer.engine.backends.step import BLOCK_POSITIONS
from minfer.engine.graph.ops import CacheSpec, Graph

Store = npt.NDArray[np.float32] | npt.NDArray[np.float16]


def stored_type(spec: CacheSpec, *, compact: bool) -> npt.DTypeLike:
    """F16 caches hold rounded values in float32, which BLAS reads; compact ones hold halves."""
    return np.float16 if compact and spec.dtype == "f16" else np.float32


def block_bytes(spec: CacheSpec, *, compact: bool) -> int:
    """Bytes of one block of one slot."""
    features = spec.dk if spec.kind == "latent" else spec.dk + spec.dv
    return BLOCK_POSITIONS * spec.n_kv * features * np.dtype(stored_type(spec, compact=compact)).itemsize


class NumpyCache:
    """For each slot the keys (positions, n_kv, dk) and values (positions, n_kv, dv) of all its blocks.

    Pages are touched when written, so blocks that are never used cost no memory.
    """

    def __init__(self, graph: Graph, n_blocks: tuple[int, ...], *, compact: bool) -> None:
        groups = graph.cache_groups
        self.n_blocks = n_blocks
        self.slot_group = tuple(groups.index(spec) for spec in graph.cache_slots)
        self.keys: list[Store] = []
        self.values: list[Store] = []
        self.n_bytes = 0
        for spec, group in zip(graph.cache_slots, self.slot_group, strict=True):
            n_positions = n_blocks[group] * BLOCK_POSITIONS
            kind = stored_type(spec, compact=compact)
            keys: Store = np.zeros((n_positions, spec.n_kv, spec.dk), kind)
            values = keys[:, :, : spec.dv]
            if spec.kind == "kv":
                values = np.zeros((n_positions, spec.n_kv, spec.dv), kind)
            self.keys.append(keys)
            self.values.append(values)
            self.n_bytes += n_blocks[group] * block_bytes(spec, compact=compact)

    def _parts(self, group: int, block: int) -> list[Store]:
        span = slice(block * BLOCK_POSITIONS, (block + 1) * BLOCK_POSITIONS)
        parts = []
        for slot, its_group in enumerate(self.slot_group):
            if its_group == group:
                parts.append(self.keys[slot][span])
                if not np.may_share_memory(self.keys[slot], self.values[slot]):
                    parts.append(self.values[slot][span])
        return parts

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Copy one block of a group, all its layers."""
        for old, new in zip(self._parts(group, source), self._parts(group, target), strict=True):
            new[...] = old

    def read_block(self, group: int, block: int) -> bytes:
        """The bytes of one block: keys, then values, of the group's slots in order."""
        return b"".join(part.tobytes() for part in self._parts(group, block))

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """Put back what read_block gave. Raises ValueError when the length is another."""
        parts = self._parts(group, block)
        if len(data) != sum(part.nbytes for part in parts):
            raise ValueError(f"a block of group {group} has another size than {len(data)} bytes")
        start = 0
        for part in parts:
            part[...] = np.frombuffer(data, part.dtype, part.size, start).reshape(part.shape)
            start += part.nbytes
