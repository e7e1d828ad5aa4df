"""Statistics against published tables and worked examples."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from minfer.run.measure.statistics import fit_line, incomplete_beta, percentile, spread, welch_p_value


def test_spread_and_percentiles() -> None:
    assert spread([2, 4, 4, 4, 5, 5, 7, 9]) == pytest.approx(math.sqrt(32 / 7))
    assert spread([3.0]) == 0
    assert percentile([4, 1, 3, 2], 0.5) == 2.5
    assert percentile([10, 20, 30], 1.0) == 30


def test_a_line_through_points() -> None:
    line = fit_line([(1, 5), (2, 7), (4, 11)])
    assert line is not None
    assert [line.intercept, line.slope] == pytest.approx([3, 2])
    assert fit_line([(2, 1), (2, 3)]) is None


@pytest.mark.parametrize(
    ("t", "freedom", "p"),  # Student's t: the two-sided quantiles every table has
    [(12.706, 1, 0.05), (2.776, 4, 0.05), (4.604, 4, 0.01), (2.228, 10, 0.05), (1.645, 100_000, 0.1)],
)
def test_the_beta_function_gives_student_s_table(t: float, freedom: float, p: float) -> None:
    assert incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t)) == pytest.approx(p, rel=2e-3)


def test_the_beta_function_at_simple_values() -> None:
    assert incomplete_beta(1, 1, 0.3) == pytest.approx(0.3)
    assert incomplete_beta(2, 2, 0.5) == pytest.approx(0.5)
    assert incomplete_beta(2, 1, 0.6) == pytest.approx(0.36)
    values = [incomplete_beta(3, 0.5, x / 10) for x in range(11)]
    assert all(one < other for one, other in pairwise(values))


def test_welch_on_a_worked_example() -> None:
    # t = -2.46, 25.0 degrees of freedom, p = 0.021 (the first example of Wikipedia, "Welch's t-test")
    first = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9, 16.9, 20.1, 21.9, 22.6, 23.1, 19.6, 19.0, 21.7, 21.4]
    second = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0, 24.8, 20.2, 21.9, 22.1, 22.9, 20.5, 24.4]
    p = welch_p_value(first, second)
    assert p is not None
    assert round(p, 3) == 0.021


def test_welch_without_spread_or_samples() -> None:
    assert welch_p_value([1.0], [1.0, 2.0]) is None
    assert welch_p_value([2.0, 2.0], [2.0, 2.0]) == 1
    assert welch_p_value([2.0, 2.0], [3.0, 3.0]) == 0
