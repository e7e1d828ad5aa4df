"""The one thread that runs the model. Everybody else hands jobs over and is told what happened."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from minfer.core.errors import MinferError
from minfer.engine.events import Failed, Prefilled, Stopped, StopReason
from minfer.engine.kv_blocks import ROOT, Digest
from minfer.serve.errors import EngineFailedError, QueueFullError, ShuttingDownError
from minfer.serve.scheduling.jobs import Broken, Choice, Item, Job, Started
from minfer.serve.scheduling.waiting_line import WaitingLine

if TYPE_CHECKING:
    from minfer.engine.events import Event
    from minfer.engine.generate import GenerationLoop
    from minfer.engine.generation import Generation
    from minfer.engine.kv_cache import KVCache

Delivery = tuple[Job, list[Item]]
_IDLE: Final = 0.5
"""Seconds between looks at deadlines while nothing runs."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """What one slot is doing: counts only, no text."""

    job: str
    choice: int
    n_prompt: int
    n_cached: int
    n_generated: int
    is_paused: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine between two steps; answers questions without waiting for it."""

    slots: tuple[SlotView, ...] = ()
    n_waiting: int = 0
    n_preempted: int = 0
    n_steps: int = 0
    n_positions_free: int = 0
    n_positions: int = 0
    step_began: float = 0.0  # perf_counter of the running step, 0 between steps


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much may run and wait at once."""

    n_slots: int
    max_queue: int


@dataclass(slots=True)
class _Outbox:
    """What a step brought, by job, for one hand-over."""

    items: dict[int, Delivery] = field(default_factory=dict)

    def add(self, choice: Choice, event: Event | Started | Broken) -> None:
        job = choice.job
        _, items = self.items.setdefault(id(job), (job, []))
        items.append(Item(choice.index, event, time.perf_counter()))


class EngineThread(threading.Thread):
    """Owns the generation loop and its KV cache."""

    def __init__(
        self,
        loop: GenerationLoop,
        cache: KVCache,
        capacity: Capacity,
        deliver: Callable[[Sequence[Delivery]], None],
    ) -> None:
        """`deliver` is called on this thread after each step and must not block."""
        super().__init__(name="engine", daemon=True)
        self._loop = loop
        self._cache = cache
        self.capacity = capacity
        self._deliver = deliver
        self._changed = threading.Condition()
        self._line: WaitingLine[Choice] = WaitingLine()
        self._running: dict[int, Choice] = {}  # id(generation) → its choice
        self._errands: list[Callable[[KVCache], None]] = []
        self._is_closing = False
        self._is_closed = False
        self._n_steps = 0
        self._outbox = _Outbox()
        self.snapshot = Snapshot()

    # -- for other threads ---------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Queue a job. Raises QueueFullError, ShuttingDownError."""
        leaders = [choice for choice in job.choices if choice.leader is None]
        with self._changed:
            if self._is_closing:
                raise ShuttingDownError("the server is shutting down")
            n_waiting = self._line.n_of(job.owner)  # one key cannot take the places of another
            n_places = max(0, self.capacity.n_slots - len(self._running)) + self.capacity.max_queue
            if n_waiting >= n_places or (n_waiting and n_waiting + len(leaders) > n_places):
                raise self._full(n_waiting)
            job.on_resumed = self._wake
            for choice in leaders:
                self._line.add(job.owner, choice)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """End a job wherever it is: at once in the queue, within one layer in a step."""
        job.is_cancelled = True
        with self._changed:
            self._line.remove(lambda choice: choice.job is job)
            for choice in job.choices:
                if choice.generation is not None:
                    choice.generation.is_cancelled = True
            self._changed.notify()

    def run_errand(self, errand: Callable[[KVCache], None]) -> None:
        """Have something done with the cache between two steps. Raises ShuttingDownError."""
        with self._changed:
            if self._is_closing:
                raise ShuttingDownError("the server is shutting down")
            self._errands.append(errand)
            self._changed.notify()

    def close(self) -> None:
        """Cancel everything and end the thread."""
        with self._changed:
            self._is_closing = True
            for choice in self._running.values():
                if choice.generation is not None:
                    choice.generation.is_cancelled = True
            self._changed.notify()

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs or waits."""
        with self._changed:
            return not self._running and not len(self._line)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify()

    def _full(self, n_waiting: int) -> QueueFullError:
        return QueueFullError(
            f"all {self.capacity.n_slots} slots are busy and {n_waiting} of your requests are waiting",
            hint="try again later, or start the server with a larger --max-queue",
            retry_after=max(1, min(60, len(self._line) // self.capacity.n_slots)),
        )

    # -- on this thread ------------------------------------------------------------------------------

    def run(self) -> None:
        """Work until closed. Whatever ends it, nobody is left waiting."""
        try:
            while self._wait_for_work():
                self._run_errands()
                self._step()
        finally:
            self._is_closed = self._is_closing
            self._abandon()

    def _wait_for_work(self) -> bool:
        """Settle the queue; sleep while there is nothing to run. False when closed."""
        with self._changed:
            while True:
                self._drop_late()
                if not self._is_closing:
                    self._admit()
                self._publish()
                self._hand_over()
                if self._errands or any(map(_may_step, self._running.values())):
                    return True
                if self._is_closing and not self._running:
                    return False
                self._changed.wait(_IDLE if self._running or len(self._line) else None)

    def _run_errands(self) -> None:
        """An errand may write gigabytes: nobody who wants to know how things are waits for it."""
        with self._changed:
            errands, self._errands = self._errands, []
        for errand in errands:
            errand(self._cache)

    def _drop_late(self) -> None:
        now = time.perf_counter()

        def is_late(choice: Choice) -> bool:
            return 0.0 < choice.job.deadline <= now

        for choice in self._line.remove(is_late):
            choice.job.is_late = True
            self._outbox.add(choice, _cancelled())
        for choice in self._running.values():
            if is_late(choice) and choice.generation is not None:
                choice.job.is_late = True
                choice.generation.is_cancelled = True

    def _admit(self) -> None:
        """Move choices from the line into free slots, as long as the cache has room for their prompts."""
        while len(self._running) < self.capacity.n_slots:
            n_running = Counter(choice.job.owner for choice in self._running.values())
            following = self._line.next(n_running)
            if following is None:
                return
            owner, choice = following
            if self._running and not self._has_room(choice):
                return
            self._line.take(owner)
            self._start(choice)

    def _has_room(self, choice: Choice) -> bool:
        """Whether the prompt fits beside what runs, with a block to grow for each."""
        return self._loop.has_room(len(choice.request.prompt))

    def _start(self, choice: Choice) -> None:
        salt = _salt(choice.job)
        try:
            generation = self._loop.add(choice.request, salt=salt)
        except MinferError as error:
            self._outbox.add(choice, Broken(error))
            return
        generation.is_paused = choice.job.mailbox.is_paused
        generation.is_cancelled = choice.job.is_cancelled
        choice.generation = generation
        self._running[id(generation)] = choice
        self._outbox.add(choice, Started())

    def _step(self) -> None:
        self._publish(step_began=time.perf_counter())
        self._hand_over()
        for generation, event in self._loop.step():
            self._take(generation, event)
        self._n_steps += 1
        self._hand_over()

    def _take(self, generation: Generation, event: Event) -> None:
        choice = self._running[id(generation)]
        self._outbox.add(choice, self._told(choice, event))
        if isinstance(event, Stopped | Failed):
            with self._changed:  # others iterate over it
                del self._running[id(generation)]
        if isinstance(event, Prefilled | Stopped | Failed) and choice.followers:
            self._release_followers(choice)

    def _told(self, choice: Choice, event: Event) -> Event | Broken:
        """What the client hears of an event: an answer that the shutdown cut short is no answer."""
        if isinstance(event, Failed):
            return Broken(event.error)
        is_cut = isinstance(event, Stopped) and event.reason is StopReason.CANCELLED
        if is_cut and self._is_closing and not choice.job.is_late:
            return Broken(ShuttingDownError("the server is shutting down"))
        return event

    def _release_followers(self, choice: Choice) -> None:
        """The prompt is in the cache: choices that share it need not compute it again."""
        with self._changed:
            if not choice.job.is_cancelled and not choice.job.is_late:
                for follower in reversed(choice.followers):
                    self._line.add(choice.job.owner, follower, at_front=True)
            elif choice.job.is_late:
                for follower in choice.followers:
                    self._outbox.add(follower, _cancelled())
            choice.followers.clear()

    def _hand_over(self) -> None:
        deliveries = list(self._outbox.items.values())
        if deliveries:
            self._outbox.items.clear()
            self._deliver(deliveries)

    def _publish(self, step_began: float = 0.0) -> None:
        n_free, n_all = self._cache.n_positions_free, self._cache.n_positions
        slots = tuple(_view(choice) for choice in self._running.values())
        with self._changed:
            n_waiting = len(self._line)
        self.snapshot = Snapshot(
            slots, n_waiting, self._loop.n_preempted, self._n_steps, n_free, n_all, step_began
        )

    def _abandon(self) -> None:
        """Tell every client that is still there that nothing will come."""
        with self._changed:
            was_asked = self._is_closing
            self._is_closing = True
            left = list(self._running.values()) + self._line.remove(lambda _: True)
            for choice in list(left):
                left += choice.followers
            self._running.clear()
        error: MinferError = (
            ShuttingDownError("the server is shutting down")
            if was_asked
            else EngineFailedError("the engine stopped unexpectedly", hint="see the server's log")
        )
        for choice in left:
            self._outbox.add(choice, Broken(error))
        self._publish()
        self._hand_over()


def _salt(job: Job) -> Digest:
    """Keys never see each other's prefixes; a job that wants no cache has a salt that nobody knows."""
    if not job.use_prefix_cache:
        return job.secret
    return job.owner or ROOT


def _may_step(choice: Choice) -> bool:
    """Whether the loop has something to do for it: a paused one rests until it is cancelled."""
    generation = choice.generation
    return generation is not None and (not generation.is_paused or generation.is_cancelled)


def _cancelled() -> Stopped:
    return Stopped(StopReason.CANCELLED, "", 0, 0.0)


def _view(choice: Choice) -> SlotView:
    generation = choice.generation
    n_cached = generation.sequence.length if generation else 0
    n_generated = generation.n_generated if generation else 0
    is_paused = choice.job.mailbox.is_paused
    return SlotView(
        choice.job.name, choice.index, len(choice.request.prompt), n_cached, n_generated, is_paused
    )
