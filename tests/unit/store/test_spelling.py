"""The shortest word for each model means that model alone."""

from __future__ import annotations

import shlex
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.core.reference import PathReference, parse_reference
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.file_sets import ListedFile, group
from minfer.store.resolution import Local, decide
from minfer.store.spelling import pasteable, spelling

CACHE = Path("/cache")


def catalog(*paths: str) -> Catalog:
    return Catalog(CACHE, tuple(map(CachedModel, group(ListedFile(path, 1) for path in paths))))


def spelled(*paths: str) -> list[str]:
    cache = catalog(*paths)
    return [spelling(model, cache) for model in cache.models]


def test_a_unique_file_name_is_enough() -> None:
    assert spelled("hf/a/b/x-q4_0.gguf", "y.gguf") == ["y", "x-q4_0"]


def test_a_split_set_is_called_by_its_base_name() -> None:
    assert spelled("hf/a/b/x-00001-of-00002.gguf", "hf/a/b/x-00002-of-00002.gguf") == ["x"]


def test_ollama_s_models_keep_their_reference() -> None:
    assert spelled("ollama/qwen2.5:0.5b/model.gguf", "ollama/h.example/n/m:t/model.gguf") == [
        "ollama:h.example/n/m:t",
        "ollama:qwen2.5:0.5b",
    ]


def test_a_name_that_several_models_have_gives_way_to_the_reference() -> None:
    assert spelled("hf/a/b/x-q4_0.gguf", "hf/a/c/x-q4_0.gguf", "pypi/p/x-q4_0.gguf", "x-q4_0.gguf") == [
        "/cache/x-q4_0.gguf",
        "hf:a/b:q4_0",
        "hf:a/c:q4_0",
        "pypi:p",
    ]


def test_a_name_that_would_be_read_as_something_else_is_not_used() -> None:
    assert spelled("hf/a/b/-q.gguf", "pypi:x.gguf") == ["/cache/pypi:x.gguf", "hf:a/b:-q"]


_FOLDERS = (
    "",
    "hf/a/b/",
    "hf/a/b/sub/",
    "hf/a/b@v1/",
    "hf/a/B/",
    "pypi/p/",
    "ollama/m:t/",
    "ollama/h/n/m:t/",
    "x/",
)
_NAMES = (
    "m",
    "M",
    "m-q4_0",
    "m-q8_0",
    "m-UD-q4_0",
    "m.gguf",
    "n",
    "m-00001-of-00002",
    "m-00002-of-00002",
    "a b",
    "-m",
)


@given(st.lists(st.tuples(st.sampled_from(_FOLDERS), st.sampled_from(_NAMES)), unique=True, max_size=12))
@settings(max_examples=150, deadline=None)
def test_every_spelling_leads_back(files: list[tuple[str, str]]) -> None:
    cache = catalog(*(f"{folder}{name}.gguf" for folder, name in files))
    for model in cache.models:
        word = spelling(model, cache)
        assert shlex.split(pasteable(word)) == [word]
        reference = parse_reference(word)
        if isinstance(reference, PathReference):
            assert word == str(CACHE / model.path)
        elif model.is_complete:
            assert decide(reference, None, cache, offline=True) == Local(CACHE / model.path, model)


def test_control_characters_never_reach_the_terminal() -> None:
    assert pasteable("a\x1b[31m'b") == "$'a\\x1b[31m\\'b'"
