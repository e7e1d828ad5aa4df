"""Single steps: what the head answers, taps, refusals, cancelling, blocks of the cache, forks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from engine_steps import batch
from minfer.core.errors import MinferError
from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends import choose
from minfer.engine.backends.step import (
    Cancelled,
    CompileOptions,
    HeadQuery,
    Program,
    StepBatch,
    StepResult,
)
from minfer.engine.graph.ops import Graph
from minfer.engine.testing import TinyModel, tiny_model
from minfer.gguf import GGUFFile, open_bytes, open_gguf
from paths import shared

native = pytest.importorskip("minfer.engine.backends.native", reason="built without the extension")

_BLOCKS = 4


@pytest.fixture(params=["llama-moe", "gemma3-dense"])
def model(request: pytest.FixtureRequest) -> Iterator[tuple[GGUFFile, Graph]]:
    with open_gguf(shared(f"data/architectures/{request.param}.gguf")) as file:
        yield file, build_graph(file.metadata, file, BuildOptions())


def _compiled(model: tuple[GGUFFile, Graph], backend: str = "", taps: tuple[str, ...] = ()) -> Program:
    file, graph = model
    return choose(backend or native.isas()[0]).compile(graph, file, CompileOptions(64, 64, 2, taps))


def _run(model: tuple[GGUFFile, Graph], program: Program, step: StepBatch, query: HeadQuery) -> StepResult:
    result: StepResult = program.run(step, program.new_cache((_BLOCKS,) * len(model[1].cache_groups)), query)
    return result


def _step(model: tuple[GGUFFile, Graph], n: int = 20) -> StepBatch:
    return batch(list(range(40, 40 + n)), 0, [range(_BLOCKS)] * len(model[1].cache_groups))


def test_the_head_answers_what_the_full_logits_say(model: tuple[GGUFFile, Graph]) -> None:
    program = _compiled(model)
    full = _run(model, program, _step(model), HeadQuery())
    logits = np.asarray(full.logits)
    n_vocab = logits.shape[1]
    listed = tuple((0, row, n_vocab - 1) if row % 2 else () for row in range(len(logits)))
    for top in (1, 9, n_vocab + 3):
        found = _run(model, program, _step(model), HeadQuery(top, listed))
        order = np.argsort(-logits, axis=1, kind="stable")[:, :top]
        assert np.array_equal(found.top_ids, order)
        assert np.array_equal(np.asarray(found.top_logits, np.float32), np.take_along_axis(logits, order, 1))
        assert [np.asarray(x, np.float32).tolist() for x in found.listed_logits] == [
            logits[row, list(ids)].tolist() for row, ids in enumerate(listed)
        ]
        assert found.log_sum_exp == full.log_sum_exp
    assert np.array_equal(np.asarray(full.max_logit, np.float32), logits.max(1))
    exact = np.log(np.exp(logits.astype(np.float64)).sum(1))
    np.testing.assert_allclose(full.log_sum_exp, exact, atol=2e-6, rtol=0)


def test_equal_logits_go_by_id(model: tuple[GGUFFile, Graph]) -> None:
    """A query for all ids in order, from a step whose rows are equal: every tie is in the answer twice."""
    program = _compiled(model)
    step = batch([50] * 4, 0, [range(_BLOCKS)] * len(model[1].cache_groups))
    answers = _run(model, program, replace(step, logit_rows=array("i", [0, 0])), HeadQuery(top=64))
    assert answers.top_ids[0] == answers.top_ids[1]
    pairs = list(zip(answers.top_logits[0], answers.top_ids[0], strict=True))
    assert pairs == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def test_taps_are_close_to_the_reference(model: tuple[GGUFFile, Graph]) -> None:
    file, graph = model
    exact = build_graph(file.metadata, file, BuildOptions(kv_type="f32"))
    names = [node.name for node in graph if not node.name.endswith("cache_write")]
    names += [f"{name}.probabilities" for name in names if name.endswith("attention")]
    steps = [
        _run(model, _compiled((file, exact), backend, taps=tuple(names)), _step(model), HeadQuery())
        for backend in (native.isas()[0], "numpy")
    ]
    for name in names:
        found, expected = (_arrays(step.taps[name]) for step in steps)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-3, rtol=1e-3, err_msg=name)


def _arrays(tap: object) -> list[npt.NDArray[np.float64]]:
    parts = tap if isinstance(tap, tuple) else (tap,)
    return [np.asarray(part, np.float64) for part in parts]


def test_steps_that_contradict_themselves_are_refused(model: tuple[GGUFFile, Graph]) -> None:
    program = _compiled(model)
    good = _step(model)
    (sequence,) = good.sequences
    n_groups = len(model[1].cache_groups)
    bad = (
        replace(good, ids=array("i", [1 << 30] * 20)),
        replace(good, ids=array("i", [-1] * 20)),
        replace(good, logit_rows=array("i", [20])),
        replace(good, cache_pos=array("i", [99] * 20)),
        replace(good, sequences=()),
        replace(good, sequences=(replace(sequence, n_rows=19),)),
        replace(good, sequences=(replace(sequence, first_row=1),)),
        replace(good, sequences=(replace(sequence, length_before=1 << 30),)),
        replace(good, sequences=(replace(sequence, block_tables=(array("i", [0]),) * n_groups),)),
        replace(good, sequences=(replace(sequence, block_tables=(array("i", [0, 99]),) * n_groups),)),
        _step(model, 65),
    )
    for step in bad:
        with pytest.raises(MinferError, match="contradicts"):
            _run(model, program, step, HeadQuery(top=1))
    with pytest.raises(MinferError, match="vocabulary"):
        _run(model, program, good, HeadQuery(1, ((1 << 30,),) * 20))
    assert len(_run(model, program, good, HeadQuery(top=1)).top_ids) == 20


def test_a_model_in_memory_stays_what_it_was() -> None:
    """Pages of a file are dropped once they are repacked; those of bytes must not be."""
    data = tiny_model(TinyModel("llama"))
    before = hashlib.sha256(data).digest()
    file = open_bytes(data)
    graph = build_graph(file.metadata, file)
    native.NativeBackend(native.isas()[0]).compile(graph, file, CompileOptions(64, 64)).close()
    assert hashlib.sha256(data).digest() == before


def test_errors_of_the_cancel_function_come_through(
    model: tuple[GGUFFile, Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minfer.engine.backends.native.program.CANCEL_INTERVAL", 0)
    program = _compiled(model)
    cache = program.new_cache((_BLOCKS,) * len(model[1].cache_groups))
    calls = iter([False, KeyError("told")])

    def cancel() -> bool:
        answer = next(calls, True)
        if isinstance(answer, KeyError):
            raise answer
        return bool(answer)

    with pytest.raises(KeyError, match="told"):
        program.run(_step(model), cache, HeadQuery(), cancel)
    with pytest.raises(Cancelled):
        program.run(_step(model), cache, HeadQuery(), cancel)
    program.close()
    with pytest.raises(ValueError, match="closed"):
        program.run(_step(model), cache, HeadQuery())


def test_blocks_move(model: tuple[GGUFFile, Graph]) -> None:
    """A prompt in blocks 0 and 1, copied to 3 and (by its bytes) to 2, goes on alike."""
    program = _compiled(model)
    n_groups = len(model[1].cache_groups)
    cache = program.new_cache((_BLOCKS,) * n_groups)
    program.run(_step(model), cache, HeadQuery(top=1))
    for group in range(n_groups):
        cache.copy_block(group, 0, 3)
        cache.write_block(group, 2, cache.read_block(group, 1))
        with pytest.raises(MinferError, match="no block 4"):
            cache.copy_block(group, 0, 4)
        with pytest.raises(ValueError, match="bytes for a block"):
            cache.write_block(group, 0, b"short")
    here = program.run(batch([7], 20, [[0, 1]] * n_groups), cache, HeadQuery())
    there = program.run(batch([7], 20, [[3, 2]] * n_groups), cache, HeadQuery())
    assert np.array_equal(np.asarray(here.logits), np.asarray(there.logits))


def test_callers_from_several_threads_take_turns(model: tuple[GGUFFile, Graph]) -> None:
    """Each has a cache of its own and gets what it would get alone."""
    program = _compiled(model)
    expected = np.asarray(_run(model, program, _step(model), HeadQuery()).logits).tobytes()

    def often(_: int) -> set[bytes]:
        return {
            np.asarray(_run(model, program, _step(model), HeadQuery()).logits).tobytes() for _ in range(25)
        }

    with ThreadPoolExecutor(4) as callers:
        assert list(callers.map(often, range(4))) == [{expected}] * 4


_FORK = """
import os, sys
from engine_steps import all_logits
from minfer.engine.architectures import build_graph
from minfer.engine.backends.native import NativeBackend, isas
from minfer.engine.backends.step import CompileOptions
from minfer.gguf import open_gguf
file = open_gguf(sys.argv[1])
graph = build_graph(file.metadata, file)
program = NativeBackend(isas()[0]).compile(graph, file, CompileOptions(64, 64, 4))
cache = program.new_cache((4,))
before = bytes(all_logits(program, cache, range(30), 7, 1))
child = os.fork()
after = bytes(all_logits(program, cache, range(30), 7, 1))
if child == 0:
    os._exit(0 if after == before else 9)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
sys.exit(status or (0 if after == before else 8))
"""


def test_a_forked_child_computes_too() -> None:
    path = shared("data/architectures/llama-dense.gguf")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", _FORK, str(path)], env=environment, timeout=120, check=False)
    assert done.returncode == 0


_IMPORTS = """
import sys
from array import array
from minfer.engine.architectures import build_graph
from minfer.engine.backends import choose
from minfer.engine.backends.step import CompileOptions, HeadQuery, SequenceStep, StepBatch
from minfer.gguf import open_gguf
file = open_gguf(sys.argv[1])
graph = build_graph(file.metadata, file)
program = choose(sys.argv[2]).compile(graph, file, CompileOptions(64, 64, 2))
zero = array("i", [0])
step = StepBatch(zero, zero, zero, (SequenceStep(0, 1, 0, (zero,)),), zero)
program.run(step, program.new_cache((1,)), HeadQuery(top=4))
sys.exit("numpy" in sys.modules)
"""


def test_a_native_step_needs_no_numpy() -> None:
    path = shared("data/architectures/llama-dense.gguf")
    command = [sys.executable, "-c", _IMPORTS, str(path), native.isas()[0]]
    assert subprocess.run(command, timeout=120, check=False).returncode == 0
