"""Stop strings: the shown text is the same however the output is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.stops import StopMatcher


def _run(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopMatcher(stops)
    shown = "".join(matcher.push(piece)[0] for piece in pieces)
    return shown + ("" if matcher.hit else matcher.finish()), matcher.hit


@pytest.mark.parametrize(
    ("stops", "pieces", "shown", "hit"),
    [
        ([], ["anything"], "anything", None),
        (["END"], ["hello END more"], "hello ", "END"),  # inside one piece
        (["END"], ["hello E", "N", "D"], "hello ", "END"),  # over three
        (["END"], ["hello EN", "tirely"], "hello ENtirely", None),  # held back, then given back
        (["END"], ["hello EN"], "hello EN", None),  # held back until the end
        (["bcde", "cd"], ["abcde"], "ab", "cd"),  # completed first
        (["cd", "bcd"], ["ab", "cd"], "a", "bcd"),  # completed together: the longest
        (["aab"], ["aaab"], "a", "aab"),  # a false start that overlaps the match
        (["\n\n"], ["one\n", "\ntwo"], "one", "\n\n"),
        (["é"], ["caf", "é!"], "caf", "é"),
        (["", "x"], ["axb"], "a", "x"),
    ],
)
def test_cases(stops: list[str], pieces: list[str], shown: str, hit: str | None) -> None:
    assert _run(stops, pieces) == (shown, hit)


def test_only_a_possible_beginning_is_held() -> None:
    matcher = StopMatcher(["stop"])
    assert matcher.push("a st") == ("a ", None)
    assert matcher.push("ay") == ("stay", None)


def test_nothing_is_shown_after_a_hit() -> None:
    matcher = StopMatcher(["."])
    assert matcher.push("One. Two.") == ("One", ".")
    assert matcher.push(" Three.") == ("", ".")
    assert matcher.finish() == ""


def _reference(stops: list[str], text: str) -> tuple[str, str | None]:
    """By definition: the shortest beginning of the text that ends in a stop string."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            hit = max(ending, key=len)
            return text[: end - len(hit)], hit
    return text, None


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_split_shows_the_same(data: st.DataObject) -> None:
    stops = data.draw(st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
    text = data.draw(st.text("abc", max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert _run(stops, pieces) == _reference(stops, text)
