"""Finding repeated sequences for the DRY penalty.

DRY ("don't repeat yourself") was proposed by p-e-w, text-generation-webui pull request 5677; the
behaviour at sequence breakers is that of KoboldCpp and llama.cpp.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Protocol
from weakref import WeakKeyDictionary

Breakers = Mapping[int, Sequence[tuple[int, ...]]]
"""For each token that can begin a sequence breaker: the tokens that must follow it to complete one."""

_MAX_BREAKER_BYTES: Final = 40
_MAX_FOLLOWING: Final = 20


class Vocabulary(Protocol):
    """What DRY wants to know of a tokenizer."""

    @property
    def n_vocab(self) -> int:
        """Number of token ids."""

    def piece(self, id_: int, /) -> bytes:
        """The bytes of a token."""

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of a text."""


def repeated(window: Sequence[int], allowed: int, breakers: Breakers) -> dict[int, int]:
    """For each token that would continue a repetition: the length of the longest one it continues.

    A repetition is a suffix of `window` (oldest token first) that also occurs earlier in it; it cannot
    reach back over a sequence breaker, and breakers themselves may be repeated. Only
    lengths of `allowed` and more are told.
    """
    if len(window) <= allowed:
        return {}
    backwards = list(reversed(window))
    limit = _since_breaker(backwards, breakers)
    if limit < allowed:
        return {}
    lengths: dict[int, int] = {}
    for start, shared in enumerate(_shared_prefixes(backwards)):
        length = min(shared, limit)
        if start and length >= allowed:
            follower = backwards[start - 1]
            lengths[follower] = max(length, lengths.get(follower, 0))
    return {id_: length for id_, length in lengths.items() if () not in breakers.get(id_, ())}


def _since_breaker(backwards: Sequence[int], breakers: Breakers) -> int:
    """Tokens after the last sequence breaker; all of them if there is none."""
    for index, head in enumerate(backwards):
        longest = -1
        for following in breakers.get(head, ()):
            n = len(following)
            if longest < n <= index and all(
                backwards[index - 1 - i] == id_ for i, id_ in enumerate(following)
            ):
                longest = n
        if longest >= 0:
            return index - longest
    return len(backwards)


def _shared_prefixes(text: Sequence[int]) -> Iterator[int]:
    """For every position: how many tokens from there on equal the beginning of `text` (the Z-function).

    Linear time, see Gusfield, Algorithms on Strings, Trees and Sequences, section 1.4.
    """
    n = len(text)
    shared = [0] * n
    shared[0] = n
    yield n
    left = right = 0  # the match that reaches furthest: text[left:right] equals text[:right - left]
    for i in range(1, n):
        length = min(right - i, shared[i - left]) if i < right else 0
        while i + length < n and text[length] == text[i + length]:
            length += 1
        if i + length > right:
            left, right = i, i + length
        shared[i] = length
        yield length


def find_breakers(texts: Sequence[str], vocabulary: Vocabulary) -> Breakers:
    """How each breaker text can show up in tokens.

    A token that contains the text is one by itself; a token that ends in the text's beginning is one if
    the tokens of the rest follow.
    """
    pieces = _pieces_of(vocabulary)
    found: dict[int, list[tuple[int, ...]]] = {}
    for text in texts:
        cut = text.encode()[:_MAX_BREAKER_BYTES]
        whole = pieces.containing(cut)
        for id_ in whole:
            found.setdefault(id_, []).append(())
        for begin, following in _rests(cut, vocabulary):
            for id_ in pieces.ending_in(begin) - whole:
                found.setdefault(id_, []).append(following)
    return found


class _Pieces:
    """All tokens of a vocabulary as one text, which is searched a hundred times faster than one by one."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        pieces = [vocabulary.piece(id_) for id_ in range(vocabulary.n_vocab)]
        self._text = b"".join(pieces)
        self._ends = list(accumulate(map(len, pieces)))

    def containing(self, part: bytes) -> set[int]:
        """Tokens that contain the part."""
        places = [(at, bisect_right(self._ends, at)) for at in self._places(part)]
        return {id_ for at, id_ in places if at + len(part) <= self._ends[id_]}

    def ending_in(self, part: bytes) -> set[int]:
        """Tokens that end in the part."""
        places = [(at, bisect_right(self._ends, at)) for at in self._places(part)]
        return {id_ for at, id_ in places if at + len(part) == self._ends[id_]}

    def _places(self, part: bytes) -> Iterator[int]:
        at = self._text.find(part)
        while at >= 0:
            yield at
            at = self._text.find(part, at + 1)


_PIECES: Final[WeakKeyDictionary[Vocabulary, _Pieces]] = WeakKeyDictionary()
"""Of the vocabularies in use: a server makes a chain for every request."""


def _pieces_of(vocabulary: Vocabulary) -> _Pieces:
    known = _PIECES.get(vocabulary)
    if known is None:
        known = _PIECES[vocabulary] = _Pieces(vocabulary)
    return known


def _rests(text: bytes, vocabulary: Vocabulary) -> list[tuple[bytes, tuple[int, ...]]]:
    """Every beginning of a breaker with the tokens of what remains, where that is text."""
    rests = []
    for n in range(1, len(text)):
        try:
            remaining = text[n:].decode()
        except UnicodeDecodeError:
            continue  # a cut within a character; no token sequence of ours begins there
        ids = vocabulary.encode(remaining, add_special=False, parse_special=False)
        rests.append((text[:n], tuple(ids[:_MAX_FOLLOWING])))
    return rests
