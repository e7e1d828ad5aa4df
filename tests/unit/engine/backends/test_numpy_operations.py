"""Each operation against its formula, written out in float64 for one row or one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minfer.engine.backends.numpy_backend import operations
from minfer.engine.backends.numpy_backend.head import top_ids
from minfer.engine.graph import ops

_RANDOM = np.random.default_rng(7)


def _floats(*shape: int) -> npt.NDArray[np.float32]:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _close(found: object, expected: object) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("groups", "n_weight"), [(1, 12), (3, 4), (3, 12), (1, 0)])
def test_norm(kind: str, groups: int, n_weight: int) -> None:
    x, weight, bias = _floats(5, 12), _floats(n_weight or 1), _floats(12)
    op = ops.Norm("rms" if kind == "rms" else "layer", 0.01, groups=groups)
    found = operations.norm(x, op, weight if n_weight else None, bias if kind == "layer" else None)
    for row, y in zip(x.astype(np.float64), found, strict=True):
        expected = []
        for part in np.split(row, groups):
            centred = part - part.mean() if kind == "layer" else part
            expected.append(centred / math.sqrt((centred**2).mean() + 0.01))
        full = np.concatenate(expected)
        if n_weight:
            full = full * np.resize(weight, 12)
        _close(y, full + bias if kind == "layer" else full)


@pytest.mark.parametrize("pairing", ["halves", "neighbours"])
@pytest.mark.parametrize("offset", [0, 2])
def test_rope_turns_pairs_and_leaves_the_rest(pairing: str, offset: int) -> None:
    frequencies = (1.0, 0.25, 0.01)
    op = ops.Rope(2, 10, frequencies, "halves" if pairing == "halves" else "neighbours", offset, 1.5)
    x, positions = _floats(3, 20), np.array([0, 5, 70000], np.int32)
    found = operations.rope(x, op, operations.rotations(op, positions))
    for t, position in enumerate(positions.tolist()):
        for head in range(2):
            old, new = x[t, head * 10 : head * 10 + 10], found[t, head * 10 : head * 10 + 10].copy()
            for i, frequency in enumerate(frequencies):
                a, b = (i, i + 3) if pairing == "halves" else (2 * i, 2 * i + 1)
                turned = complex(old[offset + a], old[offset + b])
                turned *= 1.5 * complex(math.cos(position * frequency), math.sin(position * frequency))
                _close([new[offset + a], new[offset + b]], [turned.real, turned.imag])
                new[offset + a], new[offset + b] = old[offset + a], old[offset + b]
            np.testing.assert_array_equal(new, old)


_FORMULAS: dict[ops.ActivationKind, Callable[[float], float]] = {
    "silu": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: max(x, 0.0),
    "relu_squared": lambda x: max(x, 0.0) ** 2,
}


@pytest.mark.parametrize("kind", _FORMULAS)
def test_activations(kind: ops.ActivationKind) -> None:
    x = np.linspace(-12, 12, 97, dtype=np.float32)[None]
    expected = [_FORMULAS[kind](float(value)) for value in x[0]]
    _close(operations.ACTIVATIONS[kind](x)[0], expected)
    _close(
        operations.glu(x, x, ops.Glu(kind))[0], [y * float(v) for y, v in zip(expected, x[0], strict=True)]
    )


def test_the_clamped_glu_limits_both_sides() -> None:
    gate, up = np.array([[9.0, -9.0, 1.0]], np.float32), np.array([[9.0, -9.0, 0.5]], np.float32)
    expected = [g / (1 + math.exp(-1.702 * g)) * (u + 1) for g, u in ((7.0, 7.0), (-9.0, -7.0), (1.0, 0.5))]
    _close(operations.glu(gate, up, ops.Glu("silu", clamp=7.0))[0], expected)


def test_softcap() -> None:
    _close(operations.softcap(np.array([[100.0, -3.0]], np.float32), 30.0)[0],
           [30 * math.tanh(100 / 30), 30 * math.tanh(-0.1)])  # fmt: skip


def test_routing_by_softmax_renormalises_and_scales() -> None:
    op = ops.Route("softmax", 2, renormalise=True, scale=2.5)
    ids, weights = operations.route(np.log(np.array([[1.0, 4.0, 2.0, 3.0]], np.float32)), op, None)
    assert ids.tolist() == [[1, 3]]
    _close(weights, [[2.5 * 4 / 7, 2.5 * 3 / 7]])


def test_routing_ties_go_to_the_lower_id() -> None:
    ids, _ = operations.route(np.zeros((1, 6), np.float32), ops.Route("softmax", 3), None)
    assert ids.tolist() == [[0, 1, 2]]


def test_a_routing_bias_shifts_the_choice_and_not_the_weight() -> None:
    logits, bias = np.array([[0.0, 1.0, 2.0]], np.float32), np.array([9.0, 0.0, 0.0], np.float32)
    ids, weights = operations.route(logits, ops.Route("sigmoid", 2), bias)
    assert ids.tolist() == [[0, 2]]
    _close(weights, [[0.5, 1 / (1 + math.exp(-2))]])


def test_routing_within_the_best_groups() -> None:
    # The best expert is in the first group, the better pair in the second.
    logits = np.log(np.array([[0.4, 0.1, 0.2, 0.3, 0.0001, 0.0001]], np.float32))
    op = ops.Route("softmax", 2, n_groups=3, n_groups_used=1)
    bias = np.array([0.0, 0.0, 0.1, 0.0, 0.0, 0.0], np.float32)
    assert operations.route(logits, op, bias)[0].tolist() == [[2, 3]]


def test_softmax_of_the_chosen_is_over_them_alone() -> None:
    ids, weights = operations.route(
        np.array([[1.0, 3.0, 2.0]], np.float32), ops.Route("softmax_of_chosen", 2), None
    )
    assert ids.tolist() == [[1, 2]]
    _close(weights, [[1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1))]])


def test_combine_sums_a_tokens_pairs() -> None:
    x, weights = _floats(6, 4), _floats(2, 3)
    expected = [sum(weights[t, r] * x[3 * t + r] for r in range(3)) for t in range(2)]
    _close(operations.combine(x, weights), expected)


def test_l2_norm_keeps_zero_rows() -> None:
    _close(operations.l2_norm(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32)), [[0.6, 0.8], [0.0, 0.0]])


@settings(max_examples=100)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 40))
def test_top_ids_fall_by_logit_and_rise_by_id(logits: list[int], k: int) -> None:
    expected = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:k]
    assert top_ids(np.array(logits, np.float32), k).tolist() == expected
