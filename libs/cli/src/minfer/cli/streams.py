"""The three standard streams as the programs need them: always there, and told apart when they fail.

What goes to stdout is what the user asked for: losing it is an error. What goes to stderr is about the work:
losing it is no reason to end the work, whether its reader left (`2>&1 >answer | head`) or its disk is full.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from minfer.core.errors import MinferError


class OutputLostError(MinferError):
    """What was asked for could not be written to stdout."""

    code = "output-lost"


class ReaderLeftError(BrokenPipeError):
    """Whoever read stdout is gone: nobody wants the rest."""


def settle_streams() -> None:
    """Make stdin, stdout and stderr usable, whatever this process was started with.

    A closed descriptor becomes the null device: the next file to be opened would get its number, and
    everything written to the stream would go into that file.
    """
    for descriptor in (0, 1, 2):
        if not _is_open(descriptor):
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    # Streams that someone put in the place of the process's own (tests, a host program) stay.
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, "wb", closefd=False), sys.__stdout__)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Messages(2, "wb", closefd=False), sys.__stderr__)


class _Output(io.FileIO):
    """stdout: a failure other than its reader leaving is an error that says what happened."""

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except BrokenPipeError:
            raise ReaderLeftError from None
        except OSError as error:
            hint = "make room where stdout goes" if error.errno == errno.ENOSPC else ""
            raise OutputLostError(f"stdout cannot be written: {error.strerror}", hint=hint) from None


class _Messages(io.FileIO):
    """stderr: what cannot be said is left unsaid."""

    def write(self, data: object) -> int:
        with suppress(OSError):
            return super().write(data)  # type: ignore[arg-type]
        return memoryview(data).nbytes  # type: ignore[arg-type]


def _text(raw: io.FileIO, original: TextIO | None) -> TextIO:
    """A text stream over `raw` with the settings of `original`, or UTF-8 when there was none."""
    if not isinstance(original, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=True)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=original.encoding,
        # A character the terminal's encoding lacks is shown escaped: no message and no path may fail for it.
        errors="backslashreplace" if original.errors == "strict" else original.errors,
        line_buffering=original.line_buffering,
        write_through=original.write_through,
    )


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
