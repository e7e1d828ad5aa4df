"""Rows out of a step's result, whichever backend it comes from."""

from __future__ import annotations

from array import array

import numpy as np

from minfer.engine.backends.step import StepResult
from minfer.engine.sampling import Candidates


def test_a_row_of_a_plain_buffer_is_the_row_of_an_array() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    plain = memoryview(array("f", matrix.ravel().tolist())).cast("B").cast("f", (3, 4))
    for logits in (matrix, plain):
        row = Candidates.of_step(StepResult(logits=logits, log_sum_exp=[0.0, 0.0, 0.0]), 1).row
        assert row is not None
        assert list(row) == [4.0, 5.0, 6.0, 7.0]
