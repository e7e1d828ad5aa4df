"""The compiled table of strings against the one of Python objects."""

from __future__ import annotations

import random
import struct

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from minfer.engine.tokenizer import load_tokenizer, string_table
from minfer.engine.tokenizer.string_table import PlainStringTable, StringTable, compiled, read_string_table
from minfer.gguf import Metadata, open_bytes


def _span(strings: list[bytes]) -> bytes:
    return b"".join(struct.pack("<Q", len(string)) + string for string in strings)


def _compiled(strings: list[bytes], *, keeps_first: bool = False, seed: int = 7) -> StringTable:
    if compiled is None:
        pytest.skip("the extension is not built here")
    return compiled(_span(strings), len(strings), keeps_first, seed)


@pytest.fixture(params=["compiled", "plain"])
def words(request: pytest.FixtureRequest) -> StringTable:
    strings = [b"ab", b"", b"\xff", b"ab", "▁é".encode(), b"a\0b"]
    return _compiled(strings) if request.param == "compiled" else PlainStringTable(strings)


def test_strings_by_number(words: StringTable) -> None:
    assert [words[i] for i in range(len(words))] == [b"ab", b"", b"\xff", b"ab", "▁é".encode(), b"a\0b"]
    for outside in (-1, 6):
        with pytest.raises(IndexError):
            words[outside]


def test_numbers_by_text(words: StringTable) -> None:
    assert [words.get(text) for text in ("ab", "▁é", "a\0b", "a", "", "\ufffd", "\ud800")] == [
        *(3, 4, 5),
        *[None] * 4,
    ]


def test_what_holds_a_mark(words: StringTable) -> None:
    assert words.containing(b"b", 0) == [0, 3, 5]
    assert words.containing(b"b", 2) == [5]
    assert words.containing("▁".encode(), 0) == [4]
    assert words.containing("▁".encode(), 1) == []


@pytest.mark.parametrize("keeps_first", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_compiled_and_plain_agree(seed: int, keeps_first: bool) -> None:
    chance = random.Random(seed)
    strings = ["".join(chance.choices("abé▁", k=chance.randint(0, 40) % 13)).encode() for _ in range(3000)]
    fast = _compiled(strings, keeps_first=keeps_first, seed=chance.getrandbits(64))
    plain = PlainStringTable(strings, keeps_first=keeps_first)
    for string in [*strings, b"absent", b"a" * 50]:
        assert fast.get(string.decode()) == plain.get(string.decode())
    for mark, start in ((b"a", 0), (b"ab", 3), ("é▁".encode(), 1), (b"a" * 20, 0)):
        assert fast.containing(mark, start) == plain.containing(mark, start)


def test_lengths_that_lie_are_refused() -> None:
    if compiled is None:
        pytest.skip("the extension is not built here")
    whole = _span([b"abc", b"d"])
    for span, n in ((whole[:-1], 2), (whole, 3), (struct.pack("<Q", 1 << 63) + b"abc", 1), (b"", 1)):
        with pytest.raises(ValueError, match="string"):
            compiled(span, n, False, 0)


def test_an_array_of_a_file() -> None:
    table = read_string_table(Metadata.of({"words": ["a", "b", "a"]}), "words")
    assert (len(table), table.get("a"), table[1]) == (3, 2, b"b")


def test_without_the_extension_ids_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = open_bytes(tiny_model(TinyModel("llama"))).metadata
    text = "<|im_start|>user\nA long word, é and 日本<|im_end|>"
    expected = load_tokenizer(metadata).encode(text, add_special=True, parse_special=True)
    monkeypatch.setattr(string_table, "compiled", None)
    plain = load_tokenizer(metadata)
    assert plain.encode(text, add_special=True, parse_special=True) == expected
    assert plain.decode(expected, special=True).endswith(text)
