"""One benchmark from settings to a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from minfer.core.units import counted
from minfer.engine import LoadOptions
from minfer.run.measure.baseline import check, compare, read_baseline
from minfer.run.measure.bench import Result, Workload, run_test
from minfer.run.measure.bench_report import Report, Subject
from minfer.run.measure.environment import Disturbance, fingerprint
from minfer.run.measure.lists import require_room
from minfer.run.opening import opened_for
from minfer.run.status import Status

if TYPE_CHECKING:
    from minfer.engine.model import OpenedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchSettings:
    """What to measure and how to tell. threads: None is what the process may use."""

    reference: str
    tests: tuple[Workload, ...]
    threads: tuple[int | None, ...]
    reps: int
    kv_type: Literal["f16", "f32"]
    output: str
    warm_up: bool
    baseline: Path | None
    fail_below: float | None
    quiet: bool


def run_bench(settings: BenchSettings) -> None:
    """Measure and report. Raises SlowerError when the check that was asked for fails."""
    status = Status(quiet=settings.quiet)
    baseline = read_baseline(settings.baseline) if settings.baseline is not None else None
    before, environment = Disturbance.now(), fingerprint()
    results: list[Result] = []
    report: Report | None = None
    name = ""
    for n_threads in dict.fromkeys(settings.threads):
        options = LoadOptions(n_threads=n_threads, kv_type=settings.kv_type, max_logit_rows=1)
        with opened_for("bench", settings.reference, status, options) as opened:
            if report is None:
                name = opened.file.path.name
                report = Report(settings.output, _subject(opened), environment)
                report.begin()
            for result in _measure(opened, settings, status):
                report.add(result)
                results.append(result)
    if report is not None:
        report.end()
    for warning in before.warnings():
        status.say(f"Warning: {warning}")
    if baseline is not None:
        changes = compare(baseline, results, name)
        for change in changes:
            status.say(str(change))
        check(changes, math.inf if settings.fail_below is None else settings.fail_below)


def _measure(opened: OpenedModel, settings: BenchSettings, status: Status) -> Iterator[Result]:
    n_ctx = max(test.n_positions for test in settings.tests)
    require_room(n_ctx, opened.n_ctx_train, "-p, -n or -d")
    opened.plan(n_ctx).check()
    with opened.load() as model:
        for number, test in enumerate(settings.tests, 1):
            threads = counted(model.n_threads, "thread")
            status.say(f"{number} of {len(settings.tests)}: {test.name}, {threads}")
            yield run_test(model, test, settings.reps, warm_up=settings.warm_up)


def _subject(opened: OpenedModel) -> Subject:
    n_elements = sum(math.prod(tensor.shape) for tensor in opened.file.tensors.values())
    return Subject(opened.file.path.name, opened.file.n_bytes, n_elements, opened.backend_name)
