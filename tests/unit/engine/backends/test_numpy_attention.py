"""Attention against the sum written out in float64, position by position."""

from __future__ import annotations

import math
from array import array

import numpy as np
import numpy.typing as npt
import pytest

from minfer.engine.backends.numpy_backend import attention
from minfer.engine.backends.numpy_backend.attention import Layout, attend, write
from minfer.engine.backends.numpy_backend.cache import NumpyCache
from minfer.engine.backends.numpy_backend.workers import Workers
from minfer.engine.backends.step import SequenceStep, StepBatch
from minfer.engine.graph import ops
from minfer.engine.graph.ops import CacheSpec, Graph

_N_Q, _N_KV, _DK, _DV = 6, 2, 8, 4
_RANDOM = np.random.default_rng(3)


def _floats(*shape: int) -> npt.NDArray[np.float32]:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _slope(head: int, bias: float) -> float:
    """ALiBi's slopes for 6 heads: 4 of a geometric series, then every other one of a finer series."""
    power = -bias / 4 * (head + 1) if head < 4 else -bias / 8 * (2 * (head - 4) + 1)
    return math.pow(2.0, power)


def _by_hand(  # noqa: PLR0917
    q: npt.NDArray[np.float32],
    k: npt.NDArray[np.float32],
    v: npt.NDArray[np.float32],
    at: int,
    op: ops.Attend,
    window: int | None,
    sinks: npt.NDArray[np.float32] | None,
) -> list[float]:
    """The output row of the query at position `at`."""
    out: list[float] = []
    for head in range(_N_Q):
        query = q.reshape(_N_Q, _DK)[head].astype(np.float64)
        logits = {}
        for position in range(len(k)):
            if (op.causal and position > at) or (window is not None and at - position >= window):
                continue
            logit = op.scale * float(query @ k.reshape(-1, _N_KV, _DK)[position, head // 3])
            if op.softcap:
                logit = op.softcap * math.tanh(logit / op.softcap)
            if op.alibi_max_bias:
                logit -= _slope(head, op.alibi_max_bias) * abs(at - position)
            logits[position] = logit
        total = sum(map(math.exp, logits.values())) + (0 if sinks is None else math.exp(sinks[head]))
        values = v.reshape(-1, _N_KV, _DV)[:, head // 3].astype(np.float64)
        mixed = sum((math.exp(logit) / total * values[p] for p, logit in logits.items()), np.zeros(_DV))
        out += mixed.tolist()
    return out


@pytest.mark.parametrize("at_once", [1 << 20, 200])
@pytest.mark.parametrize(
    ("op", "has_sinks", "window"),
    [
        (ops.Attend(0, _N_Q, 0.4), False, None),
        (ops.Attend(0, _N_Q, 0.4), False, 5),
        (ops.Attend(0, _N_Q, 0.4), False, 20),
        (ops.Attend(0, _N_Q, 0.4, softcap=0.8), False, 20),
        (ops.Attend(0, _N_Q, 0.4), True, None),
        (ops.Attend(0, _N_Q, 0.4), True, 5),
        (ops.Attend(0, _N_Q, 0.4, causal=False), False, None),
        (ops.Attend(0, _N_Q, 0.4, alibi_max_bias=8.0), False, None),
    ],
)
def test_attention(
    monkeypatch: pytest.MonkeyPatch, op: ops.Attend, has_sinks: bool, window: int | None, at_once: int
) -> None:
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", at_once)
    monkeypatch.setattr(attention, "_WORTH_SHARING", at_once)
    spec = CacheSpec("kv", _N_KV, _DK, _DV, window, "f32")
    cache = NumpyCache(Graph((), (spec,), 0), (6,), compact=False)
    n_before, n = 30, 23
    k, v, q = _floats(53, _N_KV * _DK), _floats(53, _N_KV * _DV), _floats(n, _N_Q * _DK)
    sinks = _floats(_N_Q) if has_sinks else None
    table = array("i", [4, 0, 5, 2])
    for first, last in ((0, n_before), (n_before, n_before + n)):
        positions = array("i", range(first, last))
        step = SequenceStep(0, last - first, first, (table,))
        batch = StepBatch(positions, positions, positions, (step,), array("i"))
        layout = Layout(batch, 0, spec)
        write(cache, 0, spec, layout.targets, (k[first:last], v[first:last]))
    found, probabilities = attend(q, op, (layout, cache, Workers(2)), sinks, keeps=True)
    for row in range(n):
        expected = _by_hand(q[row], k, v, n_before + row, op, window, sinks)
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-5)
    assert probabilities[0].shape == (_N_Q, n, 53)
    values = v.reshape(-1, _N_KV, _DV).repeat(3, axis=1)
    mixed = np.einsum("hrp,phd->rhd", probabilities[0], values).reshape(n, -1)
    np.testing.assert_allclose(mixed, found, rtol=1e-4, atol=1e-5)
