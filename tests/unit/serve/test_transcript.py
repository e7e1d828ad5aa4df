"""What an answer comes to, however it was cut into tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.events import Stopped, StopReason, Token
from minfer.engine.stops import StopMatcher
from minfer.engine.tokenizer import Tokenizer
from minfer.engine.tokenizer.stream import Utf8Stream
from minfer.serve.scheduling.jobs import Item
from minfer.serve.wire.transcript import Delta, Transcript


class _Pieces:
    """A tokenizer whose token i is the i-th piece."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces

    def piece(self, token: int) -> bytes:
        return self._pieces[token]


def _play(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[Transcript, list[Delta], str, list[int]]:
    """Drive a transcript as the engine would; also the expected text and the ids of tokens drawn."""
    transcript = Transcript(cast("Tokenizer", _Pieces(pieces)), 0.0, keeps_tokens=True)
    utf8, matcher = Utf8Stream(), StopMatcher(stops)
    deltas, drawn, shown = [], [], ""
    reason, held = StopReason.LENGTH, ""
    for index, piece in enumerate(pieces):
        text, hit = matcher.push(utf8.push(piece))
        shown += text
        drawn.append(index)
        deltas.append(transcript.take(Item(0, Token(index, text, -1.0), float(index + 1))))
        if hit is not None:
            reason = StopReason.STOP_STRING
            break
    else:
        text, hit = matcher.push(utf8.finish())
        held = text if hit is not None else text + matcher.finish()
    deltas.append(transcript.take(Item(0, Stopped(reason, held, len(drawn), 1.0), 99.0)))
    return transcript, deltas, shown + held, drawn


_TEXT = st.text(alphabet="ab\n🌍é", max_size=12)


@settings(max_examples=150, deadline=None)
@given(text=_TEXT, data=st.data())
def test_deltas_add_up_and_tokens_are_told_once_in_order(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cuts = sorted(data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True) if raw[a:b]]
    stops = data.draw(st.lists(st.sampled_from(["ab", "b🌍", "\n\n", "é"]), max_size=2))
    transcript, deltas, expected, drawn = _play(pieces, stops)
    assert "".join(delta.text for delta in deltas) == expected == "".join(transcript.text)
    told = [token.id for delta in deltas for token in delta.tokens]
    assert told == [token.id for token in transcript.tokens]
    assert told == drawn[: len(told)]
    joined = b"".join(pieces[index] for index in told)
    assert joined.decode("utf-8", "replace").startswith(expected)
    if not any(stop in text for stop in stops):
        assert told == drawn
        assert joined == raw
    assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]


def test_tokens_of_a_stop_string_are_not_told() -> None:
    transcript, _, text, _ = _play([b"Hello", b" wor", b"ld", b"EN", b"D"], ["END"])
    assert text == "Hello world"
    assert [token.id for token in transcript.tokens] == [0, 1, 2]


@pytest.mark.parametrize(("reason", "finish"), [
    (StopReason.END_OF_GENERATION, "stop"), (StopReason.STOP_STRING, "stop"),
    (StopReason.LENGTH, "length"), (StopReason.CONTEXT, "length"),
])  # fmt: skip
def test_reasons_in_openais_words(reason: StopReason, finish: str) -> None:
    transcript = Transcript(cast("Tokenizer", _Pieces([])), 0.0, keeps_tokens=False)
    delta = transcript.take(Item(0, Stopped(reason, "", 0, 0.0), 1.0))
    assert delta.finish == finish


def test_gaps_are_between_tokens() -> None:
    transcript, _, _, _ = _play([b"a", b"b", b"c"], [])
    assert transcript.first_token == 1.0
    assert transcript.gaps == [1.0, 1.0]
