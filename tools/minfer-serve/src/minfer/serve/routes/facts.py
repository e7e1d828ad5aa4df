"""GET routes that answer at once, from what is known between two steps: they never wait for the engine."""

from __future__ import annotations

import time
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from minfer.core.errors import MinferError
from minfer.engine.params import KNOBS
from minfer.serve.errors import EngineFailedError, LoadingError, ShuttingDownError, error_body, error_headers
from minfer.serve.routes.generating import check_model
from minfer.serve.routes.receiving import state_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from minfer.serve.state import Service


async def health(request: Request) -> Response:
    """200 `{"status": "ok"}`, or 503 while loading, draining or after a failure."""
    state = state_of(request)
    if state.status == "ok":
        return JSONResponse({"status": "ok"})
    errors: dict[str, MinferError] = {
        "draining": ShuttingDownError("the server is shutting down", retry_after=5),
        "loading": LoadingError("the model is being loaded", retry_after=2),
        "failed": EngineFailedError("the engine has failed", hint="see the server's log"),
    }
    error = errors[state.status]
    return JSONResponse({"status": state.status, **error_body(error)}, 503, error_headers(error))


async def list_models(request: Request) -> Response:
    """The one model, also while it is loading (then without facts)."""
    state = state_of(request)
    data = [_model(state.service)] if state.service else []
    return JSONResponse({"object": "list", "data": data})


async def one_model(request: Request) -> Response:
    """The model of that name."""
    service = state_of(request).ready()
    check_model(service, request.path_params["name"])
    return JSONResponse(_model(service))


async def metrics(request: Request) -> Response:
    """Prometheus exposition."""
    state = state_of(request)
    snapshot = state.service.engine.snapshot if state.service else None
    return Response(
        state.metrics.text(snapshot, state.settings.n_slots), headers={"content-type": CONTENT_TYPE_LATEST}
    )


async def props(request: Request) -> Response:
    """What this server is: defaults, sizes, template, build."""
    state = state_of(request)
    service = state.ready()
    template = service.template
    return JSONResponse(
        {
            "default_generation_settings": {
                "n_ctx": service.n_ctx,
                "params": {name: _plain(getattr(state.settings.params, name)) for name in KNOBS},
            },
            "total_slots": state.settings.n_slots,
            "model_alias": service.names[0],
            "model_path": service.facts["file"],
            "chat_template": template.source if template else "",
            "modalities": {"vision": False, "audio": False},
            "build_info": f"minfer-serve {version('minfer-serve')}",
            "backend": service.model.backend_name,
            "system_fingerprint": service.fingerprint,
            "embeddings": {"pooling": state.settings.pooling, "normalized": True},
            **service.facts,
        }
    )


async def slots(request: Request) -> Response:
    """What each slot is doing, counts only."""
    state = state_of(request)
    service = state.ready()
    snapshot = service.engine.snapshot
    rows: list[dict[str, Any]] = [
        {
            "id": index,
            "is_processing": True,
            "request_id": slot.job,
            "choice": slot.choice,
            "n_ctx": service.n_ctx,
            "n_prompt_tokens": slot.n_prompt,
            "n_cached": slot.n_cached,
            "n_decoded": slot.n_generated,
            "is_paused": slot.is_paused,
        }
        for index, slot in enumerate(snapshot.slots)
    ]
    rows += [
        {"id": index, "is_processing": False, "n_ctx": service.n_ctx}
        for index in range(len(rows), state.settings.n_slots)
    ]
    return JSONResponse(rows)


def _model(service: Service) -> dict[str, Any]:
    return {
        "id": service.names[0],
        "object": "model",
        "created": service.created,
        "owned_by": "minfer",
        "aliases": list(service.names[1:]),
        "meta": {**service.facts, "n_ctx": service.n_ctx, "served_since": int(time.time()) - service.created},
    }


def _plain(value: object) -> object:
    """A parameter as JSON: tuples are lists, and a ban is `false`."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return False if isinstance(value, float) and value == float("-inf") else value
