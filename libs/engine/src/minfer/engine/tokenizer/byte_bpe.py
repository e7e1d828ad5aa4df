"""Byte-level byte-pair encoding, as GPT-2 introduced it.

A text is cut into words (pretokenizers.py), each byte of a word is written as one printable character,
and the adjacent pair of the lowest rank is merged until no pair has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Final

from minfer.engine.tokenizer.merging import Numbers, merge
from minfer.engine.tokenizer.pretokenizers import PreTokenizer, compile_splitter

_CACHED_WORDS: Final = 1 << 16
_CACHED_LENGTH: Final = 64


def _byte_alphabet() -> str:
    """The character of each byte: itself where Latin-1 prints it, else the next one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET: Final = _byte_alphabet()
_TO_ALPHABET: Final = dict(enumerate(BYTE_ALPHABET))
_TO_BYTE: Final = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


def piece_of(text: str) -> bytes:
    """The bytes that a token of this spelling stands for; other spellings are taken as UTF-8."""
    try:
        return bytes([_TO_BYTE[character] for character in text])
    except KeyError:
        return text.encode()


class ByteLevelBPE:
    """Encodes text without special tokens. `ids`: tokens by spelling, without the ones that are hidden
    from text; `ranks` of merges by "left right"."""

    adds_space_prefix = False

    def __init__(self, ids: Numbers, ranks: Numbers, rule: PreTokenizer) -> None:
        self._ids = ids
        self._ignore_merges = rule.ignore_merges
        self._ranks = ranks
        self._rule = rule
        self._split: Callable[[str], list[str]] | None = None
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text; characters that the vocabulary cannot spell are left out, as llama.cpp does."""
        if self._split is None:
            self._split = compile_splitter(self._rule)
        cache = self._cache
        ids: list[int] = []
        for word in self._split(text):
            found = cache.get(word)
            ids += self._encode_word(word) if found is None else found
        return ids

    def piece(self, text: str) -> bytes:
        """The bytes of a normal token's spelling."""
        return piece_of(text)

    def _encode_word(self, word: str) -> tuple[int, ...]:
        spelled = word.encode().decode("latin-1").translate(_TO_ALPHABET)
        whole = self._ids.get(spelled) if self._ignore_merges else None
        ids = (whole,) if whole is not None else tuple(self._ids_of(merge(list(spelled), self._cost)))
        if len(word) <= _CACHED_LENGTH:
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = ids
        return ids

    def _ids_of(self, symbols: Sequence[str]) -> list[int]:
        ids: list[int] = []
        for symbol in symbols:
            token = self._ids.get(symbol)
            found = map(self._ids.get, symbol) if token is None else (token,)
            ids += [one for one in found if one is not None]
        return ids

    def _cost(self, left: str, right: str) -> float:
        rank = self._ranks.get(f"{left} {right}")
        return inf if rank is None else rank
