"""Where turns come from: a terminal, or a script on stdin that is read line by line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Protocol

from minfer.core.errors import UsageError

MAX_TURN_BYTES = 16 << 20
"""More text than any context holds."""

FENCE = '"""'


class LineError(UsageError):
    """A line of the script is not text."""

    code = "bad-line"


class Lines(Protocol):
    """A source of turns."""

    is_interactive: bool

    def read(self, draft: str = "") -> str | None:
        """The next turn or command; None at the end. A person may change the `draft` first.

        Raises KeyboardInterrupt.
        """


class ScriptLines:
    """Turns from stdin: a line each, or a paragraph each when `multiline`.

    A line that ends in a backslash goes on in the next one; three quotes at the start of a line and at
    the end of one enclose a turn of several lines.
    """

    is_interactive = False

    def __init__(self, *, multiline: bool) -> None:
        self._multiline = multiline

    def read(self, draft: str = "") -> str | None:
        """The next turn that is not empty. Raises LineError when it is not UTF-8 text or too long."""
        while True:
            lines = self._paragraph() if self._multiline else self._one()
            if lines is None:
                return None
            text = "\n".join(lines)
            if text.strip():
                return text

    def _one(self) -> list[str] | None:
        first = _next_line()
        if first is None:
            return None
        return list(collect(first, _rest()))

    def _paragraph(self) -> list[str] | None:
        line = _next_line()
        if line is None:
            return None
        lines = []
        n_bytes = 0
        while line:
            lines.append(line)
            n_bytes += len(line)
            _check_size(n_bytes)
            if len(lines) == 1 and line.startswith("/"):
                break  # a command is a line by itself
            line = _next_line()
        return lines


def collect(first: str, following: Iterator[str]) -> Iterator[str]:
    """The lines of one turn that begins with `first`: continued by backslashes, or fenced."""
    n_bytes = len(first)
    if first.lstrip().startswith(FENCE):
        line: str | None = first.lstrip().removeprefix(FENCE)
        while line is not None and not line.rstrip().endswith(FENCE):
            yield line
            line = next(following, None)
            n_bytes += len(line or "")
            _check_size(n_bytes)
        if line is not None:
            yield line.rstrip().removesuffix(FENCE)
        return
    line = first
    while line is not None and line.endswith("\\"):
        yield line[:-1]
        line = next(following, None)
        n_bytes += len(line or "")
        _check_size(n_bytes)
    if line is not None:
        yield line


def _rest() -> Iterator[str]:
    while (line := _next_line()) is not None:
        yield line


def _next_line() -> str | None:
    if sys.stdin is None or sys.stdin.closed:
        return None
    data = sys.stdin.buffer.readline(MAX_TURN_BYTES + 1)
    if not data:
        return None
    _check_size(len(data))
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise LineError(
            f"a line of stdin is not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}",
            hint="convert the script to UTF-8 first",
        ) from None


def _check_size(n_bytes: int) -> None:
    if n_bytes > MAX_TURN_BYTES:
        raise LineError(f"a turn has more than {MAX_TURN_BYTES >> 20} MiB", hint="write a shorter one")
