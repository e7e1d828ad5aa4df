"""What a row of the registry says: the names of a family, how to read its config, how to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from minfer.engine.architectures.transformer import BuildOptions
    from minfer.engine.graph.builder import TensorSource
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata

_C = TypeVar("_C")


@dataclass(frozen=True, slots=True)
class Family(Generic[_C]):
    """One architecture family. names: the values of `general.architecture` that files use for it."""

    names: tuple[str, ...]
    read: Callable[[Metadata], _C]
    build: Callable[[_C, TensorSource, BuildOptions], Graph]

    def graph(self, metadata: Metadata, file: TensorSource, options: BuildOptions) -> Graph:
        """The graph of a file of this family. Raises ModelFileError."""
        return self.build(self.read(metadata), file, options)
