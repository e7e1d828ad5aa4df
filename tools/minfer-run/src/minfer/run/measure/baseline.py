"""Today's figures against those of a file: which tests changed by more than chance explains."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from minfer.core.errors import CheckFailedError, UsageError
from minfer.run.measure.statistics import welch_p_value

if TYPE_CHECKING:
    from minfer.run.measure.bench import Result

_MAX_BYTES: Final = 16 << 20
SIGNIFICANT: Final = 0.05
"""A difference counts when chance alone would bring one so large less often than this."""

Key = tuple[str, str, int]


class BaselineError(UsageError):
    """The baseline cannot be read, or has nothing to compare with."""

    code = "bench-baseline"


class SlowerError(CheckFailedError):
    """A test is slower than the baseline by more than was allowed."""

    code = "bench-slower"


@dataclass(frozen=True, slots=True)
class Change:
    """One test then and now. p_value: how often chance brings such a difference; None: too few samples."""

    test: str
    before: float
    now: float
    p_value: float | None

    @property
    def percent(self) -> float:
        """Positive when it is faster now."""
        return 100 * (self.now / self.before - 1)

    @property
    def is_significant(self) -> bool:
        """Whether more than chance is in it."""
        return self.p_value is not None and self.p_value < SIGNIFICANT

    def __str__(self) -> str:
        chance = "too few samples to tell" if self.p_value is None else f"p = {self.p_value:.3g}"
        return f"{self.test}: {self.now:.2f} t/s, was {self.before:.2f} ({self.percent:+.1f} %, {chance})"


def read_baseline(path: Path) -> dict[Key, tuple[float, ...]]:
    """The samples by (model, test, threads) of a file that `bench -o json` or `-o jsonl` wrote."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except OSError as error:
        raise BaselineError(
            f"the baseline {path} cannot be read: {error.strerror}",
            hint="check the path; a baseline is what bench -o json or jsonl printed",
        ) from None
    if len(data) > _MAX_BYTES:
        raise BaselineError(f"the baseline {path} holds more than {_MAX_BYTES >> 20} MiB")
    hint = "write it with: minfer-run bench MODEL -o json > FILE"
    try:
        rows = _rows(data.decode())
        found = {_key(row): _samples(row) for row in rows}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BaselineError(f"{path} is no output of bench -o json or -o jsonl", hint=hint) from None
    if not found:
        raise BaselineError(f"the baseline {path} is empty", hint=hint)
    return found


def compare(baseline: Mapping[Key, tuple[float, ...]], results: Sequence[Result], model: str) -> list[Change]:
    """The tests that both have. Raises BaselineError when there is none: a check must not pass unasked."""
    changes = []
    for result in results:
        before = baseline.get((model, result.test.name, result.n_threads))
        if before is not None:
            p_value = welch_p_value(before, result.samples)
            changes.append(Change(result.test.name, fmean(before), result.mean, p_value))
    if not changes:
        tests = ", ".join(sorted({f"{name} of {model} with {n} threads" for model, name, n in baseline})[:8])
        raise BaselineError("the baseline has none of the tests that were run", hint=f"it has: {tests}")
    return changes


def check(changes: Sequence[Change], fail_below: float) -> None:
    """Raise SlowerError (exit status 8) when a test lost more than fail_below % and it is no chance."""
    slower = [one for one in changes if one.percent < -fail_below and one.is_significant]
    if slower:
        raise SlowerError(
            f"slower than the baseline by more than {fail_below:g} %: " + "; ".join(map(str, slower)),
            hint="measure again on an idle machine, with more repetitions (-r)",
        )


def _rows(text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _key(row: Mapping[str, Any]) -> Key:
    return str(row["model"]), str(row["test"]), int(row["threads"])


def _samples(row: Mapping[str, Any]) -> tuple[float, ...]:
    samples = tuple(float(one) for one in row["samples_ts"])
    if not samples or not all(0 < one < float("inf") for one in samples):
        raise ValueError("samples are speeds")
    return samples
