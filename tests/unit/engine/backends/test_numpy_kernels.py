"""Operations that no family uses yet, in graphs written by hand."""

from __future__ import annotations

import io
from array import array

import numpy as np
import numpy.typing as npt
import pytest

from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.backends.step import CompileOptions, HeadQuery, SequenceStep, StepBatch, StepResult
from minfer.engine.graph import ops
from minfer.engine.graph.ops import Graph, Node, Rows, Weight
from minfer.gguf import GGUFFile, QuantType, open_bytes
from minfer.gguf.writer import StoredTensor, write_stream

_RANDOM = np.random.default_rng(5)
_TENSORS = {
    "table": _RANDOM.normal(size=(6, 4)).astype(np.float32),
    "places": _RANDOM.normal(size=(9, 4)).astype(np.float32),
    "heads": _RANDOM.normal(size=(2, 3, 2)).astype(np.float32),
    "experts": _RANDOM.normal(size=(3, 5, 4)).astype(np.float32),
    "expert_bias": _RANDOM.normal(size=(3, 5)).astype(np.float32),
}
_TABLE, _PLACES = Weight("table", 6, 4), Weight("places", 9, 4)
_IDS, _POSITIONS = [5, 0, 3, 3, 1], [2, 3, 0, 1, 8]


@pytest.fixture(scope="module")
def file() -> GGUFFile:
    stored = [
        StoredTensor(name, data.shape, QuantType.F32, data.tobytes()) for name, data in _TENSORS.items()
    ]
    stream = io.BytesIO()
    write_stream(stream, {"general.architecture": "none"}, stored)
    return open_bytes(stream.getvalue())


def _run(file: GGUFFile, *nodes: Node, pooled: int | None = None) -> StepResult:
    """Two sequences, rows 0-1 and 2-4; every node is tapped."""
    graph = Graph(nodes, (), len(nodes) - 1, pooled)
    options = CompileOptions(taps=tuple(node.name for node in nodes))
    program = NumpyBackend().compile(graph, file, options)
    sequences = (SequenceStep(0, 2, 2, ()), SequenceStep(2, 3, 0, ()))
    positions = array("i", _POSITIONS)
    batch = StepBatch(array("i", _IDS), positions, positions, sequences, array("i", [1, 4]))
    return program.run(batch, program.new_cache(()), HeadQuery())


def _embed() -> Node:
    return Node("x", ops.Embed(_TABLE), (), Rows.TOKENS, 4)


def _x() -> npt.NDArray[np.float32]:
    return _TENSORS["table"][_IDS]


def test_embedding_by_position_and_by_nothing(file: GGUFFile) -> None:
    result = _run(
        file,
        Node("position", ops.Embed(_PLACES, "position"), (), Rows.TOKENS, 4),
        Node("constant", ops.Embed(_TABLE, "constant"), (), Rows.TOKENS, 4),
        Node("sum", ops.Add(), (0, 1), Rows.TOKENS, 4),
    )
    np.testing.assert_array_equal(result.taps["position"], _TENSORS["places"][_POSITIONS])
    np.testing.assert_array_equal(result.taps["constant"], _TENSORS["table"][[0] * 5])


