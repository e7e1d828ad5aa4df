"""What each operation means: pure functions of float32 arrays, rows first."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from minfer.engine.graph import ops

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32] | npt.NDArray[np.intp]

_LEAST_WEIGHT_SUM = 2.0**-14  # the smallest normal half: what llama.cpp divides by at least


def norm(x: Floats, op: ops.Norm, weight: Floats | None, bias: Floats | None) -> Floats:
    """x / sqrt(mean(x²) + eps), or with the mean taken off first; over each group. (T, F) -> (T, F)"""
    parts = x if op.groups == 1 else x.reshape(len(x), op.groups, x.shape[1] // op.groups)
    n = parts.shape[-1]
    if op.kind == "layer":
        parts = parts - parts.mean(axis=-1, keepdims=True)
    power = np.vecdot(parts, parts)[..., None]
    power *= np.float32(1.0 / n)
    power += np.float32(op.eps)
    np.sqrt(power, out=power)
    y: Floats = parts / power
    per_group = weight is not None and weight.size == n
    if weight is not None and per_group:
        y *= weight
    y = y.reshape(x.shape)
    if weight is not None and not per_group:
        y *= weight
    if bias is not None:
        y += bias
    return y


def rotations(op: ops.Rope, positions: Integers) -> npt.NDArray[np.complex64]:
    """magnitude · exp(i · position · frequency), computed in float64. (T,) -> (T, 1, pairs)"""
    angles = positions[:, None].astype(np.float64) * np.asarray(op.frequencies, np.float64)
    turned = np.exp(1j * angles)
    turned *= op.magnitude
    return np.asarray(turned[:, None, :], np.complex64)


def rope(x: Floats, op: ops.Rope, turns: npt.NDArray[np.complex64]) -> Floats:
    """Rotate pairs of features of each head; `turns` from `rotations`. (T, H·D) -> (T, H·D)"""
    n_pairs = len(op.frequencies)
    y = np.array(x).reshape(len(x), op.n_heads, op.head_dim)
    part = y[:, :, op.offset : op.offset + 2 * n_pairs]
    if op.pairing == "neighbours":
        pairs = part.view(np.complex64)
        pairs *= turns
        return y.reshape(x.shape)
    cosine, sine = turns.real, turns.imag
    first, second = part[:, :, :n_pairs], part[:, :, n_pairs:]
    rotated = first * cosine
    rotated -= second * sine
    second *= cosine
    first *= sine  # still the unrotated half
    second += first
    first[...] = rotated
    return y.reshape(x.shape)


def _silu(x: Floats) -> Floats:
    y = np.negative(x)
    np.exp(y, out=y)
    y += np.float32(1)
    np.divide(x, y, out=y)
    return y


def _gelu_tanh(x: Floats) -> Floats:
    inner = x * x
    inner *= np.float32(0.044715)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(math.sqrt(2.0 / math.pi))
    np.tanh(inner, out=inner)
    inner += np.float32(1)
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _gelu(x: Floats) -> Floats:
    scaled = (x.astype(np.float64) * math.sqrt(0.5)).ravel()
    erf = np.fromiter(map(math.erf, scaled), np.float64, scaled.size).reshape(x.shape)
    return np.asarray(0.5 * x * (1.0 + erf), np.float32)


def _relu(x: Floats) -> Floats:
    return np.maximum(x, np.float32(0))


def _relu_squared(x: Floats) -> Floats:
    y: Floats = np.square(_relu(x))
    return y


ACTIVATIONS: dict[ops.ActivationKind, Callable[[Floats], Floats]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
    "relu_squared": _relu_squared,
}


def glu(gate: Floats, up: Floats, op: ops.Glu) -> Floats:
    """activation(gate) · up. With a clamp, gpt-oss's: gate·sigmoid(1.702·gate)·(up + 1), both limited."""
    if op.clamp > 0.0:
        gate = np.minimum(gate, np.float32(op.clamp))
        up = np.clip(up, np.float32(-op.clamp), np.float32(op.clamp)) + np.float32(1)
        return np.asarray(gate / (1 + np.exp(np.float32(-1.702) * gate)) * up, np.float32)
    y = ACTIVATIONS[op.kind](gate)
    y *= up
    return y


def softcap(x: Floats, cap: float) -> Floats:
    """cap · tanh(x / cap)."""
    y: Floats = np.tanh(x / np.float32(cap))
    y *= np.float32(cap)
    return y


def route(logits: Floats, op: ops.Route, bias: Floats | None) -> tuple[Integers, Floats]:
    """Expert ids and weights, both (T, n_used), by falling score and then by id. (T, E) -> …"""
    scores = logits
    if op.kind == "softmax":
        scores = softmax(logits)
    elif op.kind == "sigmoid":
        scores = np.asarray(1 / (1 + np.exp(-logits)), np.float32)
    choice = scores if bias is None else scores + bias
    if op.n_groups > 1:
        choice = _within_best_groups(choice, op)
    ids = np.argsort(-choice, axis=-1, kind="stable")[:, : op.n_used]
    weights = np.take_along_axis(scores, ids, axis=-1)
    if op.kind == "softmax_of_chosen":
        weights = softmax(weights)
    if op.renormalise:
        weights = weights / np.maximum(weights.sum(axis=-1, keepdims=True), np.float32(_LEAST_WEIGHT_SUM))
    return ids, weights * np.float32(op.scale)


def _within_best_groups(scores: Floats, op: ops.Route) -> Floats:
    """Scores with minus infinity outside the groups whose two best experts sum highest."""
    grouped = scores.reshape(len(scores), op.n_groups, scores.shape[1] // op.n_groups)
    best_two = np.sort(grouped, axis=-1)[:, :, -2:].sum(axis=-1)
    kept = np.argsort(-best_two, axis=-1, kind="stable")[:, : op.n_groups_used]
    masked = np.full_like(grouped, -np.inf)
    rows = np.arange(len(scores))[:, None]
    masked[rows, kept] = grouped[rows, kept]
    return masked.reshape(scores.shape)


def softmax(x: Floats) -> Floats:
    """exp(x) over its sum, along the last axis."""
    y: Floats = np.exp(x - x.max(axis=-1, keepdims=True))
    y /= y.sum(axis=-1, keepdims=True)
    return y


def combine(x: Floats, weights: Floats) -> Floats:
    """Sum over ranks of each token's pairs, in rank order. (T·n_used, F), (T, n_used) -> (T, F)"""
    n_tokens, n_used = weights.shape
    pairs = x.reshape(n_tokens, n_used, x.shape[1])
    total = pairs[:, 0] * weights[:, :1]
    for rank in range(1, n_used):
        total += pairs[:, rank] * weights[:, rank : rank + 1]
    return total


def l2_norm(x: Floats) -> Floats:
    """Each row over its Euclidean length; a row of zeros stays."""
    length = np.sqrt(np.vecdot(x, x))[:, None]
    y: Floats = x / np.maximum(length, np.float32(1e-12))
    return y
