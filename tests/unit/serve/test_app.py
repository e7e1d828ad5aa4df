"""The application without a model: loading, draining, and answers that never wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import httpx
import pytest

from minfer.engine.params import GenerationParams
from minfer.serve.app import create_app
from minfer.serve.log import Log
from minfer.serve.process import OpenToOthersError, serve
from minfer.serve.settings import ServeSettings
from minfer.serve.state import ServerState

SETTINGS = ServeSettings(reference="none", params=GenerationParams(), log_format="none")
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def _ask(method: str, path: str, *, is_draining: bool = False, **more: object) -> httpx.Response:
    async def run() -> httpx.Response:
        state = ServerState(SETTINGS, Log("none"))
        state.is_draining = is_draining
        transport = httpx.ASGITransport(app=create_app(state))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **more)  # type: ignore[arg-type]

    return asyncio.run(run())


@pytest.mark.parametrize(("is_draining", "code"), [(False, "model_loading"), (True, "shutting_down")])
def test_not_ready(is_draining: bool, code: str) -> None:
    health = _ask("GET", "/health", is_draining=is_draining)
    assert health.status_code == 503
    assert health.json()["status"] == ("draining" if is_draining else "loading")
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize"):
        body = {**CHAT, "prompt": "a", "input": "a", "content": "a"}
        refused = _ask("POST", path, is_draining=is_draining, json=body)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == code
        assert int(refused.headers["retry-after"]) > 0


def test_what_answers_while_loading() -> None:
    assert _ask("GET", "/v1/models").json() == {"object": "list", "data": []}
    assert b"minfer_requests_total" in _ask("GET", "/metrics").content
    assert _ask("GET", "/openapi.json").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.7.7"])
def test_other_machines_need_a_key(host: str) -> None:
    with pytest.raises(OpenToOthersError):
        serve(replace(SETTINGS, host=host))
