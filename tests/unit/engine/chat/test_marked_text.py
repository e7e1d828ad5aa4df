"""Marked text: whatever is done to it, each character keeps saying who wrote it.

In these tests the caller writes capitals and the template small letters, so a character tells by itself.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.chat.marked_text import MarkedText, concatenated, joined, ranges, replaced, written

_CALLER, _TEMPLATE = "AB\n", "ab \t"
_TEXT = st.lists(
    st.one_of(st.text(_CALLER, max_size=4).map(written), st.text(_TEMPLATE, max_size=4)), max_size=6
).map(concatenated)


def _check(text: str) -> None:
    """Marks are exactly on what the caller wrote."""
    marked = {i for start, stop in ranges(text) for i in range(start, stop)}
    assert marked == {i for i, character in enumerate(str.__str__(text)) if character in _CALLER}
    assert all(start < stop for start, stop in ranges(text))


_OPERATIONS: dict[str, Callable[[str], str | list[str]]] = {
    "str": str,
    "strip": lambda t: t.strip(),
    "strip of letters": lambda t: t.strip("aA"),
    "lstrip": lambda t: t.lstrip(),
    "rstrip": lambda t: t.rstrip("\n"),
    "removeprefix": lambda t: t.removeprefix("aA"),
    "removesuffix": lambda t: t.removesuffix("B"),
    "slice": lambda t: t[1:-2],
    "backwards": lambda t: t[::-1],
    "every second": lambda t: t[::2],
    "empty slice": lambda t: t[3:1],
    "characters": list,
    "first": lambda t: t[0] if t else t,
    "last": lambda t: t[-1] if t else t,
    "split": lambda t: t.split(),
    "split at": lambda t: t.split("A"),
    "split once": lambda t: t.split("a", 1),
    "split at white space once": lambda t: t.split(None, 1),
    "rsplit once": lambda t: t.rsplit("b", 1),
    "rsplit at white space once": lambda t: t.rsplit(None, 1),
    "lines": lambda t: t.splitlines(),
    "lines with ends": lambda t: t.splitlines(True),
    "replace by template": lambda t: t.replace("A", "ab"),
    "replace by caller": lambda t: replaced(t, "a", written("AB")),
    "replace once": lambda t: t.replace("b", "", 1),
    "plus": lambda t: t + "ab" + t,
    "plus at the right": lambda t: "ab" + t,
    "join": lambda t: joined(t, ["a", written("B"), t]),
}


@pytest.mark.parametrize("name", _OPERATIONS)
@settings(max_examples=60, deadline=None)
@given(text=_TEXT)
def test_marks_follow(name: str, text: str) -> None:
    _check(text)
    result = _OPERATIONS[name](text)
    assert result == _OPERATIONS[name]("".join([text]))  # as on the plain text
    for part in [result] if isinstance(result, str) else result:
        _check(part)


def test_it_is_a_text_like_any_other() -> None:
    text = written("Ab")
    assert isinstance(text, str)
    assert text == "Ab"
    assert {"Ab": 1}[text] == 1
    assert text.startswith("A")
    assert "b" in text
    assert isinstance(str(text), MarkedText)


def test_a_change_that_changes_the_length_marks_everything() -> None:
    text = concatenated(["x", written("ß")])
    assert text.upper() == "XSS"
    assert ranges(text.upper()) == ((0, 3),)
    assert ranges(concatenated(["x", written("y")]).upper()) == ((1, 2),)
    assert ranges(concatenated(["X", written("Y")]).lower()) == ((1, 2),)


def test_nothing_written_is_plain() -> None:
    assert type(written("")) is str
    assert type(concatenated(["a", "b"])) is str
    assert type(concatenated(["a", written("B")])[:1]) is str


def test_replacing_nothing_marks_everything() -> None:
    assert ranges(replaced(concatenated(["a", written("B")]), "", "-")) == ((0, 5),)
