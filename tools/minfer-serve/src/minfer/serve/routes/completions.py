"""POST /v1/completions: raw text or token ids, continued."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from minfer.serve.errors import RequestError, UnsupportedFieldError
from minfer.serve.routes.fitting import check_could_fit
from minfer.serve.routes.generating import (
    EventStream,
    Exchange,
    Wish,
    check_model,
    heading_for,
    in_tokenizer,
    new_job,
    settled,
    whole_answer,
)
from minfer.serve.routes.receiving import read_body, state_of
from minfer.serve.wire.body import read_sampling
from minfer.serve.wire.replies import CompletionReply
from minfer.serve.wire.requests import MOST_PROMPTS, CompletionBody

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from minfer.serve.state import Service

Prompt = str | list[int]


async def completions(request: Request) -> Response:
    """Continue each prompt."""
    state = state_of(request)
    body = await read_body(request, CompletionBody)
    service = state.ready()
    check_model(service, body.model)
    n = body.n or 1
    if body.best_of is not None and body.best_of != n:
        raise UnsupportedFieldError("best_of beyond n is not supported", param="best_of")
    sampling = read_sampling(body, state.settings.params, is_strict=state.settings.is_strict)
    params = settled(sampling.params, service, body)
    given = prompts_of(body.prompt)
    if len(given) * n > MOST_PROMPTS:
        raise RequestError(f"at most {MOST_PROMPTS} answers at once, got {len(given) * n}", param="n")
    prompts = await encode_prompts(service, given)
    has_logprobs = body.logprobs is not None
    echoes = [""] * len(given) * n
    if body.echo:
        echoes = [echo for ids in prompts for echo in [_echo(service, ids)] * n]
    scores = has_logprobs and bool(body.echo)
    wish = Wish(prompts, params, n, body.logprobs or 0, has_logprobs, scores)
    heading = heading_for(service, sampling, params.seed)
    exchange = Exchange(state, service, new_job(request, service, wish, body), wish, heading)
    reply = CompletionReply(heading, service.model.tokenizer, echoes, has_logprobs=has_logprobs)
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return EventStream(exchange, reply, include_usage=include_usage)
    return await whole_answer(exchange, reply, request.receive)


def prompts_of(given: str | list[int] | list[str] | list[list[int]]) -> list[Prompt]:
    """A list of prompts out of any of the four shapes."""
    if isinstance(given, str):
        return [given]
    if isinstance(given[0], int):
        return [[id_ for id_ in given if isinstance(id_, int)]]
    return [one for one in given if isinstance(one, str | list)]


async def encode_prompts(
    service: Service, given: list[Prompt], param: str = "prompt"
) -> tuple[tuple[int, ...], ...]:
    """Token ids of every prompt. Raises RequestError for an id the model does not have, or an empty one."""
    encoded = []
    for prompt in given:
        encoded.append(await in_tokenizer(service, partial(_ids, service, prompt, param)))
    return tuple(encoded)


def _ids(service: Service, prompt: Prompt, param: str) -> tuple[int, ...]:
    tokenizer = service.model.tokenizer
    if isinstance(prompt, list):
        largest = max(prompt)
        if largest >= tokenizer.n_vocab:
            raise RequestError(f"token {largest} is outside a vocabulary of {tokenizer.n_vocab}", param=param)
        return tuple(prompt)
    check_could_fit(service, len(prompt.encode()))
    ids = tokenizer.encode(prompt, add_special=True, parse_special=False)
    if not ids:
        raise RequestError("the text is empty, and this model has no token to begin with", param=param)
    return tuple(ids)


def _echo(service: Service, ids: tuple[int, ...]) -> str:
    """The prompt as its tokens spell it, so that offsets of tokens fit the text."""
    tokenizer = service.model.tokenizer
    return "".join(tokenizer.piece(id_, special=True).decode("utf-8", "replace") for id_ in ids)
