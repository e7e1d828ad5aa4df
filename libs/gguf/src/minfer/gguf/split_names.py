"""How the parts of a split model are named: `BASE-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_GRAMMAR = re.compile(r"(?P<base>.*)-(?P<number>\d{5})-of-(?P<n_parts>\d{5})\.gguf", re.DOTALL | re.ASCII)


class SplitName(NamedTuple):
    """Part `number` (from 1) of `n_parts`; `base` is what the parts' names share."""

    base: str
    number: int
    n_parts: int

    @classmethod
    def parse(cls, file_name: str) -> Self | None:
        """The name's parts, or None when it is not the name of a part."""
        match = _GRAMMAR.fullmatch(file_name)
        if match is None:
            return None
        return cls(match["base"], int(match["number"]), int(match["n_parts"]))

    def __str__(self) -> str:
        return f"{self.base}-{self.number:05d}-of-{self.n_parts:05d}.gguf"
