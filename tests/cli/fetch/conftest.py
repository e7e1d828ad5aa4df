"""A minfer-fetch to run, with a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fetch_tool import Fetch


@pytest.fixture
def fetch(tmp_path: Path) -> Fetch:
    (tmp_path / "here").mkdir()
    return Fetch(tmp_path / "models", tmp_path / "here")
