"""What the plan counts, and what it says when that is not there."""

from __future__ import annotations

import pytest

from minfer.engine.architectures import build_graph
from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.backends.step import CompileOptions
from minfer.engine.kv_cache import blocks_for
from minfer.engine.memory_plan import MemoryPlan, ModelTooLargeError, Planner
from minfer.engine.testing import TINY_MODELS, tiny_model
from minfer.gguf import open_bytes


@pytest.fixture
def planner() -> Planner:
    file = open_bytes(tiny_model(TINY_MODELS["gemma3"]))
    return Planner(build_graph(file.metadata, file), NumpyBackend(), file, CompileOptions(max_tokens=16))


def test_windowed_slots_stop_growing_with_the_context(planner: Planner) -> None:
    windowed, full = planner.graph.cache_groups
    assert planner.blocks(1600) == (blocks_for(windowed, 1600, 16), 100)
    assert planner.blocks(1600)[0] == planner.blocks(16000)[0] < 20
    assert planner.blocks(1600, n_sequences=3) == tuple(3 * n for n in planner.blocks(1600))
    assert full.window is None


def test_the_fitting_context_is_the_longest_one(planner: Planner) -> None:
    wanted = planner.plan(4096, 1 << 40)
    assert wanted.fits
    assert wanted.n_ctx_fitting == 4096
    less = wanted.weight_bytes + wanted.buffer_bytes + wanted.cache_bytes // 2
    tight = planner.plan(4096, less)
    assert not tight.fits
    assert 0 < tight.n_ctx_fitting < 4096
    assert planner.plan(tight.n_ctx_fitting, less).fits
    assert not planner.plan(tight.n_ctx_fitting + 1, less).fits


def test_nothing_fits_into_no_memory(planner: Planner) -> None:
    plan = planner.plan(100, 1000)
    assert plan.n_ctx_fitting == 0
    with pytest.raises(ModelTooLargeError) as caught:
        plan.check()
    assert caught.value.hint.startswith("no context fits")


def test_the_refusal_says_what_is_needed_available_and_fitting() -> None:
    gib = 1 << 30
    with pytest.raises(ModelTooLargeError) as caught:
        MemoryPlan(8192, 4 * gib, gib, 3 * gib, 6 * gib, 2048).check()
    assert caught.value.render() == (
        "Error: a context of 8192 tokens needs 8.0 GiB of memory (weights 4.0 GiB, buffers 1.0 GiB,"
        " KV cache 3.0 GiB); 6.0 GiB are available\n"
        "Hint: a context of 2048 tokens would fit: --n-ctx 2048"
    )
    assert caught.value.exit_status == 9
