"""The loop: requests in, events out. It batches, and prints nothing.

One loop serves a single prompt, a conversation and a server alike; what a request yields does not depend
on the others in the batch (native backend).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minfer.core.errors import ContextOverflowError, MinferError
from minfer.engine.backends.step import Cancelled, HeadQuery, StepResult
from minfer.engine.events import Event, Failed, Prefilled
from minfer.engine.generation import Generation, Request
from minfer.engine.kv_blocks import ROOT, Digest
from minfer.engine.pace import Pace, StepWork, attended
from minfer.engine.sampling import Candidates, combine_queries
from minfer.engine.scheduler import share_step

if TYPE_CHECKING:
    from minfer.engine.kv_cache import CachedSequence, KVCache
    from minfer.engine.model import Model


@dataclass(frozen=True, slots=True)
class _Part:
    """What one generation puts into a step: its next n_rows pending ids."""

    generation: Generation
    n_rows: int
    n_wanted: int  # logit rows: 0 while the prompt is not finished


class GenerationLoop:
    """Runs any number of generations over one model and one KV cache, a step at a time."""

    def __init__(
        self, model: Model, cache: KVCache, n_ctx: int, max_rows: int = 512, pace: Pace | None = None
    ) -> None:
        """n_ctx bounds each generation; max_rows is the most tokens a step takes. `pace` shortens steps
        with prompts in them while others decode.
        """
        self._model = model
        self._cache = cache
        self._store = cache.store
        self._n_ctx = n_ctx
        self._max_rows = max_rows
        self._pace = pace or Pace()
        self._running: list[Generation] = []
        self.n_preempted = 0  # generations that lost their cache to an older one
        self._owned: set[int] = set()  # id(sequence) of those that end with their generation
        self._began: dict[int, tuple[float, int]] = {}  # id(generation) → start, tokens reused

    def add(
        self, request: Request, sequence: CachedSequence | None = None, salt: Digest = ROOT
    ) -> Generation:
        """Queue a request. A `sequence` from an earlier one is reused as far as its tokens agree, and kept
        afterwards; without one the cache is given back when the generation ends, and prefixes are shared
        with requests of the same `salt`.

        Raises ContextOverflowError when the prompt leaves no room for one token.
        """
        if len(request.prompt) >= self._n_ctx:
            raise PromptTooLongError(len(request.prompt), self._n_ctx)
        if sequence is None:
            sequence = self._cache.new_sequence(salt)
            self._owned.add(id(sequence))
        n_reused = self._reuse(sequence, request)
        generation = Generation(request, sequence, self._model.tokenizer, self._n_ctx)
        self._began[id(generation)] = (time.perf_counter(), n_reused)
        self._running.append(generation)
        return generation

    def _reuse(self, sequence: CachedSequence, request: Request) -> int:
        """Keep what `sequence` has in common with the prompt, or what others left in the cache, if longer.

        At least one id is left to compute: logits come from a row of the step.
        """
        prompt = request.prompt
        if request.reuses_nothing:
            self._cache.free(sequence)
            return 0
        n_same = 0
        for cached, wanted in zip(sequence.ids, prompt[:-1], strict=False):
            if cached != wanted:
                break
            n_same += 1
        if n_same and self._cache.truncate(sequence, n_same):
            return n_same
        self._cache.free(sequence)
        return self._cache.adopt(sequence, prompt[:-1])

    def remove(self, generation: Generation) -> None:
        """Forget a generation, running or not, and give back its cache unless its sequence is kept."""
        self._running = [one for one in self._running if one is not generation]
        self._began.pop(id(generation), None)
        if id(generation.sequence) in self._owned:
            self._owned.remove(id(generation.sequence))
            self._cache.free(generation.sequence)

    def step(self) -> list[tuple[Generation, Event]]:
        """Run one step of all generations; the events it brought. [] when nothing is running."""
        events: list[tuple[Generation, Event]] = []
        for generation in [one for one in self._running if one.is_cancelled]:
            events.append((generation, generation.cancel()))
            self.remove(generation)
        began = time.perf_counter()
        parts = self._next_parts()
        if not parts:
            return events
        work = _work(parts)
        try:
            query, result = self._run(parts)
        except Cancelled:
            return events + self.step()
        events += self._deliver(parts, query, result)
        for generation in [one for one in self._running if one.stopped is not None or one.is_failed]:
            self.remove(generation)
        self._pace.observe(work, time.perf_counter() - began)
        return events

    def has_room(self, n_prompt: int) -> bool:
        """Whether a prompt of that length fits beside all that runs, with a block for each to grow."""
        n_missing = sum(max(0, len(one.ids) - one.sequence.length) for one in self._running)
        return self._cache.has_room(n_prompt + n_missing + 1, n_spare=len(self._running))

    def _next_parts(self) -> list[_Part]:
        ready = [one for one in self._running if not one.is_paused]
        ready = [one for index, one in enumerate(ready) if self._may_go_on(one, is_first=index == 0)]
        pending = [len(one.pending) for one in ready]
        n_decoding = sum(one.n_generated > 0 for one in ready)
        depth = max((one.sequence.length for one, n in zip(ready, pending, strict=True) if n > 1), default=0)
        limit = self._pace.prompt_rows(n_decoding, depth, self._max_rows)
        shares = share_step(pending, self._max_rows, limit)
        left = self._model.max_logit_rows
        parts: list[_Part] = []
        for one, total, rows in zip(ready, pending, shares, strict=True):
            if not rows or len(one.pending) != total:
                continue  # no share, or it has just lost its cache to an older one
            if rows < total:
                one.drop_draft()  # drafted rows are verified in one step or not at all
            elif one.n_wanted > left:
                one.drop_draft(keep=left - 1)  # each drafted row wants logits
            part = self._part(one, min(rows, len(one.pending)), left)
            if part is not None and self._make_room(one, part.n_rows):
                parts.append(part)
                left -= part.n_wanted
        if ready and not parts:
            raise CacheFullError(len(ready[0].ids), self._n_ctx)
        return parts

    @staticmethod
    def _part(one: Generation, n_rows: int, n_logit_rows: int) -> _Part | None:
        """The generation's part of the step, with no more logit rows than there are; None to wait."""
        n_wanted = one.n_logit_rows(n_rows)
        if n_wanted > n_logit_rows:
            n_rows -= n_wanted - n_logit_rows
            if n_logit_rows == 0 or not one.request.reuses_nothing:
                return None
            n_wanted = one.n_logit_rows(n_rows)  # it looks at its prompt, and can do so in shorter pieces
        return _Part(one, n_rows, n_wanted)

    def _may_go_on(self, one: Generation, *, is_first: bool) -> bool:
        """A preempted generation waits until it fits as a whole: else it would lose its cache again."""
        if not one.is_preempted:
            return True
        if not is_first and not self._cache.has_room(len(one.ids) + 1, n_spare=len(self._running)):
            return False
        one.is_preempted = False
        if not one.sequence.length and not one.request.reuses_nothing:
            self._cache.adopt(one.sequence, one.ids[:-1])
        return True

    def _make_room(self, generation: Generation, n_rows: int) -> bool:
        """Reserve rows; when blocks lack, take them from the youngest, which computes them again later.

        False: the generation has to wait for older ones. Paused ones are taken from, whatever their age.
        """
        index = self._running.index(generation)
        victims = [one for one in self._running[:index] if one.is_paused] + self._running[index + 1 :]
        victims = [one for one in victims if one.sequence.length]
        while not self._cache.reserve(generation.sequence, n_rows):
            if not victims:
                return False
            victim = victims.pop()
            victim.drop_draft()
            victim.is_preempted = True
            self._cache.free(victim.sequence)
            self.n_preempted += 1
        return True

    def _run(self, parts: list[_Part]) -> tuple[HeadQuery, StepResult]:
        batch = self._cache.batch(
            (part.generation.sequence, part.generation.pending[: part.n_rows], part.n_wanted)
            for part in parts
        )
        queries = [
            query for part in parts if part.n_wanted for query in part.generation.queries(part.n_wanted)
        ]
        query = combine_queries(queries) if queries else HeadQuery(top=1)
        result = self._model.program.run(
            batch, self._store, query, lambda: any(part.generation.is_cancelled for part in parts)
        )
        return query, result

    def _deliver(
        self, parts: list[_Part], query: HeadQuery, result: StepResult
    ) -> Iterator[tuple[Generation, Event]]:
        row = 0
        for part in parts:
            generation = part.generation
            self._cache.commit(generation.sequence, generation.pending[: part.n_rows])
            rows = []
            for _ in range(part.n_wanted):
                rows.append(Candidates.of_step(result, row, query.listed[row] if query.listed else ()))
                row += 1
            try:
                states = self._states(generation, result, row - len(rows), len(rows))
                for event in self._events(generation, rows, states):
                    yield generation, event
            except MinferError as error:  # it concerns this generation alone
                generation.is_failed = True
                yield generation, Failed(error)
            if rows and not generation.is_failed:
                self._cache.truncate(generation.sequence, generation.n_settled)

    def _states(
        self, generation: Generation, result: StepResult, first: int, n: int
    ) -> list[Sequence[float]]:
        """The values before the head of a generation's logit rows, if it wants them."""
        if generation.request.pooling == "none" or not n:
            return []
        states = result.taps[self._model.state_node]
        return [states[row].tolist() if hasattr(states, "dtype") else _plain_row(states, row)
                for row in range(first, first + n)]  # fmt: skip

    def _events(
        self, generation: Generation, rows: list[Candidates], states: list[Sequence[float]]
    ) -> Iterator[Event]:
        if states:
            if generation.sequence.length == len(generation.ids):
                yield self._prefilled(generation)
            yield from generation.embed(states)
            return
        told = generation.score(rows)
        yield from told
        n_told = sum(one.logprob is not None for one in told)
        if n_told == len(rows):
            return
        if rows and id(generation) in self._began:
            yield self._prefilled(generation)
        yield from generation.advance(rows[n_told:])

    def _prefilled(self, generation: Generation) -> Prefilled:
        start, n_reused = self._began.pop(id(generation))
        return Prefilled(len(generation.request.prompt), n_reused, time.perf_counter() - start)


