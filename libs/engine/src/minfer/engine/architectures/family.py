"""What a row of the registry says: the file of a family, and the names that model files have for it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.engine.architectures.transformer import BuildOptions
    from minfer.engine.graph.builder import TensorSource
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture family. module: the file beside this one, imported when a model needs it; it has
    `Config.read(metadata)` and `build(config, file, options)`. names: the values of
    `general.architecture` that files use for it.
    """

    module: str
    names: tuple[str, ...]

    def graph(self, metadata: Metadata, file: TensorSource, options: BuildOptions) -> Graph:
        """The graph of a file of this family. Raises ModelFileError."""
        family = import_module(f"{__package__}.{self.module}")
        graph: Graph = family.build(family.Config.read(metadata), file, options)
        return graph
