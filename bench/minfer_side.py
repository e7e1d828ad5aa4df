"""Our side of a comparison, as a process of its own: one test, tokens per second on stdout as JSON.

Prompt processing and decoding are measured as llama-bench does: no tokenizing, no sampling, decoding from
an empty context (or after `@depth` tokens), one token a step, logits of the last row computed.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from minfer.engine import LoadOptions, open_model
from minfer.engine.feeding import Feeder, feed_together
from minfer.engine.kv_cache import KVCache
from minfer.engine.model import Model

_ROWS = 512


class _Streams:
    """Made-up tokens for any number of sequences."""

    def __init__(self, model: Model, n_ctx: int, n_sequences: int) -> None:
        self._model = model
        self._cache: KVCache = model.new_cache(n_ctx, n_sequences)
        self.feeders = [Feeder(model, self._cache, _ROWS) for _ in range(n_sequences)]

    def prompt(self, feeder: Feeder, count: int) -> None:
        """A prompt of `count` tokens in chunks."""
        feeder.feed(self._ids(feeder, count))

    def decode(self) -> None:
        """One token for every sequence, in one step."""
        parts = [(feeder.sequence, self._ids(feeder, 1), 1) for feeder in self.feeders]
        feed_together(self._model.program, self._cache, parts)

    def _ids(self, feeder: Feeder, count: int) -> list[int]:
        """The next ids of a sequence, spread over the vocabulary."""
        start, n_vocab = feeder.sequence.length, self._model.tokenizer.n_vocab
        return [(index * 7919 + 13) % n_vocab for index in range(start, start + count)]


def measure(model: Model, test: str, n_streams: int) -> float:
    """Tokens per second of `pp512`, `tg128`, `tg128@4096`; with n_streams, of all after 128 tokens each."""
    name, _, depth = test.partition("@")
    count, before = int(name[2:]), int(depth or 0)
    if n_streams > 1:
        streams = _Streams(model, 128 + count, n_streams)
        for feeder in streams.feeders:
            streams.prompt(feeder, 128)
    else:
        streams = _Streams(model, before + count + 1, 1)
        streams.prompt(streams.feeders[0], min(before or 8, 512))
        streams.feeders[0].clear()
        if before:
            streams.prompt(streams.feeders[0], before)
    started = time.perf_counter()
    if name.startswith("pp"):
        streams.prompt(streams.feeders[0], count)
    else:
        for _ in range(count):
            streams.decode()
    return count * n_streams / (time.perf_counter() - started)


def main() -> None:
    """Print {"tokens_per_second": …, "backend": …}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("test")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--streams", type=int, default=1)
    options = parser.parse_args()
    load = LoadOptions(n_threads=options.threads, max_tokens=_ROWS)
    with open_model(options.model, load) as opened, opened.load() as model:
        rate = measure(model, options.test, options.streams)
        print(json.dumps({"tokens_per_second": rate, "backend": model.backend_name}))


if __name__ == "__main__":
    main()
