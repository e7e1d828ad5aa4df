"""Where tests find what is not part of the project, and the skips that say so when it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("MINFER_SHARED", ROOT.parent / "shared"))
# Read when the tests are collected: afterwards each test sees an empty folder in its place.
_MODEL_DIR = Path(os.environ.get("MINFER_MODEL_DIR", Path.home() / ".cache" / "minfer" / "models"))


def shared(relative: str) -> Path:
    """The path of a shared data file; skips the test when the folder is not beside the checkout."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"shared data is absent: {relative}")
    return path


def real_model(package: str) -> Path:
    """The .gguf that `pypi:package` left in the developer's cache; skips the test when it is not there."""
    found = sorted((_MODEL_DIR / "pypi" / package).glob("*.gguf"))
    if not found:
        pytest.skip(f"the model of pypi:{package} is not in {_MODEL_DIR}; make demo fetches it")
    return found[0]
