"""Path to Model: the one place where file, tokenizer, template, graph, backend and memory are wired.

with open_model(path, LoadOptions()) as opened:      # facts; no weight has been read
    opened.plan(n_ctx).check()
    with opened.load() as model:
        cache = model.new_cache(n_ctx)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from minfer.core.errors import ModelFileError
from minfer.engine.architectures import BuildOptions, Family, find
from minfer.engine.backends import Choice, choice
from minfer.engine.backends.step import CompileOptions, Program
from minfer.engine.graph.ops import Head
from minfer.engine.kv_cache import KVCache
from minfer.engine.machine import available_memory, cpu_budget
from minfer.engine.memory_plan import MemoryPlan, Planner
from minfer.engine.tokenizer import Tokenizer, load_tokenizer
from minfer.gguf import GGUFFile, open_gguf

if TYPE_CHECKING:
    from os import PathLike
    from types import TracebackType

    from minfer.engine.chat import ChatTemplate
    from minfer.engine.graph.ops import Graph


class VocabularyMismatchError(ModelFileError):
    """The tokenizer knows more tokens than the network."""

    code = "vocabulary-mismatch"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What a caller chooses about loading.

    n_threads: None takes what the process may use. backend: None asks MINFER_KERNELS, else the best.
    weights: `blockwise` decodes at each use instead of keeping float32 copies (numpy backend; slow);
    `auto` does so when memory is short. rope_context: the context length that longrope models are set
    up for, once; 0 is the model's own. max_logit_rows: the most rows of one step that want logits.
    has_states: keep what goes into the head, for requests with pooling.
    """

    n_threads: int | None = None
    kv_type: Literal["f16", "f32"] = "f16"
    backend: str | None = None
    weights: Literal["auto", "resident", "blockwise"] = "auto"
    rope_context: int = 0
    max_tokens: int = 512
    max_logit_rows: int = 32
    taps: tuple[str, ...] = ()
    has_states: bool = False


def open_model(path: str | PathLike[str], options: LoadOptions | None = None) -> OpenedModel:
    """Open a GGUF file (any part of a split set) and check that its architecture can be built.

    Raises ModelFileError when the file cannot be used.
    """
    file = open_gguf(path)
    try:
        return OpenedModel(file, options or LoadOptions())
    except ModelFileError:
        file.close()
        raise


def load_model(path: str | PathLike[str], options: LoadOptions | None = None) -> Model:
    """Open and load in one go, without a memory plan for a context."""
    with open_model(path, options) as opened:
        return opened.load()


