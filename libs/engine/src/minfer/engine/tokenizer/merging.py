"""Merging adjacent symbols: the cheapest pair first, of equally cheap ones the leftmost.

Byte-pair encoding and SentencePiece are this rule with different costs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import pairwise
from math import inf
from typing import Final, Protocol

Cost = Callable[[str, str], float]
"""What merging two neighbours costs; math.inf where they do not merge."""


class Numbers(Protocol):
    """Ids or ranks by text; a dictionary will do."""

    def get(self, key: str, /) -> int | None:
        """The number of a text, or None."""


_LONG: Final = 64
"""Symbols from which a heap is faster than rescanning a list."""


def merge(symbols: list[str], cost: Cost) -> list[str]:
    """Merge until no pair merges; `symbols` may be changed on the way."""
    return _merge_short(symbols, cost) if len(symbols) < _LONG else _merge_long(symbols, cost)


def _merge_short(symbols: list[str], cost: Cost) -> list[str]:
    costs = [cost(a, b) for a, b in pairwise(symbols)]
    while costs:
        lowest = min(costs)
        if lowest == inf:
            break
        i = costs.index(lowest)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        del costs[i]
        if i:
            costs[i - 1] = cost(symbols[i - 1], symbols[i])
        if i < len(costs):
            costs[i] = cost(symbols[i], symbols[i + 1])
    return symbols


def _merge_long(symbols: list[str], cost: Cost) -> list[str]:
    """The same in n log n steps: a heap of candidate pairs over a linked list."""
    n = len(symbols)
    after, before = list(range(1, n + 1)), list(range(-1, n - 1))
    heap = [
        (price, i, symbols[i], symbols[i + 1])
        for i in range(n - 1)
        if (price := cost(symbols[i], symbols[i + 1])) != inf
    ]
    heapify(heap)
    while heap:
        _, i, left, right = heappop(heap)
        j = after[i]
        if symbols[i] != left or j == n or symbols[j] != right:
            continue  # one of the two has been merged since
        symbols[i], symbols[j] = left + right, ""
        after[i] = after[j]
        if after[j] < n:
            before[after[j]] = i
        for a, b in ((before[i], i), (i, after[i])):
            if a >= 0 and b < n and (price := cost(symbols[a], symbols[b])) != inf:
                heappush(heap, (price, a, symbols[a], symbols[b]))
    return [symbol for symbol in symbols if symbol]
