"""Who goes next: first come, first served for each key, and the keys in turn. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")
Owner = bytes
"""What requests of the same API key share; empty without keys."""


class WaitingLine(Generic[T]):
    """One queue for each owner. The owner with the fewest running items is served first, then by turns."""

    def __init__(self) -> None:
        self._queues: dict[Owner, deque[T]] = {}
        self._turn_of: dict[Owner, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def n_of(self, owner: Owner) -> int:
        """How many items of that owner wait."""
        return len(self._queues.get(owner, ()))

    def add(self, owner: Owner, item: T, *, at_front: bool = False) -> None:
        """Queue an item; at the front for what belongs to something that already runs."""
        queue = self._queues.setdefault(owner, deque())
        if at_front:
            queue.appendleft(item)
        else:
            queue.append(item)

    def next(self, n_running: Mapping[Owner, int]) -> tuple[Owner, T] | None:
        """The item whose turn it is, left in the line; None when nobody waits.

        n_running: how many items of each owner run now.
        """
        if not self._queues:
            return None
        owner = min(self._queues, key=lambda one: (n_running.get(one, 0), self._turn_of.get(one, -1)))
        return owner, self._queues[owner][0]

    def take(self, owner: Owner) -> T:
        """Remove the item that `next` named."""
        queue = self._queues[owner]
        item = queue.popleft()
        self._turn += 1
        self._turn_of[owner] = self._turn
        self._forget_empty()
        return item

    def remove(self, wanted: Callable[[T], bool]) -> list[T]:
        """Take out every item that `wanted` says yes to."""
        removed: list[T] = []
        for owner, queue in self._queues.items():
            removed += [item for item in queue if wanted(item)]
            self._queues[owner] = deque(item for item in queue if not wanted(item))
        self._forget_empty()
        return removed

    def _forget_empty(self) -> None:
        self._queues = {owner: queue for owner, queue in self._queues.items() if queue}
        if not self._queues:
            self._turn_of.clear()
