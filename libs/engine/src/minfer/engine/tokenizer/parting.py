"""Cut a prompt at its special tokens, so that the text between them can be tokenized.

Longest token first, each at every place it occurs in what is left: the order llama.cpp uses, which is not
the same as leftmost-longest where tokens overlap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Final

from minfer.engine.tokenizer.vocabulary import HIDDEN, Vocabulary

_SPACE: Final = " \t\n\v\f\r"
_FEW: Final = 64
"""Up to so many tokens of one first letter are searched for one by one."""


class SpecialTokens:
    """Finds special tokens. Control tokens only where they are allowed to stand, user-defined anywhere."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        special = vocabulary.special_ids()
        self._ids = {vocabulary.spellings[i]: i for i in special}
        self._hidden = frozenset(i for i in special if vocabulary.kinds[i] & HIDDEN)
        self._right_strips = vocabulary.right_strips

    @cached_property
    def _visible(self) -> _Finder:
        return _Finder([text for text, i in self._ids.items() if i not in self._hidden])

    @cached_property
    def _every(self) -> _Finder:
        return _Finder(list(self._ids))

    def part(self, pieces: Sequence[tuple[str, bool]]) -> list[str | int]:
        """The joined pieces as texts and token ids in order; no text is empty.

        A piece is a text and whether control tokens may be read out of it. One that would begin in one
        piece and end in another is text, unless both allow it.
        """
        text = "".join(piece for piece, _ in pieces)
        allowed = _ranges(pieces)
        taken = bytearray(len(text))
        found: list[tuple[int, int, int]] = []
        for token_text in (self._every if allowed else self._visible).present(text):
            token = self._ids[token_text]
            for start, end in self._places(text, token_text, taken, allowed):
                taken[start:end] = b"\1" * (end - start)
                found.append((start, end, token))
        parts: list[str | int] = []
        position = 0
        for start, end, token in sorted(found):
            if position < start:
                parts.append(text[position:start])
            parts.append(token)
            position = end
        if position < len(text):
            parts.append(text[position:])
        return parts

    def _places(
        self, text: str, token_text: str, taken: bytearray, allowed: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int]]:
        """Where a token stands in what is left, with the white space it swallows. The caller marks each
        place in `taken` before it asks for the next."""
        token = self._ids[token_text]
        hidden, strips = token in self._hidden, token in self._right_strips
        start = text.find(token_text)
        while start >= 0:
            end = start + len(token_text)
            last = taken.rfind(1, start, end)
            if last >= 0:  # a longer token is there: go on behind it
                behind = taken.find(0, last + 1)
                start = text.find(token_text, behind) if behind >= 0 else -1
            elif hidden and not _inside(allowed, start, end):
                start = text.find(token_text, start + 1)
            else:
                while strips and end < len(text) and text[end] in _SPACE and not taken[end]:
                    end += 1
                yield start, end
                start = text.find(token_text, end)


def _ranges(pieces: Sequence[tuple[str, bool]]) -> list[tuple[int, int]]:
    """Where control tokens may stand: adjacent pieces that allow them are one range."""
    ranges: list[tuple[int, int]] = []
    position = 0
    for piece, parse in pieces:
        end = position + len(piece)
        if parse and ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], end)
        elif parse and piece:
            ranges.append((position, end))
        position = end
    return ranges


def _inside(ranges: Sequence[tuple[int, int]], start: int, end: int) -> bool:
    i = bisect_right(ranges, start, key=itemgetter(0)) - 1
    return i >= 0 and end <= ranges[i][1]


class _Finder:
    """Which of many texts occur in a prompt: longest in bytes first."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._rank = {t: r for r, t in enumerate(sorted(texts, key=lambda t: -len(t.encode())))}
        self._by_first: dict[str, list[str]] = {}
        for text in texts:
            self._by_first.setdefault(text[0], []).append(text)
        self._lengths = {
            first: sorted({len(text) for text in group}) for first, group in self._by_first.items()
        }

    def present(self, text: str) -> list[str]:
        """Those that occur, in the order they are to be cut out."""
        found: set[str] = set()
        for first, group in self._by_first.items():
            if len(group) <= _FEW:
                found.update(candidate for candidate in group if candidate in text)
            else:
                self._walk(text, first, found)
        return sorted(found, key=self._rank.__getitem__)

    def _walk(self, text: str, first: str, found: set[str]) -> None:
        lengths = self._lengths[first]
        at = text.find(first)
        while at >= 0:
            found.update(part for n in lengths if (part := text[at : at + n]) in self._rank)
            at = text.find(first, at + 1)
