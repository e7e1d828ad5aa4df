"""A load of streams on one HTTP server: what it does to time to first token, gaps and throughput.

Raw sockets under asyncio: the client shares the machine with the server and must cost little.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Body = Mapping[str, Any]


@dataclass(slots=True)
class Stream:
    """One answer as its client saw it. Times are seconds; arrivals are of chunks with text."""

    began: float
    ended: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    n_tokens: int = 0
    text: str = ""

    @property
    def ttft(self) -> float:
        """Time to the first chunk with text."""
        return self.arrivals[0] - self.began

    def gaps(self, since: float = 0.0, until: float = math.inf) -> list[float]:
        """Times between chunks, of those that ended between two moments."""
        return [later - earlier for earlier, later in pairwise(self.arrivals) if since <= later <= until]


@dataclass(frozen=True, slots=True)
class Load:
    """Streams that ran together."""

    streams: tuple[Stream, ...]

    @property
    def tokens_per_second(self) -> float:
        """All tokens over the time from the first request to the last end."""
        began = min(one.began for one in self.streams)
        return sum(one.n_tokens for one in self.streams) / (max(one.ended for one in self.streams) - began)

    def ttft(self, share: float) -> float:
        """A quantile of the times to the first token."""
        return quantile([one.ttft for one in self.streams], share)

    def gap(self, share: float) -> float:
        """A quantile of the gaps of all streams together."""
        return quantile([gap for one in self.streams for gap in one.gaps()], share)


def quantile(values: list[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def run_while_reading(host: str, port: int, bodies: list[dict[str, Any]], late: Body) -> Load:
    """`late` once every other answer has ten chunks; they are given up when it is there. It is the last."""
    streams = [Stream(0.0) for _ in bodies]
    asking = [
        asyncio.create_task(ask(host, port, body, one)) for body, one in zip(bodies, streams, strict=True)
    ]
    while any(len(one.arrivals) < 10 for one in streams):
        await asyncio.sleep(0.01)
        for task in asking:
            if task.done():
                task.result()
    arrival = await ask(host, port, late)
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    return Load((*streams, arrival))


def random_prompt(n_tokens: int, n_vocab: int, seed: int) -> list[int]:
    """Token ids that no two prompts have in common."""
    draw = random.Random(seed)
    return [draw.randrange(100, n_vocab) for _ in range(n_tokens)]


def body_for(prompt: list[int] | str, n_new: int, seed: int) -> dict[str, Any]:
    """A request that both servers understand alike: same sampling, same length."""
    return {
        "prompt": prompt, "max_tokens": n_new, "stream": True, "stream_options": {"include_usage": True},
        "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0, "repeat_penalty": 1.1,
        "repeat_last_n": 64, "seed": seed, "ignore_eos": True, "cache_prompt": False,
    }  # fmt: skip


def run(host: str, port: int, bodies: list[dict[str, Any]]) -> Load:
    """All bodies at once, each on a connection of its own."""

    async def all_at_once() -> Load:
        return Load(tuple(await asyncio.gather(*(ask(host, port, body) for body in bodies))))

    return asyncio.run(all_at_once())


async def ask(host: str, port: int, body: Body, stream: Stream | None = None) -> Stream:
    """One streamed completion; a given `stream` can be watched meanwhile."""
    data = json.dumps(body).encode()
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    stream = stream or Stream(0.0)
    stream.began = began
    async for line in reader:
        if not line.startswith(b"data: {"):
            if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line:
                raise RuntimeError(line.decode())
            continue
        now = time.perf_counter()
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise RuntimeError(str(chunk["error"]))
        if chunk.get("usage"):
            stream.n_tokens = chunk["usage"]["completion_tokens"]
        text = "".join(choice["text"] for choice in chunk["choices"])
        if text:
            stream.text += text
            stream.arrivals.append(now)
    stream.ended = time.perf_counter()
    writer.close()
    return stream
