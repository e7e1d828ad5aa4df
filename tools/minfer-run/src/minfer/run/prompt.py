"""Where the prompt comes from: the words, `-` for stdin among them, a file, or all of stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from minfer.core.errors import UsageError

MAX_PROMPT_BYTES = 64 << 20
"""More text than any context holds; a prompt beyond it is a mistake, not a question."""


class EmptyPromptError(UsageError):
    """There is no text to answer."""

    code = "empty-prompt"

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where} is empty: there is nothing to answer",
            hint="write the prompt after the model, or pipe it in",
        )


class PromptFileError(UsageError):
    """The prompt file cannot be read as text."""

    code = "prompt-file"


def read_prompt(words: Sequence[str], file: Path | None) -> str:
    """The prompt: what `read_text` finds. Raises UsageError when it is empty or only white space."""
    text, where = read_text(words, file)
    if not text.strip():
        raise EmptyPromptError(where)
    return text


def read_text(words: Sequence[str], file: Path | None) -> tuple[str, str]:
    """A text and where it is from. Words join with spaces and a lone `-` is all of stdin; without words,
    file or stdin.

    One trailing newline of stdin or of the file is dropped. Raises UsageError when it cannot be read.
    """
    if file is not None:
        text = "\n".join(
            [_drop_newline(_read_file(file)), " ".join(_expand(words))] if words else [_read_file(file)]
        )
        return _drop_newline(text), f"{file}"
    if words:
        return " ".join(_expand(words)), "the prompt"
    if sys.stdin is None or sys.stdin.closed:
        raise EmptyPromptError("stdin")
    if sys.stdin.isatty():
        sys.stderr.write(
            "Reading the prompt from the terminal; end it with Ctrl-D. (--cnv has a conversation.)\n"
        )
        sys.stderr.flush()
    return _read_stdin(), "stdin"


def _expand(words: Sequence[str]) -> list[str]:
    # As the bytes that were typed: in a locale without UTF-8 Python has read them otherwise.
    return [_read_stdin() if word == "-" else _decode(os.fsencode(word), "the prompt") for word in words]


def _read_stdin() -> str:
    return _drop_newline(_decode(sys.stdin.buffer.read(MAX_PROMPT_BYTES + 1), "stdin"))


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return _decode(stream.read(MAX_PROMPT_BYTES + 1), str(path))
    except OSError as error:
        raise PromptFileError(
            f"the prompt file {path} cannot be read: {error.strerror}", hint="check the path"
        ) from None


def _decode(data: bytes, where: str) -> str:
    if len(data) > MAX_PROMPT_BYTES:
        raise PromptFileError(
            f"{where} holds more than {MAX_PROMPT_BYTES >> 20} MiB", hint="give a shorter prompt"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise PromptFileError(
            f"{where} is not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start}",
            hint="convert it to UTF-8 first",
        ) from None


def _drop_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")
