"""SentencePiece by scores: of all adjacent pairs that form a token, the one of the best score is merged.

White space is written as ▁; a character that no token spells becomes byte tokens <0x00> to <0xFF>.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import Final

from minfer.engine.tokenizer.merging import merge
from minfer.engine.tokenizer.vocabulary import Spellings

_SPACE: Final = "▁"
_CACHED_WORDS: Final = 1 << 16
_CACHED_LENGTH: Final = 64


class SentencePiece:
    """Encodes text without special tokens.

    `spellings`: without the ones that are hidden from text; `scores` by id; unknown: the id for bytes
    without a token of their own, or None to leave them out.
    """

    def __init__(
        self,
        spellings: Spellings,
        scores: Sequence[float],
        *,
        adds_space_prefix: bool,
        unknown: int | None = None,
    ) -> None:
        self._ids, self._scores = spellings, scores
        self.adds_space_prefix = adds_space_prefix
        self._unknown = unknown
        self._words: re.Pattern[str] | None = None
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """The ids of a text, its spaces escaped, without a prefix."""
        if self._words is None:
            self._words = word_pattern(self._ids)
        cache = self._cache
        ids: list[int] = []
        for word in self._words.findall(text.replace(" ", _SPACE)):
            found = cache.get(word)
            ids += self._encode_word(word) if found is None else found
        return ids

    def piece(self, text: str) -> bytes:
        """The bytes of a normal token's spelling."""
        return text.replace(_SPACE, " ").encode()

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for symbol in merge(list(word), self._cost):
            token = self._ids.get(symbol)
            ids += self._byte_ids(symbol) if token is None else [token]
        if len(word) <= _CACHED_LENGTH:
            if len(self._cache) >= _CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = tuple(ids)
        return tuple(ids)

    def _byte_ids(self, symbol: str) -> list[int]:
        found = [self._ids.get(f"<0x{byte:02X}>") for byte in symbol.encode()]
        ids = [self._unknown if token is None else token for token in found]
        return [token for token in ids if token is not None]

    def _cost(self, left: str, right: str) -> float:
        token = self._ids.get(left + right)
        return inf if token is None else -self._scores[token]


def word_pattern(spellings: Spellings) -> re.Pattern[str]:
    """A pattern that cuts escaped text where no token reaches across, so that words can be done one by one.

    That is before a ▁ that follows something else, unless some token has that something inside it with a
    ▁ behind (gemma has `>▁</`), and around newlines if no token mixes them with other characters.
    """
    bridges: set[str] = set()
    for text in spellings.containing(_SPACE, start=1):
        bridges.update(a for a, b in pairwise(text) if b == _SPACE != a)
    plain = f"[^{_SPACE}\n]"
    if any(text.strip("\n") for text in spellings.containing("\n")):
        plain = f"[^{_SPACE}]"
    if bridges:
        plain = f"(?:{plain}|(?<=[{re.escape(''.join(sorted(bridges)))}]){_SPACE}+)"
    return re.compile(f"{_SPACE}*{plain}+|{_SPACE}+|\n+")
