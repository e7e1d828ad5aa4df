"""What goes into a step and what comes out: the contract between scheduling and the backends.

Integers travel as `array.array('i')`: it is a buffer that numpy and C read without copying, and making
one needs no import of numpy, which the native path does without.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from minfer.engine.graph.ops import CacheSpec, Graph
    from minfer.gguf import GGUFFile

BLOCK_POSITIONS = 16
"""Positions in one block of the KV cache."""

Ints: TypeAlias = "array[int]"  # typecode 'i'; array cannot be subscripted at run time before 3.12
FloatMatrix = Any  # a C-contiguous float32 buffer [rows, columns]: ndarray or memoryview
Cancel = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class SequenceStep:
    """One sequence's part of a step: rows [first_row, first_row + n_rows) of the batch.

    length_before: positions the cache already holds. block_tables: for each cache group, the block
    index of every BLOCK_POSITIONS positions, long enough for the new rows too.
    """

    first_row: int
    n_rows: int
    length_before: int
    block_tables: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Tokens of any number of sequences; rows of one sequence are contiguous and ascending.

    ids int32[T] (or `rows` float32[T, D] in their place), rope_pos int32[T] (what rotations see),
    cache_pos int32[T] (where in its sequence the row is stored), logit_rows int32[L] ascending.
    A row sees the positions of its sequence up to its own cache_pos, within the window if there is
    one: windows and causality count cache positions, whatever rotations were applied.
    """

    ids: Ints
    rope_pos: Ints
    cache_pos: Ints
    sequences: tuple[SequenceStep, ...]
    logit_rows: Ints
    rows: FloatMatrix | None = None


@dataclass(frozen=True, slots=True)
class HeadQuery:
    """What is wanted of each logit row.

    top = 0: the full vocabulary. top = k: the k largest (logit descending, then id ascending), and the
    exact logits of `listed` ids. The maximum and log-sum-exp always come along.
    """

    top: int = 0
    listed: tuple[tuple[int, ...], ...] = ()  # for each logit row; () = none for any row


@dataclass(frozen=True, slots=True)
class StepResult:
    """Per logit row: full `logits` [L, V], or `top_ids`/`top_logits` [L][k] and `listed_logits` [L][m]."""

    logits: FloatMatrix | None = None
    top_ids: Sequence[Sequence[int]] = ()
    top_logits: Sequence[Sequence[float]] = ()
    listed_logits: Sequence[Sequence[float]] = ()
    max_logit: Sequence[float] = ()
    log_sum_exp: Sequence[float] = ()
    pooled: FloatMatrix | None = None
    taps: Mapping[str, Any] = field(default_factory=dict)


class Cancelled(Exception):  # noqa: N818 - an outcome, not an error
    """The step was stopped by its cancel function; the cache positions it was writing are undefined."""


class CacheStore(Protocol):
    """The bytes of a KV cache: `n_blocks` blocks of BLOCK_POSITIONS positions for each cache group."""

    n_blocks: tuple[int, ...]
    n_bytes: int

    def copy_block(self, group: int, source: int, target: int) -> None:
        """Copy one block of a group, all its layers."""

    def read_block(self, group: int, block: int) -> bytes:
        """The bytes of one block (keys and values of all the group's layers), in the backend's layout."""

    def write_block(self, group: int, block: int, data: bytes) -> None:
        """Put back what read_block gave."""


class Program(Protocol):
    """A compiled graph with its weights."""

    n_bytes: int  # weights and buffers, as resident memory
    notices: tuple[str, ...]  # what a user should know about how the weights are kept

    def new_cache(self, n_blocks: tuple[int, ...]) -> CacheStore:
        """Allocate cache bytes: a number of blocks for each cache group."""

    def run(
        self, batch: StepBatch, cache: CacheStore, query: HeadQuery, cancel: Cancel | None = None
    ) -> StepResult:
        """Run one step. Raises Cancelled; the caller's bookkeeping stays as it was before."""

    def close(self) -> None:
        """Give the memory back; the program cannot be used again."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Limits and wishes of a compilation.

    taps: names of nodes whose values StepResult shall carry. A node's name gives its value; an Attend
    node's name with `.probabilities` gives, for each sequence, the probabilities [n_q, rows, positions]
    (positions that a window hides have probability 0).
    weights: `blockwise` keeps them as stored and decodes while computing, where a backend would
    otherwise keep float32 copies; a backend that computes on stored blocks ignores it.
    """

    max_tokens: int = 512
    max_logit_rows: int = 512
    n_threads: int = 1
    taps: tuple[str, ...] = ()
    weights: Literal["resident", "blockwise"] = "resident"


class Backend(Protocol):
    """One way of running graphs."""

    name: str  # "numpy", "native-scalar", "native-avx2", …
    is_batch_invariant: bool  # the promise of sameness (ARCHITECTURE.md)

    def compile(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> Program:
        """Take the graph's weights out of `file` and make it runnable."""

    def plan_bytes(self, graph: Graph, file: GGUFFile, options: CompileOptions) -> int:
        """Bytes that compile and run will take beside the cache, computed without loading."""

    def cache_bytes(self, spec: CacheSpec, options: CompileOptions) -> int:
        """Bytes of one block of one slot of that spec."""
