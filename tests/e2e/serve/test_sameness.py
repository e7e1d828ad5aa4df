"""A request's bytes depend on its own content and seed alone; aborts of others leave no trace.

Small counts by default; MINFER_PROVE=1 runs the long ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from minfer.engine.backends import choose
from minfer.engine.testing import END, IM_END, TinyModel
from serving import Server, serving, write_tiny

PROVES = bool(os.environ.get("MINFER_PROVE"))
N_REQUESTS = 64 if PROVES else 20
N_ABORTS = 500 if PROVES else 60
ENDLESS = {str(END): False, str(IM_END): False}
Json = dict[str, Any]

pytestmark = pytest.mark.skipif(
    not choose().is_batch_invariant, reason="only the native backend promises equal bits"
)


LAYERS = {"llama": 2, "gemma3": 7}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tiny = TinyModel(request.param, n_layers=LAYERS[request.param], n_context=1024)
    return write_tiny(tmp_path_factory.mktemp("model"), tiny)


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def slow_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that takes its time with a prompt, so that there is a time in which to leave."""
    tiny = TinyModel(request.param, n_layers=7, width=256, feed_forward=512, n_context=1024)
    return write_tiny(tmp_path_factory.mktemp("model"), tiny)


def _requests(most: int, n_new: tuple[int, int]) -> list[Json]:
    """Prompts with and without a common beginning, of up to `most` letters more, and many settings."""
    draw = random.Random(most)
    shared = "You are a helpful assistant who answers in verse. "
    requests = []
    for index in range(N_REQUESTS):
        text = "".join(draw.choice("abcdefg hij\n") for _ in range(draw.randrange(1, most)))
        requests.append({
            "prompt": (shared if index % 2 else "") + text,
            "max_tokens": draw.randrange(*n_new),
            "seed": index,
            "temperature": draw.choice([0, 0.7, 1.5]),
            "top_k": draw.choice([0, 5, 40]),
            "repeat_penalty": draw.choice([1.0, 1.2]),
            "logprobs": draw.choice([None, 0, 3]),
            "n": 2 if index % 7 == 3 else 1,
        })  # fmt: skip
    return requests


async def _ask(client: httpx.AsyncClient, body: Json) -> Json:
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    choices: Json = {"choices": answer.json()["choices"]}
    return choices


def _answers(server: Server, requests: list[Json], n_at_once: int, order: list[int]) -> list[Json]:
    """The choices of every request, in the requests' order; `order` is that of sending."""

    async def run() -> list[Json]:
        gate = asyncio.Semaphore(n_at_once)
        async with server.async_client() as client:

            async def one(index: int) -> tuple[int, Json]:
                async with gate:
                    return index, await _ask(client, requests[index])

            found = dict(await asyncio.gather(*map(one, order)))
        return [found[index] for index in range(len(requests))]

    return asyncio.run(run())


def _preemptions(server: Server) -> float:
    return _metric(server, "minfer_preemptions")


def _metric(server: Server, name: str) -> float:
    with server.client() as client:
        found = re.search(rf"^{re.escape(name)} ([\d.e+-]+)$", client.get("/metrics").text, re.MULTILINE)
    assert found
    return float(found[1])


def test_the_same_bytes_alone_and_in_company(model: Path) -> None:
    requests = _requests(140, (10, 60))
    growing = _requests(10, (60, 90))
    in_order = list(range(len(requests)))
    shuffled = random.Random(3).sample(in_order, len(in_order))
    with serving(model, "--n-slots", "1", "--n-ctx", "1024", "--no-prefix-cache") as server:
        alone = _answers(server, requests, 1, in_order)
        growing_alone = _answers(server, growing, 1, in_order)
    assert len({json.dumps(one) for one in alone}) > len(requests) * 0.9
    with serving(model, "--n-slots", "8", "--n-ctx", "4096", "--itl-target-ms", "5") as server:
        assert _answers(server, requests, 8, in_order) == alone
        assert _answers(server, requests, 8, shuffled) == alone  # now with a warm prefix cache
    with serving(model, "--n-slots", "3", "--n-ctx", "2048", "-t", "1", "--no-prefix-cache") as server:
        assert _answers(server, requests, 8, shuffled) == alone
    with serving(model, "--n-slots", "8", "--n-ctx", "160") as server:
        assert _answers(server, growing, 8, shuffled) == growing_alone
        for _ in range(10):  # how often it preempts depends on when requests arrive
            assert _answers(server, growing, 8, in_order) == growing_alone
            if _preemptions(server) >= 10:
                break
        assert _preemptions(server) >= 10


