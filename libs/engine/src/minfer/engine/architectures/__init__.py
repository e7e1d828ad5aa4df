"""The model families minfer can build: one file each, one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from minfer.engine.architectures.errors import HyperparameterError, UnsupportedArchitectureError
from minfer.engine.architectures.family import Family
from minfer.engine.architectures.transformer import BuildOptions

if TYPE_CHECKING:
    from minfer.engine.graph.builder import TensorSource
    from minfer.engine.graph.ops import Graph
    from minfer.gguf import Metadata

ARCHITECTURES: Final = (
    Family("llama", ("llama",)),
    Family("qwen2", ("qwen2",)),
    Family("qwen3", ("qwen3", "qwen3moe")),
    Family("gemma3", ("gemma3",)),
)
_BY_NAME: Final[dict[str, Family]] = {name: family for family in ARCHITECTURES for name in family.names}

__all__ = [
    "ARCHITECTURES",
    "BuildOptions",
    "Family",
    "HyperparameterError",
    "UnsupportedArchitectureError",
    "build_graph",
    "find",
    "supported",
]


def supported() -> tuple[str, ...]:
    """The values of `general.architecture` that can be built, sorted."""
    return tuple(sorted(_BY_NAME))


def find(name: str) -> Family:
    """The family that a file names. Raises UnsupportedArchitectureError."""
    family = _BY_NAME.get(name)
    if family is None:
        raise UnsupportedArchitectureError(name, _BY_NAME)
    return family


def build_graph(metadata: Metadata, file: TensorSource, options: BuildOptions | None = None) -> Graph:
    """The graph of a model file, whatever its family. Raises ModelFileError."""
    return find(metadata.string("general.architecture")).graph(metadata, file, options or BuildOptions())
