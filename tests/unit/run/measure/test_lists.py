"""Lists and ranges of numbers in a flag."""

from __future__ import annotations

import click
import pytest

from minfer.run.measure.lists import IntList, TooDeepError, require_room


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("512", (512,)),
        ("1,2,4", (1, 2, 4)),
        ("128-512+128", (128, 256, 384, 512)),
        ("1-16*2", (1, 2, 4, 8, 16)),
        ("3-5", (3, 4, 5)),
        ("1-10+4,100", (1, 5, 9, 100)),
    ],
)
def test_lists(text: str, numbers: tuple[int, ...]) -> None:
    assert IntList(0, 1000).convert(text, None, None) == numbers


@pytest.mark.parametrize(
    "text", ["", "a", "1,,2", "5-3", "1-9+0", "1-9*1", "0-9*2", "1-", "-1", "1001", "1-900", "99999999999"]
)
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(click.BadParameter):
        IntList(0, 1000).convert(text, None, None)


def test_more_than_the_context_is_refused() -> None:
    require_room(10, 10, "-p")
    with pytest.raises(TooDeepError, match="11 tokens"):
        require_room(11, 10, "-p")
