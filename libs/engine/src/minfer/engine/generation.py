"""One running request: its tokens, its sampler, and the way from drawn ids to text.

A Generation knows nothing of batches. Each step it offers pending ids, and is told the candidates at the
positions where it wanted logits.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from minfer.engine.backends.step import HeadQuery
from minfer.engine.events import Embedded, Event, PromptToken, Stopped, StopReason, Token
from minfer.engine.sampling import Candidates, SamplerChain
from minfer.engine.stops import StopMatcher
from minfer.engine.tokenizer.stream import Utf8Stream

if TYPE_CHECKING:
    from minfer.engine.kv_cache import CachedSequence
    from minfer.engine.params import GenerationParams
    from minfer.engine.tokenizer import Tokenizer

Drafter = Callable[[Sequence[int]], Sequence[int]]
"""Guesses the ids that follow; a wrong guess costs time and never changes the text."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to generate. params.seed must be settled (not -1).

    choice: index among several answers to one prompt; it is part of every draw.
    n_alternatives: how many likely tokens each Token event lists. scores_prompt: tell of the prompt's
    tokens too, which computes all of them anew. pooling: make one vector of the states before the head,
    of the last token or the mean over all (which computes all anew); needs LoadOptions.has_states.
    """

    prompt: tuple[int, ...]
    params: GenerationParams
    choice: int = 0
    n_alternatives: int = 0
    scores_prompt: bool = False
    pooling: Literal["none", "last", "mean"] = "none"
    drafter: Drafter | None = None

    @property
    def reuses_nothing(self) -> bool:
        """Whether every row of the prompt has to be computed, whatever the cache holds."""
        return self.scores_prompt or self.pooling == "mean"


class Generation:
    """The state of one request between steps."""

    def __init__(self, request: Request, sequence: CachedSequence, tokenizer: Tokenizer, n_ctx: int) -> None:
        """`sequence` may already hold a prefix of the prompt; n_ctx bounds prompt and answer together."""
        self.request = request
        self.sequence = sequence
        self.ids: list[int] = list(request.prompt)
        self.stopped: Stopped | None = None
        self.is_cancelled = False
        self.is_failed = False
        self.is_paused = False  # takes no part in steps; its reader is slow
        self.is_preempted = False  # lost its cache, and computes it again when there is room
        self.n_scored = 0 if request.scores_prompt else len(request.prompt)  # prompt tokens told of
        self.chain = SamplerChain(request.params, tokenizer)
        self._n_ctx = n_ctx
        self._tokenizer = tokenizer
        self._utf8 = Utf8Stream()
        self._stops = StopMatcher(request.params.stop_strings)
        self._draft: list[int] = []
        self._state_sum: list[float] = []
        self._n_states = 0
        self._n_drafted = 0
        self._n_accepted = 0
        self._decoding_since = 0.0

    @property
    def n_generated(self) -> int:
        """Ids drawn so far, the one that ended the generation included."""
        return len(self.ids) - len(self.request.prompt)

    @property
    def n_settled(self) -> int:
        """Positions of the cache that can be right: all known ids but the last, which was not fed yet."""
        return min(self.sequence.length, len(self.ids) - 1)

    @property
    def pending(self) -> list[int]:
        """Ids to feed next: those not in the cache yet, then the draft."""
        return self.ids[self.sequence.length :] + self._draft

    @property
    def n_wanted(self) -> int:
        """How many of the last pending rows need logits."""
        return 1 + len(self._draft)

    def drop_draft(self, keep: int = 0) -> None:
        """Forget the guess but for its first `keep` ids; nothing but time depends on it."""
        del self._draft[max(keep, 0) :]

    def n_logit_rows(self, n_rows: int) -> int:
        """How many of the next n_rows pending ids, counted from their end, need logits."""
        if self.request.pooling == "mean":
            return n_rows
        if self.n_scored < len(self.request.prompt):
            first = max(self.n_scored - 1, 0)  # the row that tells of the next prompt token to score
            return min(n_rows, max(0, self.sequence.length + n_rows - first))
        return self.n_wanted if n_rows == len(self.pending) else 0

    def queries(self, n_rows: int) -> list[HeadQuery]:
        """What each row needs of the head that n_logit_rows counted."""
        if self.request.pooling == "mean":
            return [HeadQuery(top=1)] * n_rows
        n_at_least = self.request.n_alternatives
        scored = self._scored_by(n_rows)
        queries = [HeadQuery(top=max(1, n_at_least), listed=((id_,),)) for id_ in scored]
        return queries + [
            self.chain.query(self.ids + self._draft[:n_drafted], n_at_least)
            for n_drafted in range(n_rows - len(scored))
        ]

    def embed(self, states: Sequence[Sequence[float]]) -> Iterator[Event]:
        """Take the states [features] of rows just computed; yields the vector and the end after the last."""
        n_known = self._n_states - (self.sequence.length - len(states))  # > 0 after a preemption
        for state in states[max(0, n_known) if self.request.pooling == "mean" else 0 :]:
            self._n_states += 1
            if self.request.pooling == "last" or not self._state_sum:
                self._state_sum = list(state)
            else:
                self._state_sum = [a + b for a, b in zip(self._state_sum, state, strict=True)]
        if self.sequence.length == len(self.ids):
            n_summed = self._n_states if self.request.pooling == "mean" else 1
            yield Embedded(tuple(value / n_summed for value in self._state_sum))
            yield self._stop(StopReason.LENGTH)

    def score(self, rows: Sequence[Candidates]) -> list[PromptToken]:
        """The prompt's tokens that the first of these rows tell of; the rows after them are to advance."""
        scored = self._scored_by(len(rows))
        told: list[PromptToken] = []
        if scored and not self.n_scored:
            told.append(PromptToken(self.request.prompt[0], None))
        for id_, candidates in zip(scored, rows, strict=False):
            told.append(PromptToken(id_, candidates.logprob(id_), self._alternatives(candidates)))
        self.n_scored += len(told)
        return told

    def _scored_by(self, n_rows: int) -> tuple[int, ...]:
        first = max(self.n_scored, 1)
        return self.request.prompt[first : first + n_rows]

    def advance(self, rows: Sequence[Candidates]) -> Iterator[Event]:
        """Draw one id for each row of candidates for as long as the draft was right; yields the events.

        `rows` are the candidates after the last known id and after each drafted one. The sequence may
        then hold rows of a wrong draft: all from `n_settled` on.
        """
        if self.request.params.n_predict == 0:
            yield self._stop(StopReason.LENGTH)
            return
        if not self._decoding_since:
            self._decoding_since = time.perf_counter()
        draft, self._draft = self._draft, []
        self._n_drafted += len(draft)
        for index, candidates in enumerate(rows):
            yield from self._draw(candidates)
            if self.stopped or index == len(draft) or self.ids[-1] != draft[index]:
                break
            self._n_accepted += 1
        if not self.stopped and self.request.drafter is not None:
            self._draft = self._fitting(self.request.drafter(self.ids))

    def cancel(self) -> Stopped:
        """End the generation now, keeping what was made."""
        return self.stopped or self._stop(StopReason.CANCELLED)

    def _fitting(self, draft: Sequence[int]) -> list[int]:
        params = self.request.params
        room = self._n_ctx - len(self.ids) - 1
        if params.n_predict >= 0:
            room = min(room, params.n_predict - self.n_generated - 1)
        return list(draft[: max(room, 0)])

    def _draw(self, candidates: Candidates) -> Iterator[Event]:
        draw = self.chain.sample(candidates, self.ids, len(self.ids), self.request.choice)
        self.ids.append(draw.id)
        if draw.id in self._tokenizer.end_of_generation:
            yield self._stop(StopReason.END_OF_GENERATION)
            return
        text, stop_string = self._stops.push(self._utf8.push(self._tokenizer.piece(draw.id)))
        yield Token(draw.id, text, draw.logprob, self._alternatives(candidates))
        params = self.request.params
        if stop_string is not None:
            yield self._stop(StopReason.STOP_STRING, stop_string)
        elif 0 <= params.n_predict <= self.n_generated:
            yield self._stop(StopReason.LENGTH)
        elif len(self.ids) >= self._n_ctx:
            yield self._stop(StopReason.CONTEXT)

    def _alternatives(self, candidates: Candidates) -> tuple[tuple[int, float], ...]:
        wanted = self.request.n_alternatives
        if not wanted:
            return ()
        row = candidates.row
        pairs = zip(candidates.ids, candidates.logits, strict=True) if row is None else enumerate(row)
        best = heapq.nsmallest(wanted, pairs, key=lambda pair: (-pair[1], pair[0]))
        return tuple((id_, float(logit) - candidates.log_sum_exp) for id_, logit in best)

    def _stop(self, reason: StopReason, stop_string: str = "") -> Stopped:
        held = ""
        if reason is not StopReason.STOP_STRING:
            text, hit = self._stops.push(self._utf8.finish())
            held = text + ("" if hit is not None else self._stops.finish())
        self.stopped = Stopped(
            reason,
            held,
            n_generated=self.n_generated,
            seconds=time.perf_counter() - (self._decoding_since or time.perf_counter()),
            stop_string=stop_string,
            n_drafted=self._n_drafted,
            n_accepted=self._n_accepted,
        )
        return self.stopped
