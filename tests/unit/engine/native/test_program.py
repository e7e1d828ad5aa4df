"""Whole programs: stored logits of tiny models, and the same bits however a step is cut up."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest

from engine_steps import all_logits
from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends.step import (
    CompileOptions,
    HeadQuery,
    SequenceStep,
    StepBatch,
)
from minfer.gguf import GGUFFile, open_gguf
from paths import shared

native = pytest.importorskip("minfer.engine.backends.native", reason="built without the extension")

_MODELS = ("llama-dense", "llama-moe", "qwen2-dense", "qwen3-dense", "gemma3-dense")
Floats = npt.NDArray[np.float32]


@pytest.fixture(params=_MODELS)
def model(request: pytest.FixtureRequest) -> Iterator[tuple[str, GGUFFile]]:
    with open_gguf(shared(f"data/architectures/{request.param}.gguf")) as file:
        yield request.param, file


def _tokens(name: str) -> list[int]:
    tokens: list[int] = np.load(shared(f"data/architectures/{name}.npz"))["tokens"].tolist()
    return tokens


@dataclass(frozen=True)
class Run:
    """How logits are computed."""

    isa: str = native.isas()[0]
    threads: int = 1
    kv: Literal["f16", "f32"] = "f16"
    taps: tuple[str, ...] = ()

    def logits(self, file: GGUFFile, ids: Sequence[int], chunk: int) -> Floats:
        """At every position of one sequence."""
        graph = build_graph(file.metadata, file, BuildOptions(kv_type=self.kv))
        options = CompileOptions(128, 128, self.threads, self.taps)
        program = native.NativeBackend(self.isa).compile(graph, file, options)
        n_groups = len(graph.cache_groups)
        return all_logits(program, program.new_cache((8,) * n_groups), ids, chunk, n_groups)


def _same_bits(a: Floats, b: Floats) -> bool:
    return np.array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("isa", native.isas())
@pytest.mark.parametrize("chunk", [96, 7])
def test_logits_are_the_stored_ones(model: tuple[str, GGUFFile], isa: str, chunk: int) -> None:
    name, file = model
    expected = np.load(shared(f"data/architectures/{name}.npz"))["logits"]
    found = Run(isa, threads=2, kv="f32").logits(file, _tokens(name), chunk)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_and_chunks_change_no_bit(model: tuple[str, GGUFFile], threads: int, chunk: int) -> None:
    name, file = model
    ids = _tokens(name)
    expected = Run().logits(file, ids, len(ids))
    found = Run(threads=threads).logits(file, ids, chunk)
    assert _same_bits(expected, found)


def test_every_instruction_set_has_the_same_bits(model: tuple[str, GGUFFile]) -> None:
    name, file = model
    ids = _tokens(name)
    scalar, *others = (Run(isa).logits(file, ids, 33) for isa in reversed(native.isas()))
    for other in others:
        assert _same_bits(scalar, other)


def test_taps_change_no_bit(model: tuple[str, GGUFFile]) -> None:
    name, file = model
    ids = _tokens(name)
    graph = build_graph(file.metadata, file, BuildOptions())
    taps = tuple(node.name for node in graph if not node.name.endswith("cache_write"))
    taps += tuple(f"{node.name}.probabilities" for node in graph if node.name.endswith("attention"))
    expected = Run().logits(file, ids, 40)
    found = Run(taps=taps).logits(file, ids, 40)
    assert _same_bits(expected, found)


def test_neighbours_change_no_bit(model: tuple[str, GGUFFile]) -> None:
    """Eight sequences of different lengths, some at their prompt and some decoding, in one batch."""
    name, file = model
    ids = _tokens(name)
    graph = build_graph(file.metadata, file, BuildOptions())
    options = CompileOptions(max_tokens=256, max_logit_rows=256, n_threads=2)
    program = native.NativeBackend(native.isas()[0]).compile(graph, file, options)
    n_groups = len(graph.cache_groups)
    cache = program.new_cache((64,) * n_groups)
    texts = [ids[i:] + ids[:i] for i in range(8)]
    alone = [Run().logits(file, text, 128) for text in texts]
    done = [0] * 8
    rng = np.random.default_rng(5)
    while any(n < len(ids) for n in done):
        counts = [min(int(rng.integers(0, 24)), len(ids) - n) for n in done]
        step = _together(texts, done, counts, n_groups)
        if step is None:
            continue
        found = np.asarray(program.run(step, cache, HeadQuery()).logits)
        assert _same_bits(
            np.concatenate([a[n : n + count] for a, n, count in zip(alone, done, counts, strict=True)]), found
        )
        done = [n + count for n, count in zip(done, counts, strict=True)]


def _together(
    texts: Sequence[Sequence[int]], done: Sequence[int], counts: Sequence[int], n_groups: int
) -> StepBatch | None:
    """The next rows of each text as one step; sequence i has blocks i, i + 8, …"""
    sequences, ids, positions = [], array("i"), array("i")
    for i, (start, count) in enumerate(zip(done, counts, strict=True)):
        if count:
            blocks = array("i", [i + 8 * b for b in range(8)])
            sequences.append(SequenceStep(len(ids), count, start, (blocks,) * n_groups))
            ids.extend(texts[i][start : start + count])
            positions.extend(range(start, start + count))
    if not sequences:
        return None
    return StepBatch(ids, positions, positions, tuple(sequences), array("i", range(len(ids))))
