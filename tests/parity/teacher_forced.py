"""Two engines on the same ids: how far their distributions are apart.

llama.cpp rounds activations to 8 bits, so a right float32 engine agrees with its first choice only about
96 times in 100; where llama.cpp leads by more than half a nat, it must agree nearly always.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Floats = npt.NDArray[np.float32]
Window = Callable[[Sequence[int]], Floats]
"""Ids to logits [len(ids), n_vocab]."""

GPL = Path("/usr/share/common-licenses/GPL-3")
WINDOW = 512
CLEAR_LEAD = 0.5  # nats


def gpl_text() -> str:
    """The text that every Debian carries; skips elsewhere."""
    if not GPL.exists():
        pytest.skip(f"{GPL} is not on this system")
    return GPL.read_text()


def windows(ids: Sequence[int], bos: int | None, limit: int | None = None) -> Iterator[list[int]]:
    """The text in windows of 512 ids, each beginning with bos in place of its first id when there is one."""
    for n, start in enumerate(range(0, len(ids) - WINDOW + 1, WINDOW)):
        if limit is not None and n >= limit:
            return
        window = list(ids[start : start + WINDOW])
        yield window if bos is None else [bos, *window[1:]]


@dataclass
class Agreement:
    """Sums over scored positions."""

    n_positions: int = 0
    kl: float = 0.0
    n_clear: int = 0
    n_clear_equal: int = 0
    n_equal: int = 0
    reference_nll: float = 0.0
    our_nll: float = 0.0
    per_window_kl: list[float] = field(default_factory=list)

    @property
    def mean_kl(self) -> float:
        """KL(reference ‖ ours), nats a position."""
        return self.kl / self.n_positions

    @property
    def perplexity_ratio(self) -> float:
        """Ours over the reference's."""
        return float(np.exp((self.our_nll - self.reference_nll) / self.n_positions))

    def add(self, ids: Sequence[int], reference: Floats, ours: Floats) -> None:
        """Score the second half of a window."""
        window_kl = 0.0
        for position in range(len(ids) // 2, len(ids) - 1):
            p = _log_softmax(reference[position])
            q = _log_softmax(ours[position])
            window_kl += float(np.exp(p) @ (p - q))
            second, first = np.partition(p, -2)[-2:]
            is_equal = int(p.argmax()) == int(q.argmax())
            self.n_equal += is_equal
            if first - second > CLEAR_LEAD:
                self.n_clear += 1
                self.n_clear_equal += is_equal
            self.reference_nll -= float(p[ids[position + 1]])
            self.our_nll -= float(q[ids[position + 1]])
            self.n_positions += 1
        self.kl += window_kl
        self.per_window_kl.append(window_kl)

    def report(self) -> str:
        """The figures, for a note."""
        return (
            f"{self.n_positions} positions: mean KL {self.mean_kl:.3g} nat, "
            f"top-1 {self.n_equal / self.n_positions:.4f}, "
            f"where the lead is clear {self.n_clear_equal}/{self.n_clear} = "
            f"{self.n_clear_equal / self.n_clear:.4f}, "
            f"perplexity {np.exp(self.our_nll / self.n_positions):.4f} / "
            f"{np.exp(self.reference_nll / self.n_positions):.4f} = {self.perplexity_ratio:.5f}"
        )


def compare(
    ids: Sequence[int], bos: int | None, reference: Window, ours: Window, limit: int | None
) -> Agreement:
    """Run both engines over every window."""
    agreement = Agreement()
    for window in windows(ids, bos, limit):
        agreement.add(window, reference(window), ours(window))
    return agreement


def _log_softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    wide = logits.astype(np.float64)
    wide -= wide.max()
    return np.asarray(wide - np.log(np.exp(wide).sum()))
