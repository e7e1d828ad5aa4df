"""One HTTP request as the engine sees it: some prompts, for each some answers, and where events go."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minfer.core.errors import MinferError

if TYPE_CHECKING:
    from minfer.engine.events import Event
    from minfer.engine.generation import Generation, Request
    from minfer.serve.scheduling.waiting_line import Owner

_MOST_UNREAD: Final = 128
"""Events that may wait for a slow reader before its generations pause."""


@dataclass(frozen=True, slots=True)
class Started:
    """A choice left the queue."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A choice ended with an error."""

    error: MinferError


@dataclass(frozen=True, slots=True)
class Item:
    """Something that happened to one choice of a job; `at` is time.perf_counter()."""

    index: int
    event: Event | Started | Broken
    at: float


@dataclass(slots=True, eq=False)
class Choice:
    """One answer to one prompt. `leader`: the choice with the same prompt whose prefill it waits for."""

    job: Job
    index: int
    request: Request
    leader: Choice | None = None
    generation: Generation | None = None
    followers: list[Choice] = field(default_factory=list)


class Job:
    """Some generations that one client waits for together."""

    def __init__(self, name: str, owner: Owner, requests: Sequence[Request], deadline: float = 0.0) -> None:
        """`owner`: the key's mark, which also salts the prefix cache. deadline: perf_counter, 0 is none.

        Requests with an equal prompt share its computation.
        """
        self.name = name
        self.owner = owner
        self.deadline = deadline
        self.use_prefix_cache = True
        self.secret = os.urandom(16)  # salts the cache of a job that shares it with nobody
        self.is_cancelled = False
        self.is_late = False
        self.submitted = time.perf_counter()
        self.on_resumed: Callable[[], None] = _nothing
        self.mailbox = Mailbox(self._set_paused)
        self.choices: list[Choice] = []
        leaders: dict[tuple[int, ...], Choice] = {}
        for index, request in enumerate(requests):
            leader = leaders.get(request.prompt)
            choice = Choice(self, index, request, leader)
            if leader is None:
                leaders[request.prompt] = choice
            else:
                leader.followers.append(choice)
            self.choices.append(choice)

    def _set_paused(self, is_paused: bool) -> None:
        for choice in self.choices:
            if choice.generation is not None:
                choice.generation.is_paused = is_paused
        if not is_paused:
            self.on_resumed()


def _nothing() -> None:
    pass


class Mailbox:
    """What happened to a job, on the event loop's side. Tells the engine when the reader is slow."""

    def __init__(self, set_paused: Callable[[bool], None]) -> None:
        self._items: deque[Item] = deque()
        self._has_some = asyncio.Event()
        self._set_paused = set_paused
        self.is_paused = False

    def put(self, items: Sequence[Item]) -> None:
        """Add items; for the event loop's thread."""
        self._items.extend(items)
        self._has_some.set()
        if len(self._items) > _MOST_UNREAD and not self.is_paused:
            self.is_paused = True
            self._set_paused(True)

    def wake(self) -> None:
        """Let `get` return although nothing came: the job was cancelled."""
        self._has_some.set()

    async def get(self, timeout: float) -> list[Item]:
        """Everything that has arrived, waiting for the first; [] when `timeout` seconds bring nothing."""
        if not self._items:
            self._has_some.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._has_some.wait()
            except TimeoutError:
                return []
        items = list(self._items)
        self._items.clear()
        if self.is_paused:
            self.is_paused = False
            self._set_paused(False)
        return items
