"""The registry, and what each family makes of metadata."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import minfer.engine.architectures as package
from minfer.core.errors import ModelFileError
from minfer.engine.architectures import BuildOptions, build_graph, find, gemma3, supported
from minfer.engine.architectures.errors import HyperparameterError, UnsupportedArchitectureError
from minfer.engine.graph import ops
from minfer.engine.graph.ops import Graph
from minfer.engine.testing import TINY_MODELS, TinyModel, tiny_model
from minfer.gguf import GGUFFile, open_bytes
from minfer.gguf.encode import encode_scalar
from minfer.gguf.errors import MetadataKeyError
from minfer.gguf.writer import encoded, tensors_of, write_stream

_SHARED_PARTS = {"__init__", "errors", "family", "rope", "transformer"}


def _changed(model: TinyModel, pairs: Mapping[str, Any], without: str = "") -> GGUFFile:
    """A tiny model with other metadata, and perhaps without one key."""
    file = open_bytes(tiny_model(model))
    metadata = encoded(file.metadata) | dict(pairs)
    metadata.pop(without, None)
    stream = io.BytesIO()
    write_stream(stream, metadata, tensors_of(file))
    return open_bytes(stream.getvalue())


def _graph(model: TinyModel, pairs: Mapping[str, Any], without: str = "") -> Graph:
    file = _changed(model, pairs, without)
    return build_graph(file.metadata, file)


def test_every_family_file_is_registered() -> None:
    files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - _SHARED_PARTS
    rows = {family.module for family in package.ARCHITECTURES}
    assert rows == files


def test_every_supported_name_has_a_tiny_model() -> None:
    assert {model.architecture for model in TINY_MODELS.values()} == set(supported())


def test_an_unknown_architecture_is_named_with_the_supported_ones() -> None:
    with pytest.raises(UnsupportedArchitectureError) as caught:
        find("mamba")
    assert caught.value.fact == "architecture 'mamba' is not supported"
    assert all(name in caught.value.hint for name in supported())
    assert caught.value.exit_status == 4


@pytest.mark.parametrize("name", TINY_MODELS)
def test_rows_that_want_no_logits_skip_the_last_feed_forward(name: str) -> None:
    file = open_bytes(tiny_model(TINY_MODELS[name]))
    graph = build_graph(file.metadata, file)
    last_attention = max(i for i, node in enumerate(graph) if isinstance(node.op, ops.Attend))
    for node in graph.nodes[last_attention + 1 :]:
        assert node.rows in (ops.Rows.LOGITS, ops.Rows.PAIRS)


@pytest.mark.parametrize("kv_type", ["f16", "f32"])
def test_the_cache_has_the_type_that_was_asked_for(kv_type: Any) -> None:  # noqa: ANN401
    file = open_bytes(tiny_model(TINY_MODELS["gemma3"]))
    graph = build_graph(file.metadata, file, BuildOptions(kv_type))
    assert {spec.dtype for spec in graph.cache_slots} == {kv_type}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("attention.head_count", 0),
        ("attention.head_count_kv", 3),
        ("block_count", 0),
        ("block_count", 1 << 20),
        ("embedding_length", 1 << 30),
        ("attention.key_length", 0),
        ("feed_forward_length", 0),
        ("context_length", 0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.layer_norm_rms_epsilon", -1.0),
    ],
)
def test_impossible_numbers_are_named(key: str, value: float) -> None:
    with pytest.raises(HyperparameterError, match=key.replace(".", r"\.")):
        _graph(TINY_MODELS["llama"], {f"llama.{key}": value})


def test_more_experts_used_than_there_are_is_refused() -> None:
    with pytest.raises(HyperparameterError, match="expert_used_count"):
        _graph(TINY_MODELS["llama-experts"], {"llama.expert_used_count": 5})


def test_experts_have_a_width_of_their_own_or_share_the_dense_one() -> None:
    llama, qwen = TINY_MODELS["llama-experts"], TINY_MODELS["qwen3moe"]
    assert _graph(llama, {"llama.expert_feed_forward_length": 7}) == _graph(llama, {})
    assert _graph(qwen, {"qwen3moe.feed_forward_length": 7}) == _graph(qwen, {})
    shared = {"qwen3moe.feed_forward_length": 2 * qwen.feed_forward}  # two experts are used
    assert _graph(qwen, shared, without="qwen3moe.expert_feed_forward_length") == _graph(qwen, {})


def test_a_missing_key_is_named() -> None:
    with pytest.raises(MetadataKeyError, match=r"qwen2\.block_count"):
        _graph(TINY_MODELS["qwen2"], {}, without="qwen2.block_count")


@pytest.mark.parametrize("name", TINY_MODELS)
def test_metadata_that_do_not_match_the_tensors_are_refused(name: str) -> None:
    model = TINY_MODELS[name]
    with pytest.raises(ModelFileError, match="shape"):
        _graph(model, {f"{model.architecture}.attention.head_count": model.n_heads * 2})


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_keys_of_other_architectures_are_ignored(name: str) -> None:
    model = TINY_MODELS[name]
    other = {
        f"{name}.attention.sliding_window": 8,
        f"{name}.final_logit_softcapping": 30.0,
        f"{name}.attn_logit_softcapping": 50.0,
        f"{name}.attention.scale": 9.0,
        f"{name}.embedding_scale": 3.0,
    }
    assert _graph(model, other) == _graph(model, {})


def _windows(graph: Graph) -> list[int | None]:
    return [spec.window for spec in graph.cache_slots]


def test_gemmas_windows_follow_a_period_or_a_list() -> None:
    model, key = TINY_MODELS["gemma3"], "gemma3.attention.sliding_window_pattern"
    w = model.window
    assert _windows(_graph(model, {})) == [w, w, w, w, w, None, w]
    assert _windows(_graph(model, {key: 2})) == [w, None, w, None, w, None, w]
    listed = [1, 0, 0, 1, 1, 0, 1]
    assert _windows(_graph(model, {key: listed})) == [w if one else None for one in listed]
    assert _windows(_graph(model, {"gemma3.attention.sliding_window": 0})) == [None] * 7
    with pytest.raises(HyperparameterError, match="pattern"):
        _graph(model, {key: [1, 0]})


def test_gemmas_windowed_layers_rotate_by_themselves() -> None:
    scaled = {
        "gemma3.rope.freq_base": 1e6,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
    }
    graph = _graph(TINY_MODELS["gemma3"], scaled)
    ropes = {node.name: node.op for node in graph if isinstance(node.op, ops.Rope)}
    windowed, full = ropes["blk.0.attn_q_rope"], ropes["blk.5.attn_q_rope"]
    n = 2 * len(full.frequencies)
    assert windowed.frequencies == pytest.approx([10000.0 ** (-2 * i / n) for i in range(n // 2)])
    assert full.frequencies == pytest.approx([1e6 ** (-2 * i / n) / 8 for i in range(n // 2)])


def test_gemmas_embeddings_are_scaled_and_its_logits_capped_when_told() -> None:
    model = TINY_MODELS["gemma3"]
    plain = _graph(model, {})
    assert plain.nodes[1].op == ops.Scale(math.sqrt(model.width))
    assert isinstance(plain.nodes[plain.logits].op, ops.Head)
    capped = _graph(model, {"gemma3.final_logit_softcapping": encode_scalar(30.0)})
    assert capped.nodes[capped.logits].op == ops.Softcap(30.0)


def test_only_gemmas_largest_size_scales_attention_by_its_width() -> None:
    model = TINY_MODELS["gemma3"]
    config = gemma3.Config.read(open_bytes(tiny_model(model)).metadata)
    assert config.attention_scale == 1 / math.sqrt(model.head_dim)
    large = _changed(TinyModel("gemma3", width=96), {"gemma3.block_count": 62}).metadata
    assert gemma3.Config.read(large).attention_scale == 1 / math.sqrt(96 / model.n_heads)
