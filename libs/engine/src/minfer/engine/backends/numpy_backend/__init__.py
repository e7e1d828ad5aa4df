"""The reference backend: float32 through numpy and BLAS. It defines what every operation means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.engine.backends.numpy_backend.cache import block_bytes
from minfer.engine.backends.numpy_backend.plan import program_bytes
from minfer.engine.backends.numpy_backend.program import NumpyProgram

if TYPE_CHECKING:
    from minfer.engine.backends.step import CompileOptions
    from minfer.engine.graph.ops import CacheSpec, Graph
    from minfer.gguf import GGUFFile


class NumpyBackend:
    """Runs any graph anywhere numpy runs. Its bits depend on the BLAS, the batch and the thread count."""

    name = "numpy"
    is_batch_invariant = False

    def compile(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> NumpyProgram:
        """Decode the weights to float32 in parallel, or leave them stored (options.weights)."""
        return NumpyProgram(graph, file, options)

    def plan_bytes(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> int:
        """Weights, activations, attention logits and logits, computed from the graph alone."""
        return program_bytes(graph, options)

    def cache_bytes(self, spec: CacheSpec, options: CompileOptions) -> int:
        """Bytes of one block of one slot."""
        return block_bytes(spec, compact=options.weights == "blockwise")
