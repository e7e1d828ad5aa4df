"""What finding out about a model must not import: starting fast depends on it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["minfer.engine", "minfer.engine.model", "minfer.gguf"])
def test_heavy_modules_are_absent(module: str) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert {"numpy", "jinja2", "threadpoolctl", "requests", "asyncio"}.isdisjoint(loaded.split())
