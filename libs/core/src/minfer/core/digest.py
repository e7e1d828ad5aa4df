"""A sha256 digest as a value: parsed once, strictly, so that no text from outside becomes a path."""

from __future__ import annotations

import re
from dataclasses import dataclass

from minfer.core.errors import TransferError

_FORM = re.compile(r"(?:sha256[:-])?([0-9a-fA-F]{64})")


class BadDigestError(TransferError):
    """A registry sent something that is not a sha256 digest."""

    code = "bad-digest"


@dataclass(frozen=True, slots=True)
class Digest:
    """The sha256 of some bytes; `hex` is 64 lower-case hexadecimal digits."""

    hex: str

    @classmethod
    def parse(cls, text: str) -> Digest:
        """Read `sha256:HEX`, `sha256-HEX` or bare `HEX`; anything else is a BadDigestError."""
        match = _FORM.fullmatch(text) if len(text) <= 80 else None
        if match is None:
            raise BadDigestError(f"{text[:100]!r} is not a sha256 digest")
        return cls(match[1].lower())

    def __str__(self) -> str:
        return f"sha256:{self.hex}"
