"""The memory a model will take, known before a weight is read, and the refusal when it is not there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minfer.core.errors import NotEnoughMemoryError
from minfer.core.units import human_bytes
from minfer.engine.kv_cache import blocks_for, shared_blocks

if TYPE_CHECKING:
    from minfer.engine.backends.step import Backend, CompileOptions
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import GGUFFile

_PROCESS_BYTES = 64 << 20
"""Python, numpy, the vocabulary and what generating allocates."""


class ModelTooLargeError(NotEnoughMemoryError):
    """Weights, buffers and KV cache together are more than the process may take."""

    code = "model-too-large"


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes for a context of n_ctx positions. n_ctx_fitting: the longest context that fits, 0 for none."""

    n_ctx: int
    weight_bytes: int
    buffer_bytes: int
    cache_bytes: int
    available_bytes: int
    n_ctx_fitting: int

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.weight_bytes + self.buffer_bytes + self.cache_bytes

    @property
    def fits(self) -> bool:
        """Whether the process may take so much."""
        return self.total_bytes <= self.available_bytes

    def check(self) -> None:
        """Raise ModelTooLargeError (exit status 9) when it does not fit."""
        if self.fits:
            return
        if self.n_ctx_fitting:
            hint = f"a context of {self.n_ctx_fitting} tokens would fit: --n-ctx {self.n_ctx_fitting}"
        else:
            hint = "no context fits; choose a smaller quantization or a smaller model"
        raise ModelTooLargeError(
            f"a context of {self.n_ctx} tokens needs {human_bytes(self.total_bytes)} of memory"
            f" (weights {human_bytes(self.weight_bytes)}, buffers {human_bytes(self.buffer_bytes)},"
            f" KV cache {human_bytes(self.cache_bytes)}); {human_bytes(self.available_bytes)} are available",
            hint=hint,
        )


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans one graph on one backend."""

    graph: Graph
    backend: Backend
    file: GGUFFile
    options: CompileOptions

    def plan(
        self, n_ctx: int, available_bytes: int, n_sequences: int = 1, *, is_shared: bool = False
    ) -> MemoryPlan:
        """The memory that n_sequences contexts of n_ctx positions each (is_shared: together) take, beside
        the weights.
        """
        one_row = replace(self.options, max_tokens=1, max_logit_rows=1)
        fixed = self.backend.plan_bytes(self.graph, self.file, one_row)
        program = self.backend.plan_bytes(self.graph, self.file, self.options)
        buffers = program - fixed + _PROCESS_BYTES

        def cache(length: int) -> int:
            return self._cache_bytes(self.blocks(length, n_sequences, is_shared=is_shared))

        room = available_bytes - fixed - buffers
        fitting = n_ctx
        if cache(n_ctx) > room:
            low, fitting = 0, 0
            high = n_ctx
            while low < high:  # the longest context whose cache fits into the room
                middle = (low + high + 1) // 2
                if cache(middle) <= room:
                    low = fitting = middle
                else:
                    high = middle - 1
        return MemoryPlan(n_ctx, fixed, buffers, cache(n_ctx), available_bytes, fitting)

    def blocks(self, n_ctx: int, n_sequences: int = 1, *, is_shared: bool = False) -> tuple[int, ...]:
        """Cache blocks of each group for so many contexts of that length, or of that length together."""
        if is_shared:
            most = self.options.max_tokens
            return tuple(shared_blocks(spec, n_ctx, n_sequences, most) for spec in self.graph.cache_groups)
        return tuple(
            n_sequences * blocks_for(spec, n_ctx, self.options.max_tokens) for spec in self.graph.cache_groups
        )

    def _cache_bytes(self, n_blocks: Sequence[int]) -> int:
        of_group = dict(zip(self.graph.cache_groups, n_blocks, strict=True))
        return sum(
            of_group[spec] * self.backend.cache_bytes(spec, self.options) for spec in self.graph.cache_slots
        )
