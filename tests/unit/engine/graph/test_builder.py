"""What the builder checks, names and fills in."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest

from minfer.core.errors import ModelFileError
from minfer.engine.graph import ops
from minfer.engine.graph.builder import GraphBuilder, Value
from minfer.engine.graph.errors import ConstantTensorError, TensorShapeError
from minfer.engine.graph.ops import CacheSpec, Rows, Weight
from minfer.gguf import GGUFFile, QuantType, open_bytes
from minfer.gguf.errors import TensorMissingError
from minfer.gguf.writer import StoredTensor, write_stream


def _file(tensors: dict[str, list[int]], values: dict[str, list[float]] | None = None) -> GGUFFile:
    """A file of F32 tensors of those shapes, zeros unless given."""
    stored = []
    for name, shape in tensors.items():
        numbers = np.zeros(shape, "<f4").ravel()
        if values and name in values:
            numbers[:] = values[name]
        stored.append(StoredTensor(name, tuple(shape), QuantType.F32, numbers.tobytes()))
    stream = io.BytesIO()
    write_stream(stream, {"general.architecture": "none"}, stored)
    return open_bytes(stream.getvalue())


def test_a_wrong_shape_names_the_tensor_and_both_shapes() -> None:
    g = GraphBuilder(_file({"token_embd.weight": [10, 4], "blk.3.up.weight": [6, 5]}))
    x = g.embed("token_embd", 4)
    with pytest.raises(TensorShapeError) as caught:
        g.layer(3).linear(x, "up", 6)
    assert caught.value.fact == "tensor 'blk.3.up.weight' has shape [6, 5]; the metadata ask for [6, 4]"
    assert isinstance(caught.value, ModelFileError)


def test_a_missing_tensor_is_named() -> None:
    g = GraphBuilder(_file({"token_embd.weight": [10, 4]}))
    with pytest.raises(TensorMissingError, match=r"'blk\.0\.norm\.weight'"):
        g.layer(0).rms_norm(g.embed("token_embd", 4), "norm", 1e-5)


def test_leading_ones_do_not_matter() -> None:
    g = GraphBuilder(_file({"token_embd.weight": [10, 4], "norm.weight": [1, 4]}))
    node = g.rms_norm(g.embed("token_embd", 4), "norm", 1e-5)
    assert node == Value(1, Rows.TOKENS, 4)


def _linear_graph(**tensors: list[int]) -> GraphBuilder:
    return GraphBuilder(
        _file(
            {"token_embd.weight": [10, 4], "w.weight": [3, 4], **{f"w.{k}": v for k, v in tensors.items()}},
            {"w.scale": [2.5]},
        )
    )


def test_biases_and_scales_are_used_when_the_file_has_them() -> None:
    weight, bias = Weight("w.weight", 3, 4), Weight("w.bias", 1, 3)
    cases: list[tuple[GraphBuilder, Callable[[GraphBuilder, Value], Value], list[ops.Op]]] = [
        (_linear_graph(), lambda g, x: g.linear(x, "w", 3), [ops.Linear(weight)]),
        (
            _linear_graph(bias=[3], scale=[1]),
            lambda g, x: g.linear(x, "w", 3),
            [ops.Linear(weight, bias, 2.5)],
        ),
        (
            _linear_graph(bias=[3], scale=[1]),
            lambda g, x: g.linear(x, "w", 3, scale="after_bias"),
            [ops.Linear(weight, bias), ops.Scale(2.5)],
        ),
        (
            _linear_graph(scale=[1]),
            lambda g, x: g.linear(x, "w", 3, scale="after_bias"),
            [ops.Linear(weight, None, 2.5)],
        ),
        (
            _linear_graph(bias=[3], scale=[1]),
            lambda g, x: g.linear(x, "w", 3, scale="ignored", bias=False),
            [ops.Linear(weight)],
        ),
    ]
    for g, write, expected in cases:
        y = write(g, g.embed("token_embd", 4))
        assert [node.op for node in g.finish(y)][1:] == expected


def test_constants_must_be_plain_numbers() -> None:
    stored = StoredTensor("rope.weight", (32,), QuantType.Q8_0, bytes(34))
    stream = io.BytesIO()
    write_stream(stream, {"general.architecture": "none"}, [stored])
    with pytest.raises(ConstantTensorError, match="Q8_0"):
        GraphBuilder(open_bytes(stream.getvalue())).constants("rope.weight", 32)
    g = GraphBuilder(_file({"rope.weight": [2]}, {"rope.weight": [1.5, -2.0]}))
    assert g.constants("rope.weight", 2) == (1.5, -2.0)
    assert g.constants("absent.weight", 2) is None


def test_names_are_unique() -> None:
    g = GraphBuilder(_file({"token_embd.weight": [10, 4]}))
    g.embed("token_embd", 4)
    with pytest.raises(ValueError, match="two nodes"):
        g.embed("token_embd", 4)


def test_each_attention_gets_its_own_slot() -> None:
    g = GraphBuilder(_file({"token_embd.weight": [10, 4]}))
    x = g.embed("token_embd", 4)
    full, windowed = CacheSpec("kv", 1, 4, 4, None, "f16"), CacheSpec("kv", 1, 4, 4, 8, "f16")
    for i, spec in enumerate((windowed, full, windowed)):
        x = g.layer(i).attention(x, x, x, spec, ops.Attend(0, 1, 0.5))
    graph = g.finish(x)
    assert [node.op.slot for node in graph if isinstance(node.op, ops.Attend)] == [0, 1, 2]
    assert graph.cache_slots == (windowed, full, windowed)
    assert graph.cache_groups == (windowed, full)


def test_the_head_is_the_table_when_the_file_has_no_output() -> None:
    tied = GraphBuilder(_file({"token_embd.weight": [10, 4]}))
    untied = GraphBuilder(
        _file({"token_embd.weight": [10, 4], "output.weight": [10, 4], "output.bias": [10]})
    )
    for g, expected in (
        (tied, ops.Head(Weight("token_embd.weight", 10, 4))),
        (untied, ops.Head(Weight("output.weight", 10, 4), Weight("output.bias", 1, 10))),
    ):
        graph = g.finish(g.head(g.select_rows(g.embed("token_embd", 4), "selected"), "token_embd"))
        assert graph.nodes[graph.logits].op == expected
    short = GraphBuilder(_file({"token_embd.weight": [10, 4], "output.weight": [9, 4]}))
    with pytest.raises(TensorShapeError):
        short.head(short.embed("token_embd", 4), "token_embd")
