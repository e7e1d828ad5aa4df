"""What can be wrong between a file's tensors and the graph that wants them."""

from __future__ import annotations

from collections.abc import Sequence

from minfer.core.errors import ModelFileError


class TensorShapeError(ModelFileError):
    """A tensor's shape is not the one that the metadata ask for (slowest dimension first)."""

    code = "tensor-shape"

    def __init__(self, name: str, expected: Sequence[int], found: Sequence[int]) -> None:
        super().__init__(
            f"tensor {name!r} has shape {list(found)}; the metadata ask for {list(expected)}",
            hint="the file was converted wrongly; look for another conversion of the model",
        )
        self.tensor, self.expected, self.found = name, tuple(expected), tuple(found)


class ConstantTensorError(ModelFileError):
    """A tensor that holds constants of the graph is stored in a type that is not F32 or F16."""

    code = "constant-tensor-type"

    def __init__(self, name: str, quant: str) -> None:
        super().__init__(
            f"tensor {name!r} holds constants and is stored as {quant}; F32 or F16 is needed",
            hint="the file was converted wrongly; look for another conversion of the model",
        )
