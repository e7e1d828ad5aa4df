"""What the native backend refuses."""

from __future__ import annotations

from minfer.core.errors import MinferError, ModelFileError, NotEnoughMemoryError


class UnsupportedGraphError(ModelFileError):
    """The network has something that only the numpy backend runs."""

    code = "unsupported-graph"

    def __init__(self, node: str, what: str) -> None:
        """`node`: where; `what`: the part that has no native form."""
        super().__init__(
            f"the native backend does not run {what} (node {node!r})",
            hint="set MINFER_KERNELS=numpy to run the model with the reference backend",
        )


class ProgramMemoryError(NotEnoughMemoryError):
    """The system gave no memory for weights, buffers or the cache."""

    code = "program-memory"


class StepRefusedError(MinferError):
    """A step that contradicts its cache or the limits the program was compiled for."""

    code = "step-refused"
