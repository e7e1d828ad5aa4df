"""How the parts of a split model are named: `BASE-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_GRAMMAR = re.compile(r"(?P<base>.+)-(?P<number>\d{5})-of-(?P<n_parts>\d{5})\.gguf", re.DOTALL | re.ASCII)


class SplitName(NamedTuple):
    """Part `number` (from 1) of `n_parts`; `base` is what the parts' names share."""

    base: str
    number: int
    n_parts: int

    @classmethod
    def parse(cls, file_name: str) -> Self | None:
        """The name's parts, or None when it is not the name of one part of several."""
        match = _GRAMMAR.fullmatch(file_name)
        if match is None:
            return None
        name = cls(match["base"], int(match["number"]), int(match["n_parts"]))
        return name if 1 <= name.number <= name.n_parts and name.n_parts > 1 else None

    def all_parts(self) -> tuple[Self, ...]:
        """The names of the whole set, in order."""
        return tuple(self._replace(number=number) for number in range(1, self.n_parts + 1))

    def __str__(self) -> str:
        return f"{self.base}-{self.number:05d}-of-{self.n_parts:05d}.gguf"
