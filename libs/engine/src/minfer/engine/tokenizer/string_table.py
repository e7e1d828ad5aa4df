"""The strings of an array in a model file, found by number and by text.

A vocabulary has up to hundreds of thousands and a prompt needs a few: the compiled table makes Python
objects of those alone. Without it lists and dictionaries do the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from minfer.engine.tokenizer.errors import VocabularyError

if TYPE_CHECKING:
    from minfer.gguf import Metadata

try:
    from minfer.engine.tokenizer import _strings
except ImportError:  # built without a compiler
    compiled: type[_strings.StringTable] | None = None
else:
    compiled = _strings.StringTable


class StringTable(Protocol):
    """Numbered strings, as bytes: they need not be UTF-8."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, index: int) -> bytes:
        """The string of a number. Raises IndexError outside 0 to len - 1."""

    def get(self, text: str) -> int | None:
        """The number of the string that is this text; None when there is none, and for no text at all."""

    def containing(self, mark: bytes, start: int) -> list[int]:
        """Ascending numbers of the strings that hold `mark` at byte `start` or behind."""


class PlainStringTable:
    """A StringTable of Python objects. keeps_first: of equal strings the first one's number is found."""

    def __init__(self, strings: Sequence[bytes], *, keeps_first: bool = False) -> None:
        self._strings = strings
        numbered = list(zip(strings, range(len(strings)), strict=True))
        self._numbers = dict(reversed(numbered) if keeps_first else numbered)
        self._numbers.pop(b"", None)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._strings)

    def __getitem__(self, index: int) -> bytes:
        """The string of a number."""
        if index < 0:
            raise IndexError(index)
        return self._strings[index]

    def get(self, text: str) -> int | None:
        """The number of the string that is this text."""
        return self._numbers.get(text.encode("utf-8", "surrogatepass"))

    def containing(self, mark: bytes, start: int) -> list[int]:
        """Ascending numbers of the strings that hold `mark` at byte `start` or behind."""
        return [i for i, string in enumerate(self._strings) if string.find(mark, start) >= 0]


def read_string_table(metadata: Metadata, key: str, *, keeps_first: bool = False) -> StringTable:
    """The array of strings `key` as a table. Raises minfer.gguf's errors when it is absent or mistyped.

    Of equal strings the last one's number is found, with keeps_first the first one's.
    """
    span, n = metadata.string_span(key)
    if compiled is None or sys.byteorder == "big":
        return PlainStringTable(metadata.byte_strings(key), keeps_first=keeps_first)
    seed = int.from_bytes(os.urandom(8), "little")
    try:
        return compiled(bytes(span), n, keeps_first, seed)
    except ValueError as error:  # the header's reader has let something pass that it should not
        raise VocabularyError(f"{key} cannot be read: {error}") from None
