"""What one walk over the cache finds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from minfer.store.catalog import Catalog, read_catalog


def touch(root: Path, *paths: str, data: bytes = b"1234") -> None:
    for path in paths:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def paths(catalog: Catalog) -> list[str]:
    return [model.path for model in catalog.models]


def test_models_are_found_and_everything_else_is_passed_over(tmp_path: Path) -> None:
    touch(
        tmp_path,
        "hf/a/b/x.gguf",
        "hf/a/b/README.md",
        "hf/a/b/y.gguf.partial",
        "hf/a/b/y.gguf.part",
        ".minfer/partial/z.gguf",
        ".hidden/z.gguf",
        "hf/a/b/UPPER.GGUF",
    )
    (tmp_path / "directory.gguf").mkdir()
    assert paths(read_catalog(tmp_path)) == ["hf/a/b/UPPER.GGUF", "hf/a/b/x.gguf"]


def test_split_sets_are_one_model_and_missing_parts_are_known(tmp_path: Path) -> None:
    touch(tmp_path, "x-00001-of-00003.gguf", "x-00003-of-00003.gguf")
    (model,) = read_catalog(tmp_path).models
    assert model.files.missing == ("x-00002-of-00003.gguf",)
    assert not model.is_complete
    assert model.files.n_bytes == 8


@pytest.mark.parametrize(
    ("path", "source", "reference"),
    [
        ("hf/a/b/x.gguf", "hf", "hf:a/b"),
        ("hf/a/b/sub/x.gguf", "hf", "hf:a/b"),
        ("hf/a/b@refs%2Fpr%2F1/x.gguf", "hf", "hf:a/b@refs/pr/1"),
        ("hf/a/x.gguf", "local", "None"),
        ("ollama/m:t/model.gguf", "ollama", "ollama:m:t"),
        ("ollama/h.example/n/m:t/model.gguf", "ollama", "ollama:h.example/n/m:t"),
        ("ollama/m/model.gguf", "local", "None"),
        ("pypi/p/x.gguf", "pypi", "pypi:p"),
        ("pypi/P_p/x.gguf", "local", "None"),
        ("pypi/p==1/x.gguf", "pypi", "pypi:p==1"),
        ("x.gguf", "local", "None"),
        ("any/x.gguf", "local", "None"),
    ],
)
def test_the_place_tells_the_source(tmp_path: Path, path: str, source: str, reference: str) -> None:
    touch(tmp_path, path)
    (model,) = read_catalog(tmp_path).models
    assert (model.source, str(model.reference)) == (source, reference)


def test_links_are_followed_and_dead_or_circular_ones_are_harmless(tmp_path: Path) -> None:
    touch(tmp_path, "real.bin")
    for name, target in (("live.gguf", "real.bin"), ("dead.gguf", "nowhere"), ("loop", ".")):
        (tmp_path / name).symlink_to(target)
    assert "live.gguf" in paths(read_catalog(tmp_path))
    assert "dead.gguf" not in paths(read_catalog(tmp_path))


def test_links_to_themselves_are_passed_over(tmp_path: Path) -> None:
    touch(tmp_path, "whole.gguf")
    for name in ("itself", "itself.gguf"):
        (tmp_path / name).symlink_to(name)
    assert paths(read_catalog(tmp_path)) == ["whole.gguf"]


def test_a_missing_cache_is_a_state(tmp_path: Path) -> None:
    catalog = read_catalog(tmp_path / "absent")
    assert not catalog.exists
    assert catalog.models == ()
    assert read_catalog(tmp_path).exists


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_unreadable_directories_are_named(tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir(mode=0)
    assert read_catalog(tmp_path).unreadable == ("hf",)


def test_names_that_are_not_text_do_no_harm(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.gguf")).write_bytes(b"x")
    assert paths(read_catalog(tmp_path)) == ["\udcff.gguf"]


def _seconds_to_walk(root: Path) -> float:
    start = time.perf_counter()
    for _ in os.walk(root):
        pass
    return time.perf_counter() - start


def test_a_thousand_models_are_read_in_about_the_time_of_a_bare_walk(tmp_path: Path) -> None:
    """30 ms on a quiet machine; here relative to `os.walk`, so that a busy one does not fail it."""
    for number in range(1000):
        touch(tmp_path, f"hf/org{number % 40}/repo{number}/m{number}-q4_0.gguf", data=b"")
    ratios = []
    for _ in range(7):
        floor = _seconds_to_walk(tmp_path)
        start = time.perf_counter()
        catalog = read_catalog(tmp_path, with_sizes=False)
        assert catalog.names.find("m500")[0].path.endswith("m500-q4_0.gguf")
        ratios.append((time.perf_counter() - start) / floor)
    assert len(catalog.models) == 1000
    assert min(ratios) < 2.5
