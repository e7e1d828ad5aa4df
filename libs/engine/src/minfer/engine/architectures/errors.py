"""What can be wrong with a model whose file is sound: refinements of ModelFileError."""

from __future__ import annotations

from collections.abc import Iterable

from minfer.core.errors import ModelFileError


class UnsupportedArchitectureError(ModelFileError):
    """The file's `general.architecture` is not one that can be built."""

    code = "unsupported-architecture"

    def __init__(self, name: str, supported: Iterable[str]) -> None:
        """`supported`: the names that the registry has."""
        super().__init__(
            f"architecture {name!r} is not supported",
            hint=f"choose a model of one of these architectures: {', '.join(sorted(supported))}",
        )
        self.architecture = name


class HyperparameterError(ModelFileError):
    """A number in the metadata cannot describe a network."""

    code = "impossible-hyperparameter"

    def __init__(self, key: str, value: object, needed: str) -> None:
        """`needed` completes "must be …"."""
        super().__init__(
            f"metadata key {key!r} is {value}; it must be {needed}",
            hint="the file was converted wrongly; look for another conversion of the model",
        )
        self.key = key
