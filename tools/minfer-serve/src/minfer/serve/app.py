"""The application: every path and its route, in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from minfer.core.errors import MinferError
from minfer.serve.errors import (
    EngineFailedError,
    UnknownRouteError,
    WrongMethodError,
    error_body,
    error_headers,
)
from minfer.serve.gate import Gate
from minfer.serve.routes import chat, completions, documents, embeddings, facts, snapshots, tokens

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp

    from minfer.serve.state import ServerState

ROUTES = (
    Route("/v1/chat/completions", chat.chat_completions, methods=["POST"]),
    Route("/v1/completions", completions.completions, methods=["POST"]),
    Route("/v1/embeddings", embeddings.embeddings, methods=["POST"]),
    Route("/v1/models", facts.list_models),
    Route("/v1/models/{name:path}", facts.one_model),
    Route("/health", facts.health),
    Route("/v1/health", facts.health),
    Route("/metrics", facts.metrics),
    Route("/props", facts.props),
    Route("/slots", facts.slots),
    Route("/slots", snapshots.slots_action, methods=["POST"]),
    Route("/tokenize", tokens.tokenize, methods=["POST"]),
    Route("/detokenize", tokens.detokenize, methods=["POST"]),
    Route("/apply-template", chat.apply_template, methods=["POST"]),
    Route("/openapi.json", documents.openapi),
    Route("/docs", documents.docs),
    Route("/", documents.docs),
)


def create_app(state: ServerState) -> ASGIApp:
    """The ASGI application over a server's state."""
    app = Starlette(
        routes=list(ROUTES),
        exception_handlers={
            MinferError: _minfer_error,
            HTTPException: _http_error,
            Exception: _unexpected,
        },
    )
    app.state.server = state
    return Gate(app, state)


async def _minfer_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, MinferError):
        raise error
    return JSONResponse(error_body(error), error.http_status, error_headers(error))


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own: no such path, or not with that method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:200]
    known: MinferError = UnknownRouteError(f"there is nothing at {path!r}", hint="see /docs")
    if status == 405:
        known = WrongMethodError(f"{path!r} does not answer {request.method}", hint="see /docs")
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return JSONResponse(error_body(known), known.http_status, headers)


async def _unexpected(_: Request, error: Exception) -> Response:
    """A mistake of ours: the log has the traceback, the client has no details."""
    known = EngineFailedError(f"unexpected failure: {type(error).__name__}", hint="see the server's log")
    return JSONResponse(error_body(known), 500)
