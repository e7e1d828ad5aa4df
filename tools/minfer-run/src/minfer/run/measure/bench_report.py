"""Benchmark results on stdout: a table as they come, or rows for programs."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minfer.run.measure.bench import Result

_MIB, _GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that was measured. size: bytes of all parts; params: elements of all tensors."""

    model: str
    size: int
    params: int
    backend: str


class Report:
    """Writes one benchmark in one of the formats."""

    def __init__(self, output: str, subject: Subject, environment: dict[str, Any]) -> None:
        """output: md, csv, json or jsonl."""
        self._output = output
        self._subject = subject
        self._environment = environment
        self._widths = [len(subject.model), 10, 10, max(len(subject.backend), 7), 7, 15, 20]
        self._rows: list[dict[str, Any]] = []

    def begin(self) -> None:
        """What stands before the rows."""
        if self._output == "md":
            names = ("model", "size", "params", "backend", "threads", "test", "t/s")
            self._table_row(names)
            first, *others = self._widths
            lines = ["-" * (first + 2), *("-" * (width + 1) + ":" for width in others)]
            _write("|" + "|".join(lines) + "|\n")
        elif self._output == "csv":
            _write(_csv("model", "size", "params", "backend", "threads", "test", "ts_mean", "ts_stddev"))

    def add(self, result: Result) -> None:
        """One result, at once unless the format is one JSON array."""
        row = row_of(result, self._subject, self._environment)
        match self._output:
            case "json":
                self._rows.append(row)
            case "jsonl":
                _write(json.dumps(row) + "\n")
            case "csv":
                names = ("model", "size", "params", "backend", "threads", "test")
                speed = (f"{result.mean:.2f}", f"{result.stddev:.2f}")
                _write(_csv(*(row[name] for name in names), *speed))
            case _:
                subject = self._subject
                self._table_row((
                    subject.model, _size(subject.size), _count(subject.params), subject.backend,
                    str(result.n_threads), result.test.name, f"{result.mean:.2f} ± {result.stddev:.2f}",
                ))  # fmt: skip

    def end(self) -> None:
        """What stands after the rows."""
        if self._output == "json":
            _write(json.dumps(self._rows, indent=1) + "\n")

    def _table_row(self, cells: tuple[str, ...]) -> None:
        first, *others = (
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, self._widths, strict=True))
        )
        _write("| " + " | ".join((first, *others)) + " |\n")


def row_of(result: Result, subject: Subject, environment: dict[str, Any]) -> dict[str, Any]:
    """One result with all that belongs to it, for JSON and for later comparison."""
    return {
        "model": subject.model,
        "size": subject.size,
        "params": subject.params,
        "backend": subject.backend,
        "threads": result.n_threads,
        "test": result.test.name,
        "n_prompt": result.test.n_prompt,
        "n_gen": result.test.n_gen,
        "n_depth": result.test.depth,
        "ts_mean": round(result.mean, 4),
        "ts_stddev": round(result.stddev, 4),
        "samples_ts": [round(one, 4) for one in result.samples],
        "environment": environment,
    }


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def _csv(*cells: object) -> str:
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(cells)
    return line.getvalue()


def _size(n_bytes: int) -> str:
    return f"{n_bytes / _GIB:.2f} GiB" if n_bytes >= _GIB else f"{n_bytes / _MIB:.2f} MiB"


def _count(n: int) -> str:
    return f"{n / 1e9:.2f} B" if n >= 10**9 else f"{n / 1e6:.2f} M"
