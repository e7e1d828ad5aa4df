"""A rendered prompt as a sequence of segments: the template's own text, and the caller's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from minfer.engine.chat.marked_text import concatenated, ranges


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a prompt. Control tokens are read out of it only if it is the template's own text."""

    text: str
    is_template: bool


class Encoder(Protocol):
    """What turns a prompt into token ids: a tokenizer."""

    @property
    def bos(self) -> int | None:
        """The id that begins a text."""

    @property
    def adds_bos(self) -> bool:
        """True if the model wants it in front of every text."""

    def encode_pieces(self, pieces: Iterable[tuple[str, bool]], *, add_special: bool) -> list[int]:
        """Ids of the joined texts, each with whether control tokens may be read out of it."""


def segments_of(parts: Iterable[str]) -> tuple[Segment, ...]:
    """The segments of a text given in parts; neighbours differ in kind and none is empty."""
    whole = concatenated(parts)
    found, position = [], 0
    for start, stop in ranges(whole):
        if start > position:
            found.append(Segment(str.__getitem__(whole, slice(position, start)), True))
        found.append(Segment(str.__getitem__(whole, slice(start, stop)), False))
        position = stop
    if position < len(whole):
        found.append(Segment(str.__getitem__(whole, slice(position, None)), True))
    return tuple(found)


def text_of(segments: Sequence[Segment]) -> str:
    """The whole prompt."""
    return "".join(segment.text for segment in segments)


def encode_segments(segments: Sequence[Segment], tokenizer: Encoder) -> list[int]:
    """Token ids of a prompt: one BOS where the model wants one, whether or not the template has it."""
    pieces = [(segment.text, segment.is_template) for segment in segments]
    ids = tokenizer.encode_pieces(pieces, add_special=False)
    if tokenizer.adds_bos and tokenizer.bos is not None and ids[:1] != [tokenizer.bos]:
        ids.insert(0, tokenizer.bos)
    return ids