class OpenedModel:
    """A model file whose facts are known and whose weights are not read. Parts are made when asked for."""

    def __init__(self, file: GGUFFile, options: LoadOptions) -> None:
        """Use `open_model`."""
        self.file = file
        self.options = options
        self.architecture = file.metadata.string("general.architecture")
        self._family: Family = find(self.architecture)
        self._choice: Choice = choice(options.backend)
        budget = cpu_budget()
        self.n_threads = options.n_threads or budget.n_threads
        self.threads_reason = (
            "as asked" if options.n_threads else f"of {budget.n_affinity} CPUs"
            if budget.quota is None else f"of {budget.n_affinity} CPUs, quota {budget.quota:g}"
        )  # fmt: skip
        is_blockwise = options.weights == "blockwise" or self._choice.is_blockwise
        self._weights: Literal["resident", "blockwise"] = "blockwise" if is_blockwise else "resident"

    @property
    def backend_name(self) -> str:
        """The backend that will run it."""
        return self._choice.backend.name

    @property
    def backend_reason(self) -> str:
        """Why this one."""
        return self._choice.reason

    @cached_property
    def n_ctx_train(self) -> int:
        """The context length of the model."""
        return self.file.metadata.integer(f"{self.architecture}.context_length")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer. Raises its errors when it cannot be built."""
        return load_tokenizer(self.file.metadata)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's chat template, or None when it has none."""
        from minfer.engine.chat import ChatTemplate

        return ChatTemplate.from_metadata(self.file.metadata, self.tokenizer)

    @cached_property
    def graph(self) -> Graph:
        """The network. Raises ModelFileError when tensors and metadata do not belong together."""
        build = BuildOptions(self.options.kv_type, self.options.rope_context)
        graph = self._family.graph(self.file.metadata, self.file, build)
        n_vocab = graph.nodes[graph.logits].features
        if self.tokenizer.n_vocab > n_vocab:
            raise VocabularyMismatchError(
                f"the tokenizer has {self.tokenizer.n_vocab} tokens and the network {n_vocab}",
                hint="the file was converted wrongly; look for another conversion of the model",
            )
        return graph

    def plan(self, n_ctx: int, n_sequences: int = 1, *, is_shared: bool = False) -> MemoryPlan:
        """The memory for n_sequences contexts of n_ctx each, or together (is_shared).

        With `auto` it settles how weights are kept.
        """
        available = available_memory()
        plan = self._planner(self._weights).plan(n_ctx, available, n_sequences, is_shared=is_shared)
        if not plan.fits and self.options.weights == "auto":
            smaller = self._planner("blockwise").plan(n_ctx, available, n_sequences, is_shared=is_shared)
            if smaller.total_bytes < plan.total_bytes:
                self._weights = "blockwise"
                return smaller
        return plan

    def dump_graph(self, path: str | PathLike[str]) -> None:
        """Write the graph as .dot or .json. Raises GraphFileError."""
        from minfer.engine.graph.export import write_graph

        write_graph(self.graph, Path(path))

    def load(self) -> Model:
        """Read the weights. The model outlives this object."""
        planner = self._planner(self._weights)
        program = self._choice.backend.compile(self.graph, self.file, planner.options)
        return Model(self, program, planner)

    def close(self) -> None:
        """Give the file back; what was loaded stays."""
        self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def notices(self) -> tuple[str, ...]:
        """What a user should know about how the model will run."""
        notes = [self._choice.notice] if self._choice.notice else []
        if self._weights == "blockwise" and self.options.weights == "auto" and not self._choice.is_blockwise:
            notes.append("memory is short: weights are decoded at each use, which is slow")
        return tuple(notes)

    def _planner(self, weights: Literal["resident", "blockwise"]) -> Planner:
        taps = self.options.taps + ((state_node(self.graph),) if self.options.has_states else ())
        compile_options = CompileOptions(
            self.options.max_tokens, self.options.max_logit_rows, self.n_threads, taps, weights
        )
        return Planner(self.graph, self._choice.backend, self.file, compile_options)


def state_node(graph: Graph) -> str:
    """The name of the node whose value the head reads: one state for each row that wants logits."""
    node = graph.nodes[graph.logits]
    while not isinstance(node.op, Head):
        node = graph.nodes[node.inputs[0]]
    return graph.nodes[node.inputs[0]].name


class Model:
    """A loaded model: what the generation loop needs."""

    causal = True

    def __init__(self, opened: OpenedModel, program: Program, planner: Planner) -> None:
        """Use OpenedModel.load."""
        self.file = opened.file
        self.graph = opened.graph
        self.tokenizer = opened.tokenizer
        self.program = program
        self.architecture = opened.architecture
        self.n_ctx_train = opened.n_ctx_train
        self.backend_name = opened.backend_name
        self.is_batch_invariant = planner.backend.is_batch_invariant
        self.n_threads = opened.n_threads
        self.threads_reason = opened.threads_reason
        self.notices = opened.notices + program.notices
        self.state_node = state_node(opened.graph)
        self.max_tokens = planner.options.max_tokens
        self.max_logit_rows = planner.options.max_logit_rows
        self._planner = replace(planner)

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The file's chat template, or None when it has none."""
        from minfer.engine.chat import ChatTemplate

        return ChatTemplate.from_metadata(self.file.metadata, self.tokenizer)

    def new_cache(self, n_ctx: int, n_sequences: int = 1, *, is_shared: bool = False) -> KVCache:
        """A KV cache for n_sequences contexts of n_ctx positions each, or together (is_shared).

        Long ones may use short ones' room.
        """
        n_blocks = self._planner.blocks(n_ctx, n_sequences, is_shared=is_shared)
        return KVCache(self.graph.cache_groups, n_blocks, self.program.new_cache(n_blocks))

    def close(self) -> None:
        """Give the memory back."""
        self.program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
