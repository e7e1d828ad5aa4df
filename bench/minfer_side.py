"""Our side of a comparison, as a process of its own: one test, tokens per second on stdout as JSON.

Prompt processing and decoding are measured as llama-bench does: no tokenizing, no sampling, decoding from
an empty context (or after `@depth` tokens), one token a step, logits of the last row computed.
"""

from __future__ import annotations

import argparse
import json
import time
from array import array
from pathlib import Path

from minfer.engine import LoadOptions, open_model
from minfer.engine.backends.step import HeadQuery, StepBatch
from minfer.engine.kv_cache import CachedSequence, KVCache
from minfer.engine.model import Model

_ROWS = 512
_QUERY = HeadQuery(top=1)


def _ids(n_vocab: int, start: int, count: int) -> array[int]:
    """Ids that are spread over the vocabulary."""
    return array("i", [(index * 7919 + 13) % n_vocab for index in range(start, start + count)])


class _Runner:
    """Feeds made-up tokens to any number of sequences."""

    def __init__(self, model: Model, n_ctx: int, n_sequences: int) -> None:
        self._model = model
        self._cache: KVCache = model.new_cache(n_ctx, n_sequences)
        self.sequences: list[CachedSequence] = [self._cache.new_sequence() for _ in range(n_sequences)]

    def feed(self, sequence: CachedSequence, count: int) -> None:
        """A prompt of `count` tokens in chunks."""
        for start in range(0, count, _ROWS):
            self._step([(sequence, min(_ROWS, count - start))])

    def decode(self) -> None:
        """One token for every sequence, in one step."""
        self._step([(sequence, 1) for sequence in self.sequences])

    def clear(self) -> None:
        """Empty every sequence."""
        for sequence in self.sequences:
            self._cache.free(sequence)

    def _step(self, parts: list[tuple[CachedSequence, int]]) -> None:
        ids, positions, wanted, sequences = array("i"), array("i"), array("i"), []
        for sequence, count in parts:
            if not self._cache.reserve(sequence, count):
                raise ValueError("the benchmark's cache is too small")
            sequences.append(self._cache.step(sequence, len(ids), count))
            ids.extend(_ids(self._model.tokenizer.n_vocab, sequence.length, count))
            positions.extend(range(sequence.length, sequence.length + count))
            wanted.append(len(ids) - 1)
        batch = StepBatch(ids, positions, positions, tuple(sequences), wanted)
        self._model.program.run(batch, self._cache.store, _QUERY)
        for (sequence, count), part in zip(parts, sequences, strict=True):
            self._cache.commit(sequence, ids[part.first_row : part.first_row + count])


def measure(model: Model, test: str, n_streams: int) -> float:
    """Tokens per second of `pp512`, `tg128`, `tg128@4096`; with n_streams, of all after 128 tokens each."""
    name, _, depth = test.partition("@")
    count, before = int(name[2:]), int(depth or 0)
    if n_streams > 1:
        runner = _Runner(model, 128 + count, n_streams)
        for sequence in runner.sequences:
            runner.feed(sequence, 128)
    else:
        runner = _Runner(model, before + count + 1, 1)
        runner.feed(runner.sequences[0], min(before or 8, 512))
        runner.clear()
        if before:
            runner.feed(runner.sequences[0], before)
    started = time.perf_counter()
    if name.startswith("pp"):
        runner.feed(runner.sequences[0], count)
    else:
        for _ in range(count):
            runner.decode()
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
