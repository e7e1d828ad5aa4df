"""What one walk over the cache finds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer.core.errors import ModelNotFoundError
from minfer.core.reference import Reference, parse_reference
from minfer.store.catalog import Catalog, read_catalog
from minfer.store.client import resolve
from minfer.store.lookup import look_up
from minfer.store.resolution import Fetch, Local, decide
from minfer.store.settings import Settings


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
    assert paths(read_catalog(tmp_path)) == ["live.gguf"]


def test_a_link_to_another_directory_is_a_way_to_what_is_there(tmp_path: Path) -> None:
    touch(tmp_path / "cache", "hf/a/b/x.gguf")
    touch(tmp_path / "disk", "big/y.gguf")
    (tmp_path / "cache/disk").symlink_to(tmp_path / "disk")
    (tmp_path / "cache/hf/a/again").symlink_to("b")
    (tmp_path / "disk/big/up").symlink_to("..")
    (tmp_path / "cache/hf/top").symlink_to(tmp_path / "cache")
    found = paths(read_catalog(tmp_path / "cache"))
    assert found == ["disk/big/y.gguf", "hf/a/again/x.gguf", "hf/a/b/x.gguf"]


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


def test_a_reference_is_looked_for_in_its_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        touch(tmp_path, f"hf/org/repo{number}/m{number}-q4_0.gguf", f"pypi/p{number}/x.gguf")
    opened = []
    scandir = os.scandir

    def note(path: str) -> object:
        opened.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", note)
    settings = Settings(tmp_path, True, {})
    assert resolve("hf:org/repo7", settings=settings).path == tmp_path / "hf/org/repo7/m7-q4_0.gguf"
    assert resolve("pypi:p8", settings=settings).path == tmp_path / "pypi/p8/x.gguf"
    assert opened == [f"{tmp_path}/hf/org/repo7", f"{tmp_path}/pypi/p8"]


_NAMES = ("m", "M", "ma", "mA", "ma-q4_0", "mb-Q8_0.gguf", "s", "s-00002-of-00002", "x", "hf:o/r", "hf:O/r")
_REFERENCES = (
    "hf:o/r:q4_0",
    "hf:o/r:q8_0",
    "hf:o/r@v",
    "ollama:m",
    "ollama:m:t",
    "ollama:h.example/n/m:t",
    "pypi:p",
)
_PLACES = ("", "hf/o/r/", "hf/o/r/sub/", "hf/O/R/", "hf/o/r@v/", "ollama/m:t/", "ollama/m:latest/", "pypi/p/")
_FILES = ("ma-q4_0.gguf", "mb-Q8_0.gguf", "MA-q4_0.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf")


@given(st.lists(st.tuples(st.sampled_from(_PLACES), st.sampled_from(_FILES)), unique=True, max_size=7))
def test_a_part_of_the_catalog_means_what_the_whole_means(chosen: list[tuple[str, str]]) -> None:
    """Looking only where a word can lead finds, or fails with, the same as looking everywhere."""
    with TemporaryDirectory() as name:
        root = Path(name)
        touch(root, *(f"{place}{file}" for place, file in chosen))
        settings = Settings(root, False, {})
        for word in _NAMES + _REFERENCES:
            assert _outcome(look_up, word, settings) == _outcome(_look_everywhere, word, settings), word


def _look_everywhere(reference: Reference, settings: Settings) -> Local | Fetch:
    return decide(reference, None, read_catalog(settings.cache, with_sizes=False), offline=False)


def _outcome(
    look: Callable[[Reference, Settings], Local | Fetch], word: str, settings: Settings
) -> Path | Fetch | tuple[object, ...]:
    try:
        found = look(parse_reference(word), settings)
    except ModelNotFoundError as error:
        return error.code, error.fact, error.hint, error.candidates
    return found.path if isinstance(found, Local) else found
