"""The table of pre-tokenizers: what each rule makes of a line of text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.tokenizer.errors import UnknownPreTokenizerError
from minfer.engine.tokenizer.pretokenizers import (
    PRE_TOKENIZERS,
    PreTokenizer,
    compile_splitter,
    pre_tokenizer,
)

_CASES = [
    ("gpt-2", "I've 1234  cats!\n\n ok", ["I", "'ve", " 1234", " ", " cats", "!", "\n\n", " ok"]),
    ("smollm", "a 12  b", ["a", " ", "1", "2", " ", " b"]),
    ("llama-bpe", "I'VE 12345\n\n x", ["I", "'VE", " ", "123", "45", "\n\n", " x"]),
    ("qwen2", "x=12,\n\ny", ["x", "=", "1", "2", ",\n\n", "y"]),
    ("deepseek-v3", "漢字kana かな 1234", ["漢字", "kana", " ", "かな", " ", "123", "4"]),
    ("deepseek-coder", "if x1:\n  y", ["if", " x", "1", ":", "\n", " ", " y"]),
    ("deepseek-llm", "Grüße, 123 漢字", ["Gr", "üß", "e", ",", " ", "123", " ", "漢字"]),
    ("tekken", "HelloWorld a/b\n/c 12", ["Hello", "World", " a", "/b", "\n", "/c", " ", "1", "2"]),
    ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", " ", "123", "4"]),
    ("falcon", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
    ("default", "a+b 12345", ["a", "+", "b", " ", "123", "45"]),
    ("bailingmoe", "a\n\nb", ["a", "\n\n", "b"]),
    ("viking", "ab, c1", ["ab", ",", " c", "1"]),
]


@pytest.mark.parametrize(("name", "text", "words"), _CASES, ids=[case[0] for case in _CASES])
def test_words(name: str, text: str, words: list[str]) -> None:
    assert compile_splitter(pre_tokenizer(name))(text) == words


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
@settings(max_examples=20)
@given(text=st.text(max_size=40))
def test_words_joined_are_the_text(name: str, text: str) -> None:
    words = compile_splitter(pre_tokenizer(name))(text)
    assert "".join(words) == text
    assert "" not in words


@pytest.mark.parametrize("rule", sorted(set(PRE_TOKENIZERS.values()), key=str))
@pytest.mark.parametrize("unit", [" ", "\n", "a", "aB", "1", "!", " \n", "漢", "'", "\u0301"])
def test_no_rule_takes_the_square_of_a_run(rule: PreTokenizer, unit: str) -> None:
    """A square of 60,000 is minutes; what is measured is this process's own time, in seconds."""
    split = compile_splitter(rule)
    begin = time.process_time()
    split(unit * (60_000 // len(unit)) + "x")
    assert time.process_time() - begin < 5


def test_an_unknown_name_is_refused_with_the_way_out() -> None:
    with pytest.raises(UnknownPreTokenizerError) as caught:
        pre_tokenizer("klingon")
    assert "'klingon'" in caught.value.fact
    assert "gguf-new-metadata --pre-tokenizer NAME IN.gguf OUT.gguf" in caught.value.hint
    assert "llama-bpe" in caught.value.hint
    assert caught.value.exit_status == 5
