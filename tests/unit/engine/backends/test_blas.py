"""BLAS uses no threads of its own while a program runs."""

from __future__ import annotations

from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from engine_steps import Runner, random_ids
from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.backends.step import CompileOptions
from minfer.engine.testing import TINY_MODELS


def test_blas_works_in_the_thread_that_calls_it() -> None:
    runner = Runner.of(NumpyBackend(), TINY_MODELS["llama"], options=CompileOptions(n_threads=2))
    runner.logits(random_ids(3))
    assert {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"} == {1}
