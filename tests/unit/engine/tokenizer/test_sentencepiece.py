"""SentencePiece merging by score, on vocabularies small enough to check in the head."""

from __future__ import annotations

import random

import pytest

from minfer.engine.tokenizer.sentencepiece import SentencePiece, word_pattern
from minfer.engine.tokenizer.vocabulary import Spellings


def _spm(scores: dict[str, float], unknown: int | None = None) -> SentencePiece:
    """Ids in the order of the dictionary."""
    spellings = Spellings.of(list(scores))
    return SentencePiece(spellings, list(scores.values()), adds_space_prefix=False, unknown=unknown)


def test_the_best_score_goes_first_even_to_the_right() -> None:
    spm = _spm({"a": 0.0, "b": 0.0, "c": 0.0, "ab": -2.0, "bc": -1.0})
    assert spm.encode("abc") == [0, 4]


def test_of_equal_scores_the_leftmost_goes_first() -> None:
    assert _spm({"a": 0.0, "aa": -1.0}).encode("aaa") == [1, 0]


def test_spaces_are_escaped() -> None:
    spm = _spm({"▁": 0.0, "a": 0.0, "▁a": -1.0, "▁▁": -2.0})
    assert spm.encode(" a  a") == [2, 0, 2]
    assert spm.piece("▁▁a") == b"  a"


def test_characters_without_a_token_become_bytes_else_the_unknown_token() -> None:
    spm = _spm({"a": 0.0, "<0xC3>": 0.0, "<unk>": 0.0}, unknown=2)
    assert spm.encode("aé") == [0, 1, 2]
    assert _spm({"a": 0.0}).encode("aé") == [0]


@pytest.mark.parametrize(
    ("spellings", "text", "words"),
    [
        (["▁a", "▁▁"], "a▁▁b▁c", ["a", "▁▁b", "▁c"]),
        (["\n\n"], "a\n\n▁b\n", ["a", "\n\n", "▁b", "\n"]),
        (["a\n"], "a\n▁b\n", ["a\n", "▁b\n"]),
        ([">▁<"], "a▁>▁▁<b>▁▁▁", ["a", "▁>▁▁<b>▁▁▁"]),
        ([], "▁▁\n▁", ["▁▁", "\n", "▁"]),
    ],
)
def test_words_end_where_no_token_reaches_across(spellings: list[str], text: str, words: list[str]) -> None:
    assert word_pattern(Spellings.of(spellings)).findall(text) == words


@pytest.mark.parametrize("seed", range(20))
def test_word_by_word_equals_the_whole_text(seed: int) -> None:
    """Against the definition, run over the uncut text: rescan for the best score, leftmost."""
    chance = random.Random(seed)
    spellings = {"".join(chance.choices("a▁>\n", k=chance.randint(1, 4))) for _ in range(14)}
    scores = {text: float(chance.randint(-5, 0)) for text in sorted(spellings | {"a", "▁", ">", "\n"})}
    names = list(scores)
    for _ in range(20):
        text = "".join(chance.choices("a >\n", k=30))
        symbols = list(text.replace(" ", "▁"))
        while True:
            pairs = [
                (-scores[pair], i)
                for i in range(len(symbols) - 1)
                if (pair := symbols[i] + symbols[i + 1]) in scores
            ]
            if not pairs:
                break
            i = min(pairs)[1]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        assert _spm(scores).encode(text) == [names.index(symbol) for symbol in symbols]


def test_a_long_text_without_spaces_is_not_quadratic() -> None:
    assert _spm({"a": 0.0, "aa": -1.0}).encode("a" * 200_000) == [1] * 100_000
