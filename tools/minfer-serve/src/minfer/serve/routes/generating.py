"""From a request to a job, and from its events to an answer, streamed or whole."""

from __future__ import annotations

import asyncio
import json
import math
import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from minfer.core.errors import MinferError
from minfer.engine.events import PromptToken
from minfer.engine.generation import Request as Generate
from minfer.engine.params import with_seed
from minfer.serve.errors import ContextLengthError, DeadlineError, RequestError, WrongModelError, error_body
from minfer.serve.routes.receiving import state_of
from minfer.serve.scheduling.jobs import Item, Job
from minfer.serve.wire.replies import CompletionReply, Heading, Json, Reply, extras, usage_of
from minfer.serve.wire.transcript import Delta, Transcript

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from minfer.engine.params import GenerationParams
    from minfer.serve.state import ServerState, Service
    from minfer.serve.wire.body import GenerationBody, Sampling

_DONE: Final = b"data: [DONE]\n\n"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request wants of the engine. n: choices for each prompt; n_alternatives of each token."""

    prompts: tuple[tuple[int, ...], ...]
    params: GenerationParams
    n: int
    n_alternatives: int
    keeps_tokens: bool
    scores_prompt: bool = False


def check_model(service: Service, name: str | None) -> None:
    """Raises WrongModelError for a model that is not here."""
    if name and name not in service.names:
        raise WrongModelError(
            f"the model {name[:200]!r} is not served here",
            hint=f"this server has {service.names[0]!r}; name it so, or start it with --alias NAME",
        )


def settled(params: GenerationParams, service: Service, body: GenerationBody) -> GenerationParams:
    """The parameters with a seed that can be told, and with the ends banned if the request ignores them."""
    if body.ignore_eos:
        bans = tuple((id_, -math.inf) for id_ in sorted(service.model.tokenizer.end_of_generation))
        params = replace(params, logit_bias=params.logit_bias + bans)
    return with_seed(params)


def new_job(request: Request, service: Service, wish: Wish, body: GenerationBody) -> Job:
    """The job of a request. Raises ContextLengthError, RequestError."""
    for prompt in wish.prompts:
        if len(prompt) >= service.n_ctx:
            raise ContextLengthError(len(prompt), service.n_ctx)
    n_vocab = service.model.tokenizer.n_vocab
    for id_, _ in wish.params.logit_bias:
        if id_ >= n_vocab:
            raise RequestError(f"token {id_} is outside a vocabulary of {n_vocab}", param="logit_bias")
    requests = [
        Generate(prompt, wish.params, choice, wish.n_alternatives, wish.scores_prompt)
        for prompt in wish.prompts
        for choice in range(wish.n)
    ]
    state = state_of(request)
    deadline = deadline_in(state, body.timeout)
    job = Job(request.state.request_id, request.state.owner, requests, deadline)
    job.use_prefix_cache = state.settings.use_prefix_cache and body.cache_prompt is not False
    return job


def deadline_in(state: ServerState, timeout: float | None) -> float:
    """The perf_counter at which a request that begins now is over, 0 for never."""
    seconds = min(filter(None, (timeout, state.settings.request_timeout)), default=0.0)
    return time.perf_counter() + seconds if seconds else 0.0


def heading_for(service: Service, sampling: Sampling, seed: int) -> Heading:
    """The heading of a new answer."""
    return Heading(uuid.uuid4().hex, service.names[0], service.fingerprint, seed, sampling.warnings)


class Exchange:
    """One job and the reply that is made of it."""

    def __init__(self, state: ServerState, service: Service, job: Job, wish: Wish, heading: Heading) -> None:
        self.state = state
        self.service = service
        self.job = job
        self.wish = wish
        self.heading = heading
        self.transcripts = [
            Transcript(service.model.tokenizer, job.submitted, keeps_tokens=wish.keeps_tokens)
            for _ in job.choices
        ]

    @property
    def is_over(self) -> bool:
        """Whether every choice has ended, or nobody wants them any more."""
        return self.job.is_cancelled or all(one.is_over for one in self.transcripts)

    def submit(self) -> None:
        """Hand the job to the engine. Raises QueueFullError, ShuttingDownError."""
        self.service.engine.submit(self.job)

    def take(self, item: Item) -> tuple[int, Delta]:
        """Note an event; raises the error that ended its choice."""
        transcript = self.transcripts[item.index]
        delta = transcript.take(item)
        if transcript.is_over:
            self._count(transcript)
        if transcript.error is not None:
            raise transcript.error
        return item.index, delta

    def check_late(self) -> None:
        """Raises DeadlineError when the time was over before anything was made."""
        if self.job.is_late and not any(one.n_generated for one in self.transcripts):
            raise DeadlineError(
                "the request's time was over before the first token", hint="allow it a longer timeout"
            )

    def usage(self) -> Json:
        """Token counts."""
        return usage_of(self.transcripts, [len(prompt) for prompt in self.wish.prompts])

    def _count(self, one: Transcript) -> None:
        metrics = self.state.metrics
        reason = one.stopped.reason.value if one.stopped else "error"
        metrics.finished.labels(reason).inc()
        metrics.generated_tokens.inc(one.n_generated)
        if one.prefilled:
            metrics.prompt_tokens.inc(one.prefilled.n_prompt)
            metrics.cached_tokens.inc(one.prefilled.n_reused)
        if one.started:
            metrics.queue.observe(one.started - one.submitted)
        if one.first_token:
            metrics.ttft.observe(one.first_token - one.submitted)
        for gap in one.gaps:
            metrics.gaps.observe(gap)
        metrics.duration.observe(one.ended - one.submitted)

    @asynccontextmanager
    async def watched(self, receive: Receive) -> AsyncIterator[None]:
        """Within it, a client that goes away cancels the job; leaving it early cancels too."""

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            self._cancel()

        watching = asyncio.create_task(watch())
        try:
            yield
        finally:
            watching.cancel()
            if not self.is_over:
                self._cancel()

    def _cancel(self) -> None:
        """Nobody reads on. What waits in the queue brings no event: whoever waits for one is woken."""
        self.service.engine.cancel(self.job)
        self.job.mailbox.wake()
        n_left = sum(not one.is_over for one in self.transcripts)
        self.state.metrics.finished.labels("cancelled").inc(n_left)


async def whole_answer(exchange: Exchange, reply: Reply, receive: Receive) -> Response:
    """Wait for all choices; the answer in one piece."""
    exchange.submit()
    async with exchange.watched(receive):
        while not exchange.is_over:
            for item in await exchange.job.mailbox.get(60.0):
                exchange.take(item)
        exchange.check_late()
    if exchange.job.is_cancelled:
        return Response(status_code=499)  # nobody reads it; the access log does
    answer = reply.whole(exchange.transcripts, exchange.usage())
    more = extras(exchange.heading, exchange.transcripts)
    timings = more["timings"]
    headers = {
        "server-timing": f"queue;dur={timings['queue_ms']}, prompt;dur={timings['prompt_ms']}, "
        f"predicted;dur={timings['predicted_ms']}"
    }
    return JSONResponse(answer | more, headers=headers)


class EventStream(Response):
    """Server-sent events: headers at once, comments while there is nothing to say, `[DONE]` at the end."""

    def __init__(self, exchange: Exchange, reply: Reply, *, include_usage: bool) -> None:
        """The job is submitted here, so that a full queue is still a proper answer."""
        super().__init__(media_type="text/event-stream")
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"
        del self.headers["content-length"]
        self._exchange = exchange
        self._reply = reply
        self._include_usage = include_usage
        exchange.submit()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; a reader that takes nothing for too long is given up."""
        stall = self._exchange.state.settings.stall_timeout
        async with self._exchange.watched(receive):
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            async for data in self._events():
                try:
                    async with asyncio.timeout(stall):
                        await send({"type": "http.response.body", "body": data, "more_body": True})
                except TimeoutError:
                    return
            await send({"type": "http.response.body", "body": b""})

    async def _events(self) -> AsyncIterator[bytes]:
        openings = map(self._reply.opening, range(len(self._exchange.transcripts)))
        yield b"".join(_event(one) for one in openings if one is not None) or b": accepted\n\n"
        try:
            while not self._exchange.is_over:
                items = await self._exchange.job.mailbox.get(self._exchange.state.settings.ping_interval)
                data = b"".join(self._chunks(items)) if items else self._ping()
                if data:
                    yield data
            self._exchange.check_late()
        except MinferError as error:
            yield _event(error_body(error))  # and no [DONE]: it would look like success
            return
        if not self._exchange.job.is_cancelled:
            yield self._end()

    def _chunks(self, items: Sequence[Item]) -> list[bytes]:
        """One chunk for each event that shows something; what arrived together goes out together."""
        chunks: list[Json] = []
        for item in items:
            index, delta = self._exchange.take(item)
            if isinstance(self._reply, CompletionReply) and self._is_scored(item):
                scored = self._exchange.transcripts[index].prompt_tokens
                chunks.append(self._reply.echo_chunk(index, scored))
            if delta.finish and (delta.text or delta.tokens):
                chunks.append(self._reply.chunk(index, Delta(delta.text, delta.tokens)))
                delta = Delta(finish=delta.finish)
            if delta:
                chunks.append(self._reply.chunk(index, delta))
        if self._exchange.is_over and chunks and not self._exchange.job.is_late:
            chunks[-1] |= extras(self._exchange.heading, self._exchange.transcripts)
        return [_event(chunk) for chunk in chunks]

    def _is_scored(self, item: Item) -> bool:
        if not isinstance(item.event, PromptToken):
            return False
        one = self._exchange.transcripts[item.index]
        return len(one.prompt_tokens) == len(self._exchange.job.choices[item.index].request.prompt)

    def _ping(self) -> bytes:
        """A comment: it keeps connections open, and says where the request stands."""
        first = self._exchange.transcripts[0]
        if not first.started:
            return b": queued\n\n"
        return b": prefilling\n\n" if first.prefilled is None else b": working\n\n"

    def _end(self) -> bytes:
        if not self._include_usage:
            return _DONE
        return _event(self._reply.usage_chunk(self._exchange.usage())) + _DONE


def _event(data: Json) -> bytes:
    return b"data: " + _json(data) + b"\n\n"


def _json(data: Json) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


async def in_tokenizer(service: Service, work: Callable[[], T]) -> T:
    """Run what uses the tokenizer on its own thread."""
    return await asyncio.get_running_loop().run_in_executor(service.tokenizing, work)
