"""Answers on stdout, coloured on a terminal; what commands tell goes to stderr."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from minfer.engine.events import Event, Stopped, Token
from minfer.run.conversation.thinking import ThinkingSplitter

if TYPE_CHECKING:
    from minfer.engine.chat import Thinking

ANSWER, THOUGHT, PLAIN = "\x1b[32m", "\x1b[2m", "\x1b[0m"


def uses_color(wish: str) -> bool:
    """Whether to colour stdout: as wished, and with `auto` on a terminal that nobody asked to spare."""
    if wish != "auto":
        return wish == "on"
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def tell(text: str) -> None:
    """Show what a command was asked for. Not on stdout, which belongs to the answers."""
    sys.stderr.write(text.rstrip("\n") + "\n")
    sys.stderr.flush()


class AnswerSink:
    """The text of one answer as it is made, ended by a newline. Thinking is dimmed, or left out."""

    def __init__(
        self, marks: Thinking | None, *, begins_thinking: bool, hides_thinking: bool, color: bool
    ) -> None:
        """begins_thinking: the prompt ended inside a block of thinking."""
        self._splitter = ThinkingSplitter(marks, begins_inside=begins_thinking)
        self._hides = hides_thinking
        self._color = color
        self._painted = ""
        self._was_hidden = False
        self._last = "\n"

    def take(self, event: Event) -> None:
        """Write the event's text at once."""
        if not isinstance(event, Token | Stopped):
            return
        for text, is_thinking in self._splitter.push(event.text):
            self._write(text, is_thinking=is_thinking)
        if isinstance(event, Stopped):
            self.finish()
        sys.stdout.buffer.flush()

    def finish(self) -> None:
        """End the answer: colours back to normal, and a newline where there is none."""
        for text, is_thinking in self._splitter.finish():
            self._write(text, is_thinking=is_thinking)
        self._paint("")
        if self._last != "\n":
            sys.stdout.buffer.write(b"\n")
            self._last = "\n"
        sys.stdout.buffer.flush()

    def _write(self, text: str, *, is_thinking: bool) -> None:
        if self._hides:
            if is_thinking:
                self._was_hidden = True
                return
            if self._was_hidden:  # the empty lines behind the thinking go with it
                text = text.lstrip()
                self._was_hidden = not text
        if text:
            self._paint(THOUGHT if is_thinking else ANSWER)
            sys.stdout.buffer.write(text.encode())
            self._last = text[-1]

    def _paint(self, color: str) -> None:
        if self._color and color != self._painted:
            sys.stdout.buffer.write((PLAIN + color).encode())
            self._painted = color
