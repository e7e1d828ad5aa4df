"""POST /slots?action=save|restore: the prefix cache to and from the file of --slots-file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from minfer.core.errors import MinferError
from minfer.serve import slots_file
from minfer.serve.errors import RequestError, UnsupportedFieldError
from minfer.serve.routes.receiving import state_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from minfer.engine.kv_cache import KVCache

_ACTIONS = {"save": slots_file.save, "restore": slots_file.restore}


async def slots_action(request: Request) -> Response:
    """Save or restore, between two steps of the engine; running answers wait meanwhile."""
    state = state_of(request)
    service = state.ready()
    path = state.settings.slots_file
    action = request.query_params.get("action", "")
    if action not in _ACTIONS:
        raise RequestError(f"there is no action {action[:40]!r}", param="action", hint="use save or restore")
    if path is None:
        raise UnsupportedFieldError("this server has no slots file", hint="start it with --slots-file FILE")
    run = _ACTIONS[action]
    n_blocks = await _between_steps(
        service.engine.run_errand, lambda cache: run(cache, path, service.fingerprint)
    )
    return JSONResponse({"action": action, "n_blocks": n_blocks, "n_tokens": 16 * n_blocks})


async def _between_steps(
    hand_over: Callable[[Callable[[KVCache], None]], None], work: Callable[[KVCache], int]
) -> int:
    """Have work done on the engine's thread; its result or its error."""
    events = asyncio.get_running_loop()
    outcome: asyncio.Future[int] = events.create_future()

    def settle(result: int | MinferError) -> None:
        if outcome.done():
            return
        if isinstance(result, MinferError):
            outcome.set_exception(result)
        else:
            outcome.set_result(result)

    def errand(cache: KVCache) -> None:
        try:
            result: int | MinferError = work(cache)
        except MinferError as error:
            result = error
        events.call_soon_threadsafe(settle, result)

    hand_over(errand)
    return await outcome
