"""Fixtures for every test: a sandboxed environment."""

from __future__ import annotations

from pathlib import Path

import pytest

_LEAKS = (
    "MINFER_OFFLINE",
    "MINFER_KERNELS",
    "MINFER_STORE_SOCKET",
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_OFFLINE",
    "OLLAMA_MODELS",
)


@pytest.fixture(autouse=True)
def _sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees the developer's settings or writes into the developer's cache."""
    for name in _LEAKS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MINFER_MODEL_DIR", str(tmp_path / "models"))