def test_one_matrix_for_each_head(file: GGUFFile) -> None:
    op = ops.HeadLinear(Weight("heads", 3, 2, n_experts=2), 2)
    found = _run(file, _embed(), Node("y", op, (0,), Rows.TOKENS, 6)).taps["y"]
    for row, y in zip(_x(), found, strict=True):
        expected = np.concatenate([_TENSORS["heads"][h] @ row[2 * h : 2 * h + 2] for h in range(2)])
        np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_elementwise_operations(file: GGUFFile) -> None:
    taps = _run(
        file,
        _embed(),
        Node("act", ops.Activation("relu"), (0,), Rows.TOKENS, 4),
        Node("mul", ops.Mul(), (0, 1), Rows.TOKENS, 4),
        Node("scaled", ops.Scale(-3.0), (2,), Rows.TOKENS, 4),
        Node("capped", ops.Softcap(2.0), (3,), Rows.TOKENS, 4),
        Node("part", ops.Slice(1, 3), (4,), Rows.TOKENS, 2),
        Node("both", ops.Concat(), (5, 0), Rows.TOKENS, 6),
        Node("length", ops.L2Norm(), (6,), Rows.TOKENS, 6),
        Node("rows", ops.SelectRows(), (7,), Rows.LOGITS, 6),
    ).taps
    x = _x().astype(np.float64)
    part = (2 * np.tanh(-3 * x * np.maximum(x, 0) / 2))[:, 1:3]
    both = np.concatenate([part, x], axis=1)
    np.testing.assert_allclose(taps["both"], both, rtol=1e-5, atol=1e-6)
    expected = both / np.linalg.norm(both, axis=1, keepdims=True)
    np.testing.assert_allclose(taps["rows"], expected[[1, 4]], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_pooling_gives_a_row_for_each_sequence(file: GGUFFile, kind: str) -> None:
    pool = ops.Pool("mean" if kind == "mean" else "cls" if kind == "cls" else "last")
    result = _run(file, _embed(), Node("pooled", pool, (0,), Rows.SEQUENCES, 4), pooled=1)
    x = _x()
    expected = {
        "mean": [x[:2].mean(axis=0), x[2:].mean(axis=0)],
        "cls": [x[0], x[2]],
        "last": [x[1], x[4]],
    }[kind]
    np.testing.assert_allclose(np.asarray(result.pooled), expected, rtol=1e-6)
    assert result.logits is None


def test_experts_with_biases_and_factors(file: GGUFFile) -> None:
    """The first expert's factor is 2, and the router is the first three features themselves."""
    linear = ops.ExpertLinear(
        Weight("experts", 5, 4, n_experts=3), Weight("expert_bias", 1, 5, n_experts=3), (2.0, 1.0, 0.5)
    )
    taps = _run(
        file,
        _embed(),
        Node("router", ops.Slice(0, 3), (0,), Rows.TOKENS, 3),
        Node("route", ops.Route("softmax_of_chosen", 2), (1,), Rows.TOKENS, 2),
        Node("pairs", linear, (0, 2), Rows.PAIRS, 5),
        Node("y", ops.Combine(), (3, 2), Rows.TOKENS, 5),
    ).taps
    for t, row in enumerate(_x().astype(np.float64)):
        first, second = sorted(range(3), key=lambda e: (-row[e], e))[:2]
        share = 1 / (1 + np.exp(row[second] - row[first]))
        outputs = [
            _TENSORS["experts"][e] @ row * (2.0, 1.0, 0.5)[e] + _TENSORS["expert_bias"][e]
            for e in (first, second)
        ]
        assert taps["route"][0][t].tolist() == [first, second]
        np.testing.assert_allclose(taps["pairs"][2 * t : 2 * t + 2], outputs, rtol=1e-4, atol=1e-5)
        expected = share * outputs[0] + (1 - share) * outputs[1]
        np.testing.assert_allclose(taps["y"][t], expected, rtol=1e-4, atol=1e-5)


def test_a_latent_cache_gives_the_front_of_its_keys_as_values(file: GGUFFile) -> None:
    spec = ops.CacheSpec("latent", 1, 4, 3, None, "f32")
    nodes = (
        _embed(),
        Node("write", ops.CacheWrite(0), (0,), Rows.TOKENS, 4),
        Node("y", ops.Attend(0, 1, 1.0), (0, 1), Rows.TOKENS, 3),
    )
    program = NumpyBackend().compile(Graph(nodes, (spec,), 2), file, CompileOptions(taps=("y",)))
    positions = array("i", range(5))
    step = SequenceStep(0, 5, 0, (array("i", [0]),))
    batch = StepBatch(array("i", _IDS), positions, positions, (step,), array("i"))
    cache = program.new_cache((1,))
    found = program.run(batch, cache, HeadQuery()).taps["y"]
    x = _x().astype(np.float64)
    for t in range(5):
        weights = np.exp(x[: t + 1] @ x[t])
        np.testing.assert_allclose(found[t], weights @ x[: t + 1, :3] / weights.sum(), rtol=1e-4)
    assert cache.n_bytes == 16 * 4 * 4
    saved = cache.read_block(0, 0)
    assert len(saved) == cache.n_bytes