def test_the_same_text_as_in_the_terminal(model: Path) -> None:
    words = "Tell me of rivers"
    code = "from minfer.run.cli import main; main()"
    run = [sys.executable, "-c", code, str(model), "-q", "--seed", "9", "-n", "40", "--temp", "0.9"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    chat = subprocess.run([*run, words], capture_output=True, check=True, env=environment).stdout
    plain = subprocess.run(
        [*run, "--no-template", words], capture_output=True, check=True, env=environment
    ).stdout
    settings = {"seed": 9, "max_tokens": 40, "temperature": 0.9}
    with serving(model) as server, server.client() as client:
        messages = {"messages": [{"role": "user", "content": words}]}
        answered = client.post("/v1/chat/completions", json=settings | messages).json()
        continued = client.post("/v1/completions", json=settings | {"prompt": words}).json()
    assert answered["choices"][0]["message"]["content"].encode() == chat.removesuffix(b"\n")
    assert continued["choices"][0]["text"].encode() == plain.removesuffix(b"\n")


class Aborter:
    """Clients that leave at every stage; `left` counts what the server had told them by then."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._draw = random.Random(4)
        self._gate = asyncio.Semaphore(12)
        self.left: Counter[str] = Counter()

    async def run(self, client: httpx.AsyncClient, n: int) -> None:
        await asyncio.gather(*(self._one(client) for _ in range(n)))

    async def _one(self, client: httpx.AsyncClient) -> None:
        draw = self._draw
        body = {
            "prompt": "".join(draw.choice("abc ") for _ in range(draw.randrange(100, 700))), "max_tokens": -1,
            "logit_bias": ENDLESS, "cache_prompt": draw.random() < 0.5, "n": draw.choice([1, 1, 3]),
        }  # fmt: skip
        stage = draw.choice(["accepted", "queued", "prefilling", "decoding", "unheard"])
        async with self._gate:
            if stage == "unheard":  # an answer in one piece: whatever it is at by then
                patience = httpx.Timeout(60, read=draw.choice([0.05, 0.2, 0.5]))
                with suppress(httpx.ReadTimeout):
                    await client.post("/v1/completions", json=body, timeout=patience)
            else:
                stage = await self._stream(client, body, stage, draw.randrange(1, 30))
        self.left[stage] += 1

    async def _stream(self, client: httpx.AsyncClient, body: Json, wanted: str, n_chunks: int) -> str:
        """Leave once the wanted stage, or a later one, was told of; the stage."""
        stages = ("accepted", "queued", "prefilling", "decoding")
        async with client.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
            async for line in filled(answer.aiter_lines()):
                n_chunks -= line.startswith("data: ")
                told = line.removeprefix(": ")
                stage = told if told in stages else "decoding"
                if stages.index(stage) >= stages.index(wanted) and (stage != "decoding" or n_chunks <= 0):
                    return stage
        raise AssertionError("an endless answer ended")


async def filled(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """The lines that are not empty."""
    async for line in lines:
        if line:
            yield line


def test_aborts_leak_nothing_and_touch_nobody(slow_model: Path) -> None:
    steady: Json = {"prompt": "A steady reader", "max_tokens": 150, "logit_bias": ENDLESS, "seed": 1}

    async def run(server: Server) -> Counter[str]:
        aborter = Aborter(server)
        async with server.async_client() as client:
            expected = await _ask(client, steady)
            aborts = asyncio.create_task(aborter.run(client, N_ABORTS))
            while not aborts.done():
                assert await _ask(client, steady) == expected
            await aborts
            assert await _ask(client, steady) == expected
        return aborter.left

    # Prompts come in slowly, and pings fast.
    flags = ("--n-slots", "3", "--n-ctx", "1024", "--itl-target-ms", "1", "--ping-interval", "0.05")
    with serving(slow_model, *flags) as server:
        left = asyncio.run(run(server))
        print(f"clients left {dict(left)}")
        assert min(left[stage] for stage in ("queued", "prefilling", "decoding", "unheard")) >= N_ABORTS / 100
        end = time.monotonic() + 10
        while _metric(server, "minfer_requests_running") + _metric(server, "minfer_requests_waiting"):
            assert time.monotonic() < end, "requests stayed behind"
            time.sleep(0.05)
        assert _metric(server, "minfer_kv_cache_usage_ratio") == 0
        # The server met them, and ended them for that reason.
        assert _metric(server, 'minfer_choices_finished_total{reason="cancelled"}') >= N_ABORTS
        with server.client() as client:
            assert client.get("/health").status_code == 200
