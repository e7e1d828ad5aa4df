"""From the bytes of a GGUF model to text.

The public API is `load` (minfer.engine.api); tools use `open_model` and the loop. Names are imported on
first use: reading a file's facts shall not load what generates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer.engine.api import LanguageModel, load
    from minfer.engine.model import LoadOptions, Model, open_model
    from minfer.engine.params import GenerationParams

_HOMES = {
    "GenerationParams": "minfer.engine.params",
    "LanguageModel": "minfer.engine.api",
    "LoadOptions": "minfer.engine.model",
    "Model": "minfer.engine.model",
    "load": "minfer.engine.api",
    "open_model": "minfer.engine.model",
}

__all__ = ["GenerationParams", "LanguageModel", "LoadOptions", "Model", "load", "open_model"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names above
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
