"""The catalog in memory: the disk is read when something may have changed, and not for every answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minfer.fetch.daemon import live_catalog
from minfer.fetch.daemon.live_catalog import LiveCatalog
from minfer.store.catalog import Catalog, read_catalog


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The caches that were read, in order."""
    seen: list[Path] = []

    def read(directory: Path) -> Catalog:
        seen.append(directory)
        return read_catalog(directory)

    monkeypatch.setattr(live_catalog, "read_catalog", read)
    return seen


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LiveCatalog]:
    live = LiveCatalog(tmp_path)
    live.watch()
    yield live
    live.stop()


def test_answers_come_from_memory_until_something_happens(catalog: LiveCatalog, reads: list[Path]) -> None:
    if not catalog.is_watching:
        pytest.skip("this system announces no changes")
    catalog.current()
    began = time.monotonic()
    n_first = len(reads)
    for _ in range(1000):
        assert catalog.current().models == ()
        catalog.listed()
    assert len(reads) <= n_first + 1 + (time.monotonic() - began) // 5  # the sweep
    before = len(reads)
    (catalog.cache / "new.gguf").write_bytes(b"GGUF")
    deadline = time.monotonic() + 10
    while not catalog.current().models:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(reads) <= before + 3


def test_without_announcements_it_looks_by_itself(tmp_path: Path) -> None:
    blind = LiveCatalog(tmp_path)
    assert not blind.current().models
    (tmp_path / "new.gguf").write_bytes(b"GGUF")
    deadline = time.monotonic() + 10
    while not blind.current().models:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_another_directory_of_the_same_name_is_watched_anew(catalog: LiveCatalog, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("aside"))
    catalog.watch()
    assert not catalog.fresh().exists
    tmp_path.mkdir()
    catalog.watch()
    assert catalog.fresh().exists
