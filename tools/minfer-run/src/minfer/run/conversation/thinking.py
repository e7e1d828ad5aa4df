"""An answer's text told apart into thinking and the rest, as it streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.engine.chat import Thinking


class ThinkingSplitter:
    """Yields (text, is_thinking); the marks count as thinking. Holds back what may begin a mark."""

    def __init__(self, marks: Thinking | None, *, begins_inside: bool = False) -> None:
        """Without marks nothing is thinking."""
        self._marks = marks
        self._is_inside = begins_inside
        self._held = ""

    def push(self, text: str) -> Iterator[tuple[str, bool]]:
        """What is certain now."""
        if self._marks is None:
            if text:
                yield text, False
            return
        rest = self._held + text
        self._held = ""
        while rest:
            mark = self._marks.end if self._is_inside else self._marks.begin
            at = rest.find(mark)
            if at < 0:
                n_held = _overlap(rest, mark)
                rest, self._held = rest[: len(rest) - n_held], rest[len(rest) - n_held :]
                if rest:
                    yield rest, self._is_inside
                return
            if self._is_inside:
                yield rest[: at + len(mark)], True
            else:
                if at:
                    yield rest[:at], False
                yield mark, True
            self._is_inside = not self._is_inside
            rest = rest[at + len(mark) :]

    def finish(self) -> Iterator[tuple[str, bool]]:
        """What was held back, at the end."""
        if self._held:
            yield self._held, self._is_inside
        self._held = ""


def _overlap(text: str, mark: str) -> int:
    """How many of the text's last characters may be the beginning of the mark."""
    for n in range(min(len(text), len(mark) - 1), 0, -1):
        if mark.startswith(text[-n:]):
            return n
    return 0
