"""Benchmark runs shaped like llama-bench's: a prompt of p ids, n single steps, or both, at a depth.

Ids are synthetic and nothing is sampled, so what is timed is the model's own work. A run at depth d begins
with d ids in the cache, which are put there untimed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from minfer.core.errors import UsageError
from minfer.engine.feeding import Feeder
from minfer.run.measure.prompts import synthetic_ids
from minfer.run.measure.statistics import spread

if TYPE_CHECKING:
    from minfer.engine.model import Model

_WARM_STEPS: Final = 4
_MAX_TESTS: Final = 1024


class NothingToMeasureError(UsageError):
    """The flags leave no test, or more than anyone waits for."""

    code = "nothing-to-measure"


@dataclass(frozen=True, slots=True)
class Workload:
    """One line of the table. n_prompt ids in one go, then n_gen single steps, after `depth` untimed ids."""

    n_prompt: int
    n_gen: int
    depth: int = 0

    @property
    def name(self) -> str:
        """As llama-bench writes it: pp512, tg128, pp512+tg128, pp512 @ d1024."""
        parts = [f"pp{self.n_prompt}"] if self.n_prompt else []
        parts += [f"tg{self.n_gen}"] if self.n_gen else []
        return "+".join(parts) + (f" @ d{self.depth}" if self.depth else "")

    @property
    def n_positions(self) -> int:
        """What the cache has to hold."""
        return self.depth + self.n_prompt + self.n_gen


@dataclass(frozen=True, slots=True)
class Result:
    """The tokens per second of each repetition of a test."""

    test: Workload
    n_threads: int
    samples: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Tokens per second."""
        return fmean(self.samples)

    @property
    def stddev(self) -> float:
        """Sample standard deviation (n - 1)."""
        return spread(self.samples)


def plan_tests(
    prompts: Sequence[int],
    gens: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    depths: Sequence[int],
) -> list[Workload]:
    """The tests for lists of -p, -n, -pg and -d; zeros are left out. Raises NothingToMeasureError."""
    shapes = [(n, 0) for n in prompts if n] + [(0, n) for n in gens if n]
    shapes += [pair for pair in pairs if any(pair)]
    tests = [Workload(n_prompt, n_gen, depth) for depth in depths for n_prompt, n_gen in shapes]
    if not tests:
        raise NothingToMeasureError(
            "-p 0 and -n 0 leave nothing to measure", hint="give -p, -n or -pg a number above 0"
        )
    if len(tests) > _MAX_TESTS:
        raise NothingToMeasureError(
            f"{len(tests)} tests are more than {_MAX_TESTS}", hint="give shorter lists"
        )
    return tests


def run_test(model: Model, test: Workload, reps: int, *, warm_up: bool) -> Result:
    """Time `reps` runs, after an untimed one of the same shape with fewer single steps."""
    feeder = Feeder(model, model.new_cache(test.n_positions))
    if warm_up:
        _run(model, feeder, Workload(test.n_prompt, min(test.n_gen, _WARM_STEPS), test.depth))
    seconds = [_run(model, feeder, test) for _ in range(reps)]
    n_tokens = test.n_prompt + test.n_gen
    return Result(test, model.n_threads, tuple(n_tokens / one for one in seconds))


def _run(model: Model, feeder: Feeder, test: Workload) -> float:
    """Seconds of one run."""
    ids = synthetic_ids(test.n_positions, model.tokenizer.n_vocab)
    if not feeder.truncate(test.depth) or feeder.sequence.length < test.depth:
        feeder.clear()
        feeder.feed(ids[: test.depth])
    prompt = ids[test.depth : test.depth + test.n_prompt]
    steps = [ids[at : at + 1] for at in range(test.depth + test.n_prompt, test.n_positions)]
    began = time.perf_counter()
    if prompt:
        feeder.feed(prompt)
    for step in steps:
        feeder.feed(step)
    return time.perf_counter() - began
