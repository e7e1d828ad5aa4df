"""Bytes of tokens become text as they arrive, without ever cutting a character in two."""

from __future__ import annotations

import codecs


class Utf8Stream:
    """An incremental decoder: holds back the bytes of an unfinished character until the rest arrives.

    Bytes that no continuation can make valid become U+FFFD at once, by the rule of the Unicode standard
    (one for each maximal subpart), so that the joined output equals decoding all bytes at once.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        """The text that is certain now; at most three bytes stay behind."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """The end has come: U+FFFD for a character that never completed, else nothing. Ready for reuse."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text

    @property
    def pending(self) -> bytes:
        """The bytes held back."""
        held, _ = self._decoder.getstate()
        return bytes(held)
