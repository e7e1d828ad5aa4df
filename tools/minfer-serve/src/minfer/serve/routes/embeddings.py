"""POST /v1/embeddings: one vector for each text, from any causal model."""

from __future__ import annotations

import base64
import math
import sys
from array import array
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from minfer.core.errors import MinferError
from minfer.engine.events import Embedded
from minfer.engine.generation import Request as Generate
from minfer.engine.params import GenerationParams
from minfer.serve.errors import ContextLengthError, RequestError, UnsupportedFieldError
from minfer.serve.routes.completions import encode_prompts, prompts_of
from minfer.serve.routes.generating import Exchange, Wish, check_model, deadline_in
from minfer.serve.routes.receiving import read_body, state_of
from minfer.serve.scheduling.jobs import Job
from minfer.serve.wire.body import unknown_fields
from minfer.serve.wire.replies import Heading
from minfer.serve.wire.requests import EmbeddingsBody

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from minfer.serve.state import ServerState, Service

_PARAMS = GenerationParams(n_predict=0, seed=0)


async def embeddings(request: Request) -> Response:
    """Pool, normalize and encode."""
    state = state_of(request)
    body = await read_body(request, EmbeddingsBody)
    service = state.ready()
    check_model(service, body.model)
    warnings = unknown_fields(body, is_strict=state.settings.is_strict)
    _check_dimensions(body.dimensions, service)
    prompts = await encode_prompts(service, prompts_of(body.input), param="input")
    vectors = await _compute(request, state, service, prompts)
    n_tokens = sum(map(len, prompts))
    answer: dict[str, Any] = {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": _encoded(vector, body.encoding_format)}
            for index, vector in enumerate(vectors)
        ],
        "model": service.names[0],
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
        "pooling": state.settings.pooling,
    }
    if warnings:
        answer["warnings"] = list(warnings)
    return JSONResponse(answer)


async def _compute(
    request: Request, state: ServerState, service: Service, prompts: tuple[tuple[int, ...], ...]
) -> list[list[float]]:
    for prompt in prompts:
        if len(prompt) >= service.n_ctx:
            raise ContextLengthError(len(prompt), service.n_ctx)
    wanted = [Generate(prompt, _PARAMS, pooling=state.settings.pooling) for prompt in dict.fromkeys(prompts)]
    job = Job(request.state.request_id, request.state.owner, wanted, deadline_in(state, None))
    job.use_prefix_cache = state.settings.use_prefix_cache
    wish = Wish(tuple(one.prompt for one in wanted), _PARAMS, 1, 0, keeps_tokens=False)
    exchange = Exchange(
        state, service, job, wish, Heading(job.name, service.names[0], service.fingerprint, 0)
    )
    found: dict[tuple[int, ...], list[float]] = {}
    exchange.submit()
    async with exchange.watched(request.receive):
        while not exchange.is_over:
            for item in await job.mailbox.get(60.0):
                exchange.take(item)
                if isinstance(item.event, Embedded):
                    found[wanted[item.index].prompt] = _normalized(item.event.vector)
    if any(prompt not in found for prompt in prompts):
        exchange.check_late()
        raise CancelledByClientError("the client went away")
    return [found[prompt] for prompt in prompts]


class CancelledByClientError(MinferError):
    """Nobody will read the answer."""

    code, http_status = "client-closed-request", 499


def _check_dimensions(wanted: int | None, service: Service) -> None:
    width = service.facts["n_embd"]
    if wanted is not None and wanted != width:
        raise UnsupportedFieldError(f"this model's vectors have {width} dimensions", param="dimensions")


def _normalized(vector: tuple[float, ...]) -> list[float]:
    """Of length 1. Raises RequestError for states that have no direction."""
    norm = math.sqrt(math.fsum(value * value for value in vector))
    if not (norm > 0 and math.isfinite(norm)):
        raise RequestError("the model gives this input no usable vector", param="input")
    return [value / norm for value in vector]


def _encoded(vector: list[float], encoding: str | None) -> list[float] | str:
    """Numbers, or little-endian float32 in base64."""
    if encoding != "base64":
        return vector
    data = array("f", vector)
    if sys.byteorder == "big":
        data.byteswap()
    return base64.b64encode(data.tobytes()).decode()