def _work(parts: Sequence[_Part]) -> StepWork:
    """What a step with these parts holds; a generation that computes its lost cache again is a prompt."""
    prompts = [(part.generation.sequence.length, part.n_rows) for part in parts if part.n_rows > 1]
    return StepWork(
        n_decoding=sum(part.generation.n_generated > 0 for part in parts),
        n_rows=sum(n_rows for _, n_rows in prompts),
        n_attended=sum(attended(depth, n_rows) for depth, n_rows in prompts),
    )


def _plain_row(matrix: memoryview, row: int) -> Sequence[float]:
    """A row of a buffer of two dimensions."""
    n_features = matrix.shape[1] if matrix.shape else 0
    return matrix.cast("B").cast("f")[row * n_features : (row + 1) * n_features].tolist()


class PromptTooLongError(ContextOverflowError):
    """The prompt fills the context."""

    code = "prompt-too-long"

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(
            f"the prompt has {n_prompt} tokens and the context {n_ctx}: there is no room for an answer",
            hint="shorten the prompt, or raise --n-ctx if the model allows more",
        )


class CacheFullError(MinferError):
    """Sequences that are kept hold so many blocks that the oldest generation cannot go on."""

    code, http_status = "cache-full", 503

    def __init__(self, n_tokens: int, n_ctx: int) -> None:
        super().__init__(
            f"the KV cache has no room for a sequence of {n_tokens} tokens in a context of {n_ctx}",
            hint="raise --n-ctx, or keep fewer sequences",
        )


def generate(
    loop: GenerationLoop, request: Request, sequence: CachedSequence | None = None
) -> Iterator[Event]:
    """The events of one request run alone. Closing the iterator early ends the generation.

    A `sequence` is reused and kept; without one the cache is given back at the end.
    """
    generation = loop.add(request, sequence)
    try:
        while generation.stopped is None:
            for _, event in loop.step():
                if isinstance(event, Failed):
                    raise event.error
                yield event
    finally:
        loop.remove(generation)


def texts(events: Iterable[Event]) -> Iterator[str]:
    """The non-empty pieces of text among `events`."""
    for event in events:
        text = getattr(event, "text", "")
        if text:
            yield text
