"""Which file of a repository is meant."""

from __future__ import annotations

import pytest

from minfer.store.file_sets import FileSet, ListedFile, group
from minfer.store.quant_choice import (
    AmbiguousQuantError,
    IncompleteSetError,
    NoSuchQuantError,
    choices,
    choose,
    label,
    selector,
)

LABELS = [
    ("qwen2.5-0.5b-instruct-q4_0.gguf", "q4_0"),
    ("SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
    ("tiny-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
    ("tiny.i1-IQ2_XXS.gguf", "i1-IQ2_XXS"),
    ("tiny-Q4_K_M-00001-of-00002.gguf", "Q4_K_M"),
    ("tiny-bf16.gguf", "bf16"),
    ("tiny-F16-Q8_0.gguf", "Q8_0"),
    ("tiny-Q4_0_4_4.gguf", "Q4_0_4_4"),
    ("tiny-TQ1_0.gguf", "TQ1_0"),
    ("tiny-MXFP4_MOE.gguf", "MXFP4_MOE"),
    ("tiny-Q4_K_M-imat.gguf", "Q4_K_M"),
    ("tiny.gguf", None),
    ("quiet-Q.gguf", None),
    ("Q6_K/tiny-00001-of-00003.gguf", "Q6_K"),
    ("UD-Q6_K/tiny.gguf", "UD-Q6_K"),
]


def _files(*paths: str, n_bytes: int = 1 << 20) -> list[ListedFile]:
    return [ListedFile(path, n_bytes) for path in paths]


@pytest.mark.parametrize(("path", "expected"), LABELS)
def test_label(path: str, expected: str | None) -> None:
    (found,) = group(_files(path))
    assert label(found) == expected


def test_grouping_orders_the_parts_and_leaves_other_files_out() -> None:
    names = ["README.md", "x-00002-of-00002.gguf", "x-00001-of-00002.gguf", "y.gguf", "x.gguf.part1of2"]
    split, single = group(_files(*names))
    assert [file.path for file in split.files] == ["x-00001-of-00002.gguf", "x-00002-of-00002.gguf"]
    assert (split.n_parts, split.n_bytes, split.missing) == (2, 2 << 20, ())
    assert (single.base, single.n_parts) == ("y", 1)


def test_a_repository_s_only_model_needs_no_request() -> None:
    assert choose(_files("x-q4_0.gguf", "mmproj-x-f16.gguf"), None, "hf:a/b").first.path == "x-q4_0.gguf"


MANY = _files(
    "tiny-Q8_0.gguf",
    "tiny-Q4_K_M.gguf",
    "tiny-Q4_K_XL.gguf",
    "tiny-UD-Q4_K_XL.gguf",
    "big/tiny-BF16-00001-of-00002.gguf",
    "big/tiny-BF16-00002-of-00002.gguf",
    "mmproj-F16.gguf",
    "tiny-imatrix.gguf",
    "lora-x-F16.gguf",
    "draft-tiny-Q4_0.gguf",
)

REQUESTS = [
    ("q8_0", "tiny-Q8_0.gguf"),
    ("Q4_K_M", "tiny-Q4_K_M.gguf"),
    ("Q4_K_XL", "tiny-Q4_K_XL.gguf"),
    ("ud-q4_k_xl", "tiny-UD-Q4_K_XL.gguf"),
    ("tiny-Q4_K_M", "tiny-Q4_K_M.gguf"),
    ("TINY-q4_k_m.GGUF", "tiny-Q4_K_M.gguf"),
    ("bf16", "big/tiny-BF16-00001-of-00002.gguf"),
    ("tiny-BF16", "big/tiny-BF16-00001-of-00002.gguf"),
    ("tiny-BF16-00002-of-00002.gguf", "big/tiny-BF16-00001-of-00002.gguf"),
    ("big/tiny-BF16-00002-of-00002.gguf", "big/tiny-BF16-00001-of-00002.gguf"),
    ("big", "big/tiny-BF16-00001-of-00002.gguf"),
    ("lora-x-F16.gguf", "lora-x-F16.gguf"),
]


@pytest.mark.parametrize(("request_", "path"), REQUESTS)
def test_request(request_: str, path: str) -> None:
    assert choose(MANY, request_, "hf:a/b").first.path == path


def test_side_files_are_never_the_model() -> None:
    assert {found.base for found in choices(MANY)} == {
        "tiny-Q8_0",
        "tiny-Q4_K_M",
        "tiny-Q4_K_XL",
        "tiny-UD-Q4_K_XL",
        "tiny-BF16",
    }
    for request in ("F16", "mmproj-F16.gguf", "tiny-imatrix.gguf"):
        with pytest.raises(NoSuchQuantError):
            choose(MANY, request, "hf:a/b")


def test_a_repository_of_drafts_is_a_repository_of_models() -> None:
    assert choose(_files("x-draft-Q4_0.gguf"), None, "hf:a/b").base == "x-draft-Q4_0"


def test_no_model_is_called_a_side_file_for_a_word_in_its_middle() -> None:
    assert (
        choose(_files("alpaca-lora-7b.Q4_0.gguf", "alpaca-lora-7b.Q8_0.gguf"), "q8_0", "hf:a/b").n_parts == 1
    )


def test_without_a_request_the_choices_are_listed_sensible_one_first() -> None:
    with pytest.raises(AmbiguousQuantError) as caught:
        choose(MANY, None, "hf:a/b")
    assert caught.value.render() == (
        "Error: hf:a/b has 5 models; say which one\n"
        "  hf:a/b:Q4_K_M      1.0 MiB\n"
        "  hf:a/b:Q8_0        1.0 MiB\n"
        "  hf:a/b:Q4_K_XL     1.0 MiB\n"
        "  hf:a/b:UD-Q4_K_XL  1.0 MiB\n"
        "  hf:a/b:BF16        2.0 MiB\n"
        "Hint: minfer-fetch pull hf:a/b:Q4_K_M"
    )


def test_an_unknown_request_lists_the_choices() -> None:
    with pytest.raises(NoSuchQuantError) as caught:
        choose(MANY, "Q2_K", "hf:a/b")
    assert caught.value.exit_status == 3
    assert caught.value.candidates[0] == "hf:a/b:Q4_K_M"
    assert len(caught.value.candidates) == 5


def test_one_label_of_two_models_is_ambiguous_and_each_has_a_way_out() -> None:
    files = _files("x-1b-q4_0.gguf", "x-2b-q4_0.gguf")
    with pytest.raises(AmbiguousQuantError) as caught:
        choose(files, "q4_0", "hf:a/b")
    assert caught.value.candidates == ("hf:a/b:x-1b-q4_0", "hf:a/b:x-2b-q4_0")


def test_missing_parts_are_named() -> None:
    with pytest.raises(IncompleteSetError) as caught:
        choose(_files("x-00001-of-00003.gguf", "x-00003-of-00003.gguf"), None, "hf:a/b")
    assert "x-00002-of-00003.gguf" in caught.value.fact


def test_an_empty_repository_is_told() -> None:
    with pytest.raises(NoSuchQuantError, match="holds no"):
        choose([ListedFile("model.safetensors", 5)], "q4_0", "hf:a/b")


def test_every_selector_means_its_own_set() -> None:
    sets: tuple[FileSet, ...] = choices([*MANY, *_files("other/tiny-Q8_0.gguf", "x/m.gguf", "y/m.gguf")])
    for found in sets:
        assert (
            choose([file for each in sets for file in each.files], selector(found, sets), "hf:a/b") == found
        )
