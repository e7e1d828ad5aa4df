"""Statistics of a few samples, in plain Python: spread, a fitted line, and Welch's test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Final, NamedTuple

_SMALL: Final = 1e-300
_STEPS: Final = 300


def percentile(samples: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the samples lie, interpolated between neighbours."""
    ordered = sorted(samples)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def spread(samples: Sequence[float]) -> float:
    """The sample standard deviation (n - 1); 0 for a single sample."""
    return math.sqrt(variance(samples)) if len(samples) > 1 else 0.0


class Line(NamedTuple):
    """y = intercept + slope · x."""

    intercept: float
    slope: float


def fit_line(points: Sequence[tuple[float, float]]) -> Line | None:
    """The line of least squares; None when the points do not differ in x."""
    mean_x, mean_y = fmean(x for x, _ in points), fmean(y for _, y in points)
    square = sum((x - mean_x) ** 2 for x, _ in points)
    if square == 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / square
    return Line(mean_y - slope * mean_x, slope)


def welch_p_value(first: Sequence[float], second: Sequence[float]) -> float | None:
    """How likely means that far apart, or farther, are by chance when both samples have one mean: two-sided,
    variances not taken as equal (Welch 1947). None when a sample has fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        return None
    parts = [variance(one) / len(one) for one in (first, second)]
    if sum(parts) == 0:
        return 1.0 if fmean(first) == fmean(second) else 0.0
    t = (fmean(first) - fmean(second)) / math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(one) - 1) for part, one in zip(parts, (first, second), strict=True)
    )
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast below the mean only
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    log_front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(log_front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """1 + d1/(1 + d2/(1 + …)), evaluated forwards by Lentz's method."""
    value = numerator = 1.0
    denominator = 0.0
    for step in range(1, _STEPS):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1.0 / _not_zero(1.0 + term * denominator)
        numerator = _not_zero(1.0 + term / numerator)
        value *= numerator * denominator
        if abs(numerator * denominator - 1.0) < 1e-13:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _SMALL else _SMALL
