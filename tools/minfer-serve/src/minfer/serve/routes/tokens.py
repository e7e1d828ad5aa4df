"""POST /tokenize and /detokenize. All of the work is on the tokenizer's thread: texts may be megabytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from minfer.serve.errors import RequestError
from minfer.serve.routes.generating import in_tokenizer
from minfer.serve.routes.receiving import read_body, state_of
from minfer.serve.wire.body import Body, unknown_fields
from minfer.serve.wire.requests import DetokenizeBody, TokenizeBody

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from minfer.engine.tokenizer import Tokenizer


async def tokenize(request: Request) -> Response:
    """The token ids of a text, with their pieces if asked for."""
    service = state_of(request).ready()
    body = await read_body(request, TokenizeBody)
    more = warnings_for(request, body)
    tokenizer = service.model.tokenizer

    def answer() -> Response:
        ids = tokenizer.encode(
            body.content, add_special=bool(body.add_special), parse_special=body.parse_special is not False
        )
        if body.with_pieces:
            return JSONResponse(
                {"tokens": [{"id": id_, "piece": _piece(tokenizer, id_)} for id_ in ids]} | more
            )
        return JSONResponse({"tokens": list(ids)} | more)

    return await in_tokenizer(service, answer)


async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    service = state_of(request).ready()
    body = await read_body(request, DetokenizeBody)
    more = warnings_for(request, body)
    tokenizer = service.model.tokenizer
    if body.tokens and max(body.tokens) >= tokenizer.n_vocab:
        raise RequestError(
            f"token {max(body.tokens)} is outside a vocabulary of {tokenizer.n_vocab}", param="tokens"
        )
    return await in_tokenizer(
        service, lambda: JSONResponse({"content": tokenizer.decode(body.tokens, special=True)} | more)
    )


def warnings_for(request: Request, body: Body) -> dict[str, Any]:
    """What an answer says of fields that it ignored. Raises UnknownFieldError when strict."""
    told = unknown_fields(body, is_strict=state_of(request).settings.is_strict)
    return {"warnings": list(told)} if told else {}


def _piece(tokenizer: Tokenizer, id_: int) -> str | list[int]:
    """A piece as text, or its bytes when it is no whole characters."""
    data = tokenizer.piece(id_, special=True)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
