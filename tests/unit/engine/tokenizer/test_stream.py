"""Utf8Stream: text as soon as it is certain, and never a character cut in two."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.tokenizer import Utf8Stream

_TEXT = "aé€😀 👩‍👩‍👧‍👦 नमस्ते\n"


def test_every_pair_of_cuts_gives_the_text_without_replacements() -> None:
    data = _TEXT.encode()
    for a, b in itertools.combinations_with_replacement(range(len(data) + 1), 2):
        stream = Utf8Stream()
        pushed = [stream.push(part) for part in (data[:a], data[a:b], data[b:])]
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pushed)
        assert "".join(pushed) == _TEXT
        assert stream.finish() == ""


@settings(max_examples=200)
@given(st.binary(max_size=24), st.lists(st.integers(0, 24), max_size=6))
def test_any_bytes_in_any_parts_equal_decoding_at_once(data: bytes, cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(data)]
    stream = Utf8Stream()
    parts = [stream.push(data[a:b]) for a, b in itertools.pairwise(ends)]
    assert "".join(parts) + stream.finish() == data.decode("utf-8", "replace")


@given(st.text(max_size=8))
def test_bytes_one_by_one_come_out_with_the_last_byte_of_each_character(text: str) -> None:
    stream = Utf8Stream()
    for character in text:
        *first, last = character.encode()
        assert all(stream.push(bytes([byte])) == "" for byte in first)
        assert stream.push(bytes([last])) == character


def test_an_unfinished_character_is_replaced_at_the_end_and_the_stream_starts_anew() -> None:
    stream = Utf8Stream()
    assert stream.push(b"a\xf0\x9f\x98") == "a"
    assert stream.pending == b"\xf0\x9f\x98"
    assert stream.finish() == "\N{REPLACEMENT CHARACTER}"
    assert stream.pending == b""
    assert stream.push(b"b") == "b"


@pytest.mark.parametrize("data", [b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\x80"])
def test_bytes_that_can_never_be_valid_come_out_at_once(data: bytes) -> None:
    assert Utf8Stream().push(data).startswith("\N{REPLACEMENT CHARACTER}")
