"""The native backend: the graph compiled once into a flat program that C runs for a whole step.

Importing it fails when the extension was not built (no compiler at installation): `minfer.engine.backends`
then falls back to numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from minfer.engine.backends.native import _native
from minfer.engine.backends.native.cache import pack_group
from minfer.engine.backends.native.program import NativeProgram, Plan

if TYPE_CHECKING:
    from minfer.engine.backends.step import CompileOptions
    from minfer.engine.graph.ops import CacheSpec, Graph
    from minfer.gguf import GGUFFile


class NativeBackend:
    """One instruction set of the native backend; logits have the same bits on all of them."""

    is_batch_invariant = True

    def __init__(self, isa: str) -> None:
        """`isa`: one of `isas()`."""
        self.isa = isa
        self.name = f"native-{isa}"

    def compile(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> NativeProgram:
        """Repack the weights in parallel and lower the graph."""
        return NativeProgram(graph, file, options, self.isa)

    def plan_bytes(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> int:
        """Weights, buffers and scratch; exact, and nothing is read."""
        return Plan(graph, file, options).n_bytes

    def cache_bytes(self, spec: CacheSpec, options: CompileOptions) -> int:
        """Bytes of one block of one slot."""
        return _native.cache_block_bytes(pack_group(spec, 1))


def isas() -> tuple[str, ...]:
    """The instruction sets that this machine runs, fastest first; the last one is `scalar`."""
    return _native.isas()
