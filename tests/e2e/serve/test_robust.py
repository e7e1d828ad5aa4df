"""Busy, rude, slow and departing clients; the server's beginning and end. A tiny model, real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from minfer.engine.testing import END, IM_END, TinyModel
from serving import Server, serving, write_tiny

# The model never ends by itself, so an answer lasts as long as it is allowed to.
ENDLESS = {"logit_bias": {str(END): False, str(IM_END): False}, "temperature": 1.0, "seed": 5}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = TinyModel("llama", n_layers=4, width=256, feed_forward=512, n_context=8192)
    return write_tiny(tmp_path_factory.mktemp("model"), tiny)


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving(
        model, "--n-slots", "1", "--max-queue", "1", "--n-ctx", "0", "--ping-interval", "0.1"
    ) as running:
        yield running


def _wait(condition: Any, timeout: float = 10.0) -> None:  # noqa: ANN401 - any callable
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def _gauge(client: httpx.Client, name: str) -> float:
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(name)


def _is_idle(client: httpx.Client) -> bool:
    running, waiting = _gauge(client, "minfer_requests_running"), _gauge(client, "minfer_requests_waiting")
    return running == 0 and waiting == 0


def _data(lines: Iterator[str]) -> Generator[Json]:
    for line in lines:
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _begin(answer: httpx.Response) -> Generator[Json]:
    """The chunks after the first one. Keep it: httpx closes the answer when nobody holds its lines."""
    chunks = _data(answer.iter_lines())
    next(chunks)
    return chunks


def _ask(client: httpx.Client, max_tokens: int = 8, **more: object) -> httpx.Response:
    return client.post("/v1/completions", json={"prompt": "Hi", "max_tokens": max_tokens, **ENDLESS, **more})


def test_full_queue_and_health_meanwhile(server: Server) -> None:
    with server.client() as client, server.client() as second:
        answers: list[httpx.Response] = []
        body = {"prompt": "Hi", "max_tokens": 3000, "stream": True, **ENDLESS}
        with client.stream("POST", "/v1/completions", json=body) as running:
            chunks = _begin(running)
            waiting = threading.Thread(target=lambda: answers.append(_ask(second)))
            waiting.start()
            with server.client() as third:
                _wait(lambda: _gauge(third, "minfer_requests_waiting") == 1)
                refused = _ask(third)
                assert refused.status_code == 429
                assert int(refused.headers["retry-after"]) >= 1
                assert refused.json()["error"]["code"] == "queue_full"
                streamed = _ask(third, stream=True)
                assert streamed.status_code == 429
                for path in ("/health", "/slots", "/v1/models", "/props", "/metrics"):
                    began = time.monotonic()
                    assert third.get(path).status_code == 200
                    assert time.monotonic() - began < 1.0
                (slot,) = third.get("/slots").json()
                assert slot["is_processing"]
            chunks.close()
        waiting.join(20)
        assert answers[0].status_code == 200  # the one that waited got its turn


def test_a_waiting_stream_gets_headers_and_pings_at_once(server: Server) -> None:
    with server.client() as client, server.client() as second:
        body = {"prompt": "Hi", "max_tokens": 6000, "stream": True, **ENDLESS}
        with client.stream("POST", "/v1/completions", json=body) as running:
            chunks = _begin(running)
            with second.stream("POST", "/v1/completions", json=body | {"max_tokens": 2}) as waiting:
                assert waiting.status_code == 200
                assert waiting.headers["content-type"].startswith("text/event-stream")
                assert waiting.headers["cache-control"] == "no-cache"
                assert waiting.headers["x-accel-buffering"] == "no"
                lines = waiting.iter_lines()
                comments = [line for line in (next(lines) for _ in range(6)) if line.startswith(":")]
                assert ": queued" in comments
            chunks.close()


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(server: Server, is_streamed: bool) -> None:
    body = {"prompt": "Hi", "max_tokens": -1, "stream": is_streamed, **ENDLESS}
    with server.client() as client:
        _wait(lambda: _is_idle(client))
        with server.client(timeout=0.4) as leaving:
            if is_streamed:
                with leaving.stream("POST", "/v1/completions", json=body) as answer:
                    chunks = _begin(answer)
                    assert _gauge(client, "minfer_requests_running") == 1
                    chunks.close()
            else:
                with pytest.raises(httpx.ReadTimeout):
                    leaving.post("/v1/completions", json=body)
        _wait(lambda: _is_idle(client), timeout=3.0)


def test_a_client_that_leaves_the_queue_or_the_prefill(server: Server) -> None:
    body = {"prompt": "Hi" * 2000, "max_tokens": 100, "cache_prompt": False, **ENDLESS}
    with server.client() as client:
        for _ in range(3):
            with server.client(timeout=0.05) as leaving, pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/completions", json=body)
        _wait(lambda: _is_idle(client), timeout=3.0)
        assert _ask(client).status_code == 200


def test_a_slow_reader_pauses_only_itself(model: Path) -> None:
    body = {"prompt": "Hi", "max_tokens": 1500, "logprobs": 20, **ENDLESS}
    with serving(model, "--n-slots", "2", "--n-ctx", "0") as server, server.client() as client:
        whole = client.post("/v1/completions", json=body).json()["choices"][0]["text"]
        with closing(_slow_request(server, body | {"stream": True})) as slow:
            _wait(lambda: any(slot.get("is_paused") for slot in client.get("/slots").json()), timeout=30)
            n_before = _slot_count(client)
            began = time.monotonic()
            assert _ask(client, 200).status_code == 200
            assert time.monotonic() - began < 10
            assert _slot_count(client) == n_before  # it rests
            text = "".join(choice["text"] for chunk in _data(_lines(slow)) for choice in chunk["choices"])
        assert text == whole


def test_slow_readers_that_leave_give_everything_back(model: Path) -> None:
    body = {"prompt": "Hi", "max_tokens": 3000, "logprobs": 20, "stream": True, **ENDLESS}
    with serving(model, "--n-slots", "4", "--n-ctx", "0") as server, server.client() as client:
        whole = _ask(client, 100).json()["choices"]
        for is_reset in (False, True):  # goodbye, or gone
            slow = [_slow_request(server, body) for _ in range(3)]
            _wait(lambda: sum(slot.get("is_paused", False) for slot in client.get("/slots").json()) == 3, 60)
            assert _gauge(client, "minfer_kv_cache_usage_ratio") > 0
            for one in slow:
                if is_reset:
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.close()
            assert _ask(client, 100).json()["choices"] == whole
            _wait(lambda: _is_idle(client))
            assert _gauge(client, "minfer_kv_cache_usage_ratio") == 0


def _slot_count(client: httpx.Client) -> int:
    (paused,) = [slot for slot in client.get("/slots").json() if slot.get("is_paused")]
    return int(paused["n_decoded"])


def _slow_request(server: Server, body: Json) -> socket.socket:
    """A request on a socket that takes little until it is read."""
    url = httpx.URL(server.url)
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    slow.connect((url.host, url.port))
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    slow.sendall(f"{head}connection: close\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data)
    return slow


def _lines(slow: socket.socket) -> Iterator[str]:
    """Lines of a chunked answer whose chunks are whole events."""
    with slow.makefile("rb") as stream:
        for line in stream:
            yield line.decode().rstrip()


def test_a_deadline_ends_an_answer_with_what_there_is(server: Server) -> None:
    with server.client() as client:
        answer = _ask(client, -1, timeout=0.3).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert 0 < answer["usage"]["completion_tokens"] < 8000
        body = {"prompt": "Hi", "max_tokens": 6000, "stream": True, **ENDLESS}
        with server.client() as busy, busy.stream("POST", "/v1/completions", json=body) as running:
            chunks = _begin(running)
            late = _ask(client, timeout=0.1)
            assert late.status_code == 408
            assert late.headers["x-should-retry"] == "false"
            assert late.json()["error"]["code"] == "deadline_exceeded"
            chunks.close()


def test_keys_take_turns(model: Path) -> None:
    flags = ("--n-slots", "1", "--api-key", "a", "--api-key", "b", "--n-ctx", "0")
    with serving(model, *flags) as server:
        finished: list[str] = []

        async def ask(client: httpx.AsyncClient, key: str) -> None:
            headers = {"authorization": f"Bearer {key}"}
            body = {"prompt": "Hi", "max_tokens": 300, **ENDLESS}
            answer = await client.post("/v1/completions", json=body, headers=headers)
            assert answer.status_code == 200
            finished.append(key)

        async def ask_all() -> int:
            async with server.async_client() as client:
                many = [asyncio.create_task(ask(client, "a")) for _ in range(6)]
                await asyncio.sleep(0.05)
                before = len(finished)
                await asyncio.gather(ask(client, "b"), *many)
                return before

        before = asyncio.run(ask_all())
        assert before < 3, "too few were waiting to show anything"
        assert finished.index("b") <= before + 2


def test_keys_do_not_share_prefixes(model: Path) -> None:
    prompt = "A long system prompt that two tenants have in common. " * 3
    with serving(model, "--api-key", "a", "--api-key", "b") as server:

        def cached(key: str) -> int:
            with server.client(key=key) as client:
                answer = client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1}).json()
                n: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                return n

        assert cached("a") == 0
        assert cached("a") > 100
        assert cached("b") == 0
        assert cached("b") > 100


def test_termination_lets_answers_finish(model: Path) -> None:
    body = {"prompt": "Hi", "max_tokens": 2000, "stream": True, **ENDLESS}
    with serving(model, "--n-ctx", "0") as server, server.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            chunks = _begin(answer)
            server.process.send_signal(signal.SIGTERM)
            server.wait_for("Shutting down")
            with server.client() as other:
                assert other.get("/health").status_code == 503
                refused = _ask(other)
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "shutting_down"
                assert "retry-after" in refused.headers
            *_, last = chunks
            assert last["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(10) == 0


def test_answers_that_the_end_cuts_short_are_told_so(model: Path) -> None:
    body = {"prompt": "Hi", "max_tokens": -1, "stream": True, **ENDLESS}
    with serving(model, "--n-ctx", "0", "--drain-timeout", "0.2") as server, server.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            chunks = _begin(answer)
            server.process.send_signal(signal.SIGTERM)
            *_, last = chunks
            assert last["error"]["code"] == "shutting_down"
        assert server.process.wait(10) == 0


def test_a_second_signal_aborts(model: Path) -> None:
    body = {"prompt": "Hi", "max_tokens": -1, "stream": True, **ENDLESS}
    with serving(model, "--n-ctx", "0") as server, server.client() as client:
        answer = client.send(client.build_request("POST", "/v1/completions", json=body), stream=True)
        chunks = _begin(answer)
        server.process.send_signal(signal.SIGTERM)
        server.wait_for("Shutting down")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 0
        assert time.monotonic() - began < 5
        chunks.close()


@pytest.mark.parametrize("is_streamed", [True, False])
def test_nothing_waits_for_a_client_that_left_the_queue(model: Path, is_streamed: bool) -> None:
    body = {"prompt": "Hi", "max_tokens": -1, "stream": True, **ENDLESS}
    with serving(model, "--n-slots", "1", "--n-ctx", "0") as server, server.client() as client:
        with client.stream("POST", "/v1/completions", json=body) as answer:
            chunks = _begin(answer)
            with server.client(timeout=0.3) as leaving, pytest.raises(httpx.ReadTimeout):
                leaving.post("/v1/completions", json=body | {"stream": is_streamed})
            with server.client() as other:
                _wait(lambda: _gauge(other, "minfer_requests_waiting") == 0)
            chunks.close()
        assert server.stop(timeout=4) == 0  # an answer that nobody ends would take longer


def test_an_idle_server_ends_at_once(model: Path) -> None:
    with serving(model) as server:
        assert server.stop(signal.SIGINT, timeout=5) == 0


def test_a_model_that_is_not_there_ends_the_process(tmp_path: Path) -> None:
    with serving(tmp_path / "missing.gguf", wait=False) as server:
        assert server.process.wait(20) == 3
        server.wait_for("Error:")
