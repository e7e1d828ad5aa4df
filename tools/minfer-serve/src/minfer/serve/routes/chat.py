"""POST /v1/chat/completions, and /apply-template, which shows the prompt it would use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from minfer.core.errors import TemplateError
from minfer.engine.chat import Segment, encode_segments, text_of
from minfer.serve.errors import RequestError
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
from minfer.serve.routes.tokens import warnings_for
from minfer.serve.wire.body import read_sampling
from minfer.serve.wire.replies import ChatReply
from minfer.serve.wire.requests import ApplyTemplateBody, ChatBody

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from minfer.serve.state import Service


class NoTemplateError(TemplateError):
    """Chat was asked of a model without a chat template."""

    code = "no-chat-template-served"


async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    state = state_of(request)
    body = await read_body(request, ChatBody)
    service = state.ready()
    check_model(service, body.model)
    if body.top_logprobs and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    sampling = read_sampling(body, state.settings.params, is_strict=state.settings.is_strict)
    params = settled(sampling.params, service, body)
    prompt = await _encode(service, body)
    has_logprobs = bool(body.logprobs)
    wish = Wish((prompt,), params, body.n or 1, body.top_logprobs or 0, has_logprobs)
    heading = heading_for(service, sampling, params.seed)
    exchange = Exchange(state, service, new_job(request, service, wish, body), wish, heading)
    reply = ChatReply(heading, service.model.tokenizer, has_logprobs=has_logprobs)
    if body.stream:
        include_usage = bool(body.stream_options and body.stream_options.include_usage)
        return EventStream(exchange, reply, include_usage=include_usage)
    return await whole_answer(exchange, reply, request.receive)


async def apply_template(request: Request) -> Response:
    """The text of the prompt that a conversation becomes."""
    service = state_of(request).ready()
    body = await read_body(request, ApplyTemplateBody)
    more = warnings_for(request, body)
    segments = await asyncio.to_thread(
        _render, service, body, add_generation_prompt=body.add_generation_prompt is not False
    )
    return JSONResponse({"prompt": text_of(segments)} | more)


async def _encode(service: Service, body: ChatBody) -> tuple[int, ...]:
    segments = await asyncio.to_thread(_render, service, body)

    def encode() -> tuple[int, ...]:
        check_could_fit(service, sum(len(segment.text.encode()) for segment in segments))
        return tuple(encode_segments(segments, service.model.tokenizer))

    return await in_tokenizer(service, encode)


def _render(
    service: Service, body: ChatBody | ApplyTemplateBody, *, add_generation_prompt: bool = True
) -> tuple[Segment, ...]:
    if service.template is None:
        raise NoTemplateError(
            "this model has no chat template",
            hint="use /v1/completions, or start the server with --chat-template NAME",
        )
    variables = body.chat_template_kwargs or {}
    _check_variables(variables, service.template.variables)
    return service.template.render(
        [message.plain() for message in body.messages],
        add_generation_prompt=add_generation_prompt,
        extra=variables,
    )


def _check_variables(variables: Mapping[str, Any], known: frozenset[str]) -> None:
    unknown = sorted(variables.keys() - known)
    if unknown:
        raise RequestError(
            f"the chat template has no variable {unknown[0][:80]!r}",
            param="chat_template_kwargs",
            hint=f"it reads: {', '.join(sorted(known))}",
        )
