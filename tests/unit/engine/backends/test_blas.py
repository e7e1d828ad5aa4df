"""BLAS uses as many threads as a program was compiled for."""

from __future__ import annotations

from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from engine_steps import Runner, random_ids
from minfer.engine.backends.numpy_backend import NumpyBackend
from minfer.engine.backends.step import CompileOptions
from minfer.engine.testing import TINY_MODELS


def _blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_threads_follow_the_program_that_runs() -> None:
    model = TINY_MODELS["llama"]
    one = Runner.of(NumpyBackend(), model, options=CompileOptions(n_threads=1))
    two = Runner.of(NumpyBackend(), model, options=CompileOptions(n_threads=2))
    one.logits(random_ids(3))
    assert _blas_threads() == {1}
    two.logits(random_ids(3))
    assert _blas_threads() == {2}
    one.logits(random_ids(3))
    assert _blas_threads() == {1}
