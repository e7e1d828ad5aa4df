"""Thinking is told apart however the text is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minfer.engine.chat import Thinking
from minfer.run.conversation.display import AnswerSink
from minfer.run.conversation.thinking import ThinkingSplitter

_MARKS = Thinking("<think>", "</think>", None)


def _split(pieces: list[str], *, begins_inside: bool = False) -> list[tuple[str, bool]]:
    splitter = ThinkingSplitter(_MARKS, begins_inside=begins_inside)
    found = [part for piece in pieces for part in splitter.push(piece)] + list(splitter.finish())
    joined: list[tuple[str, bool]] = []
    for text, is_thinking in found:
        if joined and joined[-1][1] == is_thinking:
            joined[-1] = (joined[-1][0] + text, is_thinking)
        else:
            joined.append((text, is_thinking))
    return joined


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>a < b</think>c", [("<think>a < b</think>", True), ("c", False)]),
        ("x<think", [("x<think", False)]),
        ("<think>never ends </thin", [("<think>never ends </thin", True)]),
        ("a</think>b", [("a</think>b", False)]),
        ("<<think>y</think></think>", [("<", False), ("<think>y</think>", True), ("</think>", False)]),
    ],
)
def test_every_way_to_cut_it_gives_the_same(text: str, expected: list[tuple[str, bool]]) -> None:
    for size in range(1, len(text) + 1):
        assert _split([text[at : at + size] for at in range(0, len(text), size)]) == expected


def test_an_answer_may_begin_inside() -> None:
    assert _split(["a</think>b"], begins_inside=True) == [("a</think>", True), ("b", False)]


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think>", "a", " "]), max_size=12))
def test_nothing_is_lost(pieces: list[str]) -> None:
    assert "".join(text for text, _ in _split(pieces)) == "".join(pieces)


def test_without_marks_nothing_is_thinking() -> None:
    splitter = ThinkingSplitter(None)
    assert list(splitter.push("<think>a")) == [("<think>a", False)]


@pytest.mark.parametrize(
    ("hides", "color", "shown"),
    [
        (False, False, "<think>hm</think>\n\nyes\n"),
        (True, False, "yes\n"),
        (False, True, "\x1b[0m\x1b[2m<think>hm</think>\x1b[0m\x1b[32m\n\nyes\x1b[0m\n"),
    ],
)
def test_thinking_is_shown_hidden_or_dimmed(
    capfdbinary: pytest.CaptureFixture[bytes], hides: bool, color: bool, shown: str
) -> None:
    from minfer.engine.events import Stopped, StopReason, Token

    sink = AnswerSink(_MARKS, begins_thinking=False, hides_thinking=hides, color=color)
    for text in ("<th", "ink>hm</thi", "nk>\n", "\nyes"):
        sink.take(Token(1, text, 0.0))
    sink.take(Stopped(StopReason.LENGTH, "", 4, 0.1))
    assert capfdbinary.readouterr().out.decode() == shown
