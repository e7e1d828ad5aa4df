"""Tokens as people and programs read them: id, bytes, piece, kind."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minfer.engine.tokenizer import Tokenizer


class TokenTable:
    """The tokens of one text, written to stdout in one of three forms."""

    def __init__(self, tokenizer: Tokenizer, ids: Sequence[int]) -> None:
        """`ids` are what the text was encoded to."""
        self._tokenizer = tokenizer
        self._ids = ids

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the writer of the text has probably not meant."""
        bos = self._tokenizer.bos
        if bos is not None and list(self._ids[:2]) == [bos, bos]:
            text = self._tokenizer.token_text(bos)
            return (
                f"the text begins with two {text!r} tokens (id {bos}): one is the text's own, the other is "
                "added by the tokenizer; leave it out of the text, or use --no-bos",
            )
        return ()

    def print_ids(self) -> None:
        """The ids as one list."""
        sys.stdout.write(json.dumps(list(self._ids)) + "\n")

    def print_rows(self) -> None:
        """A row for each token: id, its bytes in hexadecimal, its text; a control token says so."""
        width = len(str(self._tokenizer.n_vocab))
        for token in self._ids:
            data = self._tokenizer.piece(token, special=True)
            mark = "  (control)" if self._tokenizer.is_control(token) else ""
            piece = _quoted(data)
            sys.stdout.buffer.write(f"{token:>{width}}  {data.hex():<16}  {piece}{mark}\n".encode())

    def print_json(self) -> None:
        """One object: n_tokens, ids, tokens with piece (null where it is no whole text), bytes, control."""
        line = {
            "n_tokens": len(self._ids),
            "ids": list(self._ids),
            "tokens": [self._row(token) for token in self._ids],
            "warnings": list(self.warnings),
        }
        sys.stdout.buffer.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def _row(self, token: int) -> dict[str, object]:
        data = self._tokenizer.piece(token, special=True)
        try:
            piece: str | None = data.decode()
        except UnicodeDecodeError:
            piece = None
        return {
            "id": token,
            "piece": piece,
            "bytes": data.hex(),
            "control": self._tokenizer.is_control(token),
        }


def _quoted(data: bytes) -> str:
    """Text in quotes, with what is not printable or not UTF-8 escaped."""
    text = data.decode("utf-8", "backslashreplace")
    shown = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
    return f"'{shown}'"
