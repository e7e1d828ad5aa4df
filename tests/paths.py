"""Where tests find what is not part of the project, and the skips that say so when it is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("MINFER_SHARED", ROOT.parent / "shared"))


def shared(relative: str) -> Path:
    """The path of a shared data file; skips the test when the folder is not beside the checkout."""
    path = SHARED / relative
    if not path.exists():
        pytest.skip(f"shared data is absent: {relative}")
    return path
