"""Byte-level BPE on vocabularies small enough to check in the head."""

from __future__ import annotations

import itertools
import random

import pytest

from minfer.engine.tokenizer.byte_bpe import BYTE_ALPHABET, ByteLevelBPE, piece_of
from minfer.engine.tokenizer.pretokenizers import PreTokenizer
from minfer.engine.tokenizer.string_table import PlainStringTable, StringTable

_WHOLE = PreTokenizer((r"[\s\S]+",))


def _ranks(*merges: str) -> StringTable:
    return PlainStringTable([merge.encode() for merge in merges], keeps_first=True)


def _bpe(*merges: str, rule: PreTokenizer = _WHOLE, extra: tuple[str, ...] = ()) -> ByteLevelBPE:
    """Each byte is the token of its own number, then one id for each merge, then the extra spellings."""
    spellings = [*BYTE_ALPHABET, *(merge.replace(" ", "") for merge in merges), *extra]
    return ByteLevelBPE({text: i for i, text in enumerate(spellings)}, _ranks(*merges), rule)


def test_the_lowest_rank_goes_first_even_to_the_right() -> None:
    assert _bpe("b c", "a b").encode("abc") == [ord("a"), 256]  # a + bc, not ab + c


def test_of_equal_ranks_the_leftmost_goes_first() -> None:
    assert _bpe("a a").encode("aaa") == [256, ord("a")]


def test_merges_build_on_merges() -> None:
    assert _bpe("a b", "ab c", "abc abc").encode("abcabc") == [258]


def test_a_pair_listed_twice_has_its_first_rank() -> None:
    bpe = ByteLevelBPE({"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}, _ranks("a b", "b c", "a b"), _WHOLE)
    assert bpe.encode("abc") == [3, 2]


def test_a_merge_without_a_token_falls_back_to_bytes() -> None:
    assert ByteLevelBPE({"a": 0, "b": 1}, _ranks("a b"), _WHOLE).encode("ab") == [0, 1]


def test_a_space_is_written_as_a_g_with_a_dot() -> None:
    assert BYTE_ALPHABET[0x20] == "Ġ"
    assert BYTE_ALPHABET[0x0A] == "Ċ"
    assert piece_of("Ġhé") == b" h\xe9"
    assert piece_of("Ġ日") == "Ġ日".encode()


def test_ignoring_merges_takes_a_word_that_is_a_token() -> None:
    """Llama 3's "Việt" is a token that its merges do not reach (llama.cpp PR 7193)."""
    keeps = PreTokenizer((r"[\s\S]+",), ignore_merges=True)
    assert _bpe("a b", rule=keeps, extra=("abc",)).encode("abc") == [257]
    assert _bpe("a b", extra=("abc",)).encode("abc") == [256, ord("c")]


def _id_of(symbol: str, merges: list[str]) -> int:
    merged = [merge.replace(" ", "") for merge in merges]
    return 256 + merged.index(symbol) if symbol in merged else ord(symbol)


@pytest.mark.parametrize("length", [63, 64, 65, 500])
def test_long_words_merge_as_short_ones_do(length: int) -> None:
    """The heap against the definition: rescan the whole list for the lowest rank, leftmost."""
    merges = ["a b", "b a", "ab ab", "a a", "aa ab", "b b", "ba ba"]
    ranks = {tuple(merge.split()): rank for rank, merge in enumerate(merges)}
    text = "".join(random.Random(length).choices("ab", k=length))
    symbols = list(text)
    while True:
        pairs = [(ranks[p], i) for i, p in enumerate(itertools.pairwise(symbols)) if p in ranks]
        if not pairs:
            break
        i = min(pairs)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    assert _bpe(*merges).encode(text) == [_id_of(symbol, merges) for symbol in symbols]


def test_a_megabyte_in_one_word_takes_seconds_at_most() -> None:
    ids = _bpe("a a", "aa aa", "aaaa aaaa").encode("a" * 200_000)
    assert ids == [258] * 25_000
