"""Two contenders in turn, A B A B, so that what the machine does meanwhile hits both alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Pairs:
    """Figures of both sides, in the order they were measured; higher is better."""

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the pairwise ratios ours / theirs."""
        return median(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    def row(self) -> str:
        """Median and best of each side, and the ratio."""
        ours, theirs = median(self.ours), median(self.theirs)
        return f"{ours:9.1f} {max(self.ours):9.1f} {theirs:9.1f} {max(self.theirs):9.1f} {self.ratio:6.2f}x"


def alternate(n_pairs: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Pairs:
    """Measure n_pairs pairs, changing who goes first from pair to pair."""
    a: list[float] = []
    b: list[float] = []
    for index in range(n_pairs):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            if side == 0:
                a.append(ours())
            else:
                b.append(theirs())
    return Pairs(tuple(a), tuple(b))
