"""Logits of tiny models with every optional tensor, against llama.cpp's."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from engine_steps import all_logits
from minfer.engine.architectures import BuildOptions, build_graph
from minfer.engine.backends import choose
from minfer.engine.backends.step import CompileOptions
from minfer.gguf import open_gguf
from paths import shared

_MODELS = ("llama-dense", "llama-moe", "qwen2-dense", "qwen3-dense", "gemma3-dense")


@pytest.mark.parametrize("chunk", [96, 1, 7])
@pytest.mark.parametrize("weights", ["resident", "blockwise"])
@pytest.mark.parametrize("name", _MODELS)
def test_logits_are_those_of_llama_cpp(
    name: str, weights: Literal["resident", "blockwise"], chunk: int
) -> None:
    expected = np.load(shared(f"data/architectures/{name}.npz"))
    with open_gguf(shared(f"data/architectures/{name}.gguf")) as file:
        graph = build_graph(file.metadata, file, BuildOptions(kv_type="f32"))
        program = choose("numpy").compile(graph, file, CompileOptions(weights=weights))
    n_groups = len(graph.cache_groups)
    cache = program.new_cache((8,) * n_groups)
    found = all_logits(program, cache, expected["tokens"].tolist(), chunk, n_groups)
    np.testing.assert_allclose(found, expected["logits"], rtol=0, atol=2e-3)
