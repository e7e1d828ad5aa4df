"""Text that remembers which of its characters a caller wrote.

A chat template glues its own text (with control tokens) to what people and tools wrote (where the same
letters must stay letters). MarkedText is a str, so templates see no difference; the operations that
templates use carry the marks along exactly, and whoever cannot follow an operation marks all of its
result, which is always safe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, SupportsIndex

Range = tuple[int, int]


class MarkedText(str):
    """A str of which some ranges were written by the caller. Made by `written` and the functions below."""

    __slots__ = ("_ranges",)
    _ranges: tuple[Range, ...]  # ascending, disjoint, none empty

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> str:
        return concatenated([self, other]) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> str:
        return concatenated([other, self]) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        text = str.__getitem__(self, key)
        if not isinstance(key, slice):
            index = range(len(self))[key]
            return _cut(self, index, index + 1)
        start, stop, step = key.indices(len(self))
        if step == 1:
            return _cut(self, start, max(start, stop))
        return concatenated([self[i] for i in range(start, stop, step)]) if text else text

    def __iter__(self) -> Iterator[str]:
        return (_cut(self, i, i + 1) for i in range(len(self)))

    def strip(self, chars: str | None = None, /) -> str:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> str:
        return _cut(self, len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> str:
        return _cut(self, 0, len(str.rstrip(self, chars)))

    def removeprefix(self, prefix: str, /) -> str:
        return _cut(self, len(self) - len(str.removeprefix(self, prefix)), len(self))

    def removesuffix(self, suffix: str, /) -> str:
        return _cut(self, 0, len(str.removesuffix(self, suffix)))

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return _located(self, str.split(self, sep, maxsplit), len(sep or ""))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return _located(self, str.rsplit(self, sep, maxsplit), len(sep or ""))

    def splitlines(self, keepends: bool = False) -> list[Any]:
        lines, start = [], 0
        for line, whole in zip(str.splitlines(self), str.splitlines(self, True), strict=True):
            lines.append(_cut(self, start, start + len(whole if keepends else line)))
            start += len(whole)
        return lines

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> str:
        return replaced(self, old, new, count)

    def join(self, parts: Iterable[str], /) -> str:
        return joined(self, parts)

    def upper(self) -> str:
        return _same_length(self, str.upper(self))

    def lower(self) -> str:
        return _same_length(self, str.lower(self))


def written(text: str) -> str:
    """The text, all of it marked as the caller's."""
    return _with_ranges(text, ((0, len(text)),)) if text else ""


def ranges(text: str) -> tuple[Range, ...]:
    """Where the caller's characters are."""
    return text._ranges if isinstance(text, MarkedText) else ()


def concatenated(parts: Iterable[str]) -> str:
    """The parts in a row."""
    parts = list(parts)
    found: list[Range] = []
    position = 0
    for part in parts:
        for start, stop in ranges(part):
            if found and found[-1][1] == position + start:
                found[-1] = (found[-1][0], position + stop)
            else:
                found.append((position + start, position + stop))
        position += len(part)
    return _with_ranges("".join(parts), tuple(found))


def joined(separator: str, parts: Iterable[str]) -> str:
    """The parts with the separator between them."""
    parts = list(parts)
    if not separator:
        return concatenated(parts)
    between = [piece for part in parts for piece in (separator, part)]
    return concatenated(between[1:])


def replaced(text: str, old: str, new: str, count: SupportsIndex = -1) -> str:
    """The text with `old` replaced by `new`, at most `count` times; -1 = each time."""
    plain = str.replace(text, old, new, count)
    if not ranges(text) and not ranges(new):
        return plain
    if not old:
        return written(plain)
    pieces = str.split(text, old) if count.__index__() < 0 else str.split(text, old, count)
    return joined(new, _located(text, pieces, len(old)))


def _with_ranges(text: str, found: tuple[Range, ...]) -> str:
    if not found:
        return text if type(text) is str else str.__str__(text)
    marked = str.__new__(MarkedText, text)
    marked._ranges = found
    return marked


def _cut(text: str, start: int, stop: int) -> str:
    """text[start:stop] for 0 <= start <= stop <= length."""
    inside = tuple(
        (max(first, start) - start, min(last, stop) - start)
        for first, last in ranges(text)
        if max(first, start) < min(last, stop)
    )
    return _with_ranges(str.__getitem__(text, slice(start, stop)), inside)


def _located(text: str, pieces: Sequence[str], gap: int) -> list[str]:
    """The pieces of a split with their marks; `gap` is the separator's length, 0 = white space."""
    cut, start = [], 0
    for piece in pieces:
        if not gap:
            start = str.find(text, piece, start)
        cut.append(_cut(text, start, start + len(piece)))
        start += len(piece) + gap
    return cut


def _same_length(text: MarkedText, changed: str) -> str:
    """Marks of a change that maps character to character; where it did not, everything is marked."""
    return _with_ranges(changed, text._ranges) if len(changed) == len(text) else written(changed)
