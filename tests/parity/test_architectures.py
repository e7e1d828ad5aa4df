"""Logits of tiny models of every family against llama.cpp's, under the settings that files carry."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from engine_steps import Runner, random_ids
from minfer.engine.architectures import BuildOptions
from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.testing import TINY_MODELS, TinyModel, tiny_model
from minfer.gguf import QuantType, open_bytes
from minfer.gguf.encode import Plain
from minfer.gguf.writer import StoredTensor, encoded, tensors_of, write_stream
from parity.llamacpp import LlamaContext, LlamaModel

pytestmark = pytest.mark.parity

_N_CTX = 256
_Tensors = dict[str, StoredTensor]


@dataclass(frozen=True)
class _Case:
    """A tiny model with more metadata (keys under the architecture's name) and changed tensors."""

    model: TinyModel
    pairs: Mapping[str, Plain]
    change: Callable[[_Tensors], None] = lambda _tensors: None


def _vector(name: str, values: list[float]) -> StoredTensor:
    return StoredTensor(name, (len(values),), QuantType.F32, np.array(values, "<f4").tobytes())


def _add(*vectors: tuple[str, list[float]]) -> Callable[[_Tensors], None]:
    def change(tensors: _Tensors) -> None:
        for name, values in vectors:
            tensors[name] = _vector(name, values)

    return change


def _join_qkv(tensors: _Tensors) -> None:
    """One tensor for q, k and v of each layer, in place of three."""
    for layer in range(2):
        parts = [tensors.pop(f"blk.{layer}.attn_{part}.weight") for part in "qkv"]
        rows = sum(part.shape[0] for part in parts)
        name = f"blk.{layer}.attn_qkv.weight"
        data = b"".join(bytes(part.data) for part in parts)
        tensors[name] = StoredTensor(name, (rows, parts[0].shape[1]), QuantType.F32, data)


def _untie(tensors: _Tensors) -> None:
    """An output matrix of its own: the table upside down."""
    table = tensors["token_embd.weight"]
    data = np.frombuffer(table.data, "<f4").reshape(table.shape)[::-1].tobytes()
    tensors["output.weight"] = replace(table, name="output.weight", data=data)


_YARN: dict[str, Plain] = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 64,
}
_LONG, _SHORT = [1.0 + 0.5 * i for i in range(8)], [1.0 + 0.1 * i for i in range(8)]
_CASES = {name: _Case(model, {}) for name, model in TINY_MODELS.items()} | {
    "llama, head of its own": _Case(TINY_MODELS["llama"], {}, _untie),
    "llama, q k v in one": _Case(TINY_MODELS["llama"], {}, _join_qkv),
    "llama, linear": _Case(TINY_MODELS["llama"], {"rope.scaling.factor": 4.0}),
    "llama, yarn": _Case(TINY_MODELS["llama"], _YARN),
    "llama, yarn with magnitude": _Case(TINY_MODELS["llama"], _YARN | {"rope.scaling.attn_factor": 1.3}),
    "llama, yarn, keys of others": _Case(
        TINY_MODELS["llama"], _YARN | {"rope.scaling.yarn_log_multiplier": 0.5, "attention.scale": 9.0}
    ),
    "llama, divisors": _Case(TINY_MODELS["llama"], {}, _add(("rope_freqs.weight", _LONG))),
    "llama, longrope": _Case(
        TINY_MODELS["llama"],
        {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64,
         "rope.scaling.attn_factor": 1.19},
        _add(("rope_factors_long.weight", _LONG), ("rope_factors_short.weight", _SHORT)),
    ),
    "llama, longrope unstretched": _Case(
        TINY_MODELS["llama"],
        {"rope.scaling.type": "longrope", "rope.scaling.original_context_length": _N_CTX},
        _add(("rope_factors_long.weight", _LONG), ("rope_factors_short.weight", _SHORT)),
    ),
    "qwen2, yarn": _Case(TINY_MODELS["qwen2"], _YARN),
    "qwen3, yarn": _Case(TINY_MODELS["qwen3"], _YARN),
    "qwen3moe, experts of their own size": _Case(
        replace(TINY_MODELS["qwen3moe"], feed_forward=32),
        {"feed_forward_length": 999, "expert_feed_forward_length": 32},
    ),
    "gemma3, scaled": _Case(
        TINY_MODELS["gemma3"],
        {"rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
         "attention.sliding_window_pattern": 3},
    ),
    "gemma3, capped": _Case(TINY_MODELS["gemma3"], {"final_logit_softcapping": 3.0}),
}  # fmt: skip


def _bytes(case: _Case) -> bytes:
    file = open_bytes(tiny_model(case.model))
    tensors = {tensor.name: tensor for tensor in tensors_of(file)}
    case.change(tensors)
    pairs = {f"{case.model.architecture}.{key}": value for key, value in case.pairs.items()}
    stream = io.BytesIO()
    write_stream(stream, encoded(file.metadata) | pairs, tensors.values())
    return stream.getvalue()


@pytest.mark.parametrize("name", _CASES)
def test_logits_of_tiny_models_are_llama_cpps(name: str, tmp_path: Path) -> None:
    data = _bytes(_CASES[name])
    path = tmp_path / "tiny.gguf"
    path.write_bytes(data)
    ids = random_ids(120)
    with (
        LlamaModel(path) as model,
        LlamaContext(model, n_ctx=_N_CTX, n_threads=1, kv_type="f32") as context,
    ):
        expected = context.decode(ids)
    found = Runner.of(NumpyBackend(), open_bytes(data), BuildOptions("f32", _N_CTX)).logits(ids)
    assert expected.std() > 0.2
    # llama.cpp looks gemma's GELU up in a table of half-precision numbers.
    bound = 6e-3 if name.startswith("gemma3") else 2e-3
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)
