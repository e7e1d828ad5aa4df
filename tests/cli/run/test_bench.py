"""`minfer-run bench` as users meet it, on a tiny model."""

from __future__ import annotations

import csv
import json

import pytest

from minfer.engine.testing import TinyModel, tiny_model
from program import Program, minfer_run

__all__ = ["minfer_run"]

SMALL = ("-p", "24", "-n", "4", "-r", "3", "-t", "1")


@pytest.fixture
def tiny(minfer_run: Program) -> Program:
    """A world with `tiny.gguf` in the cache."""
    (minfer_run.cache / "tiny.gguf").write_bytes(tiny_model(TinyModel("gemma3", n_layers=7)))
    return minfer_run


def test_a_table_for_people_and_progress_on_stderr(tiny: Program) -> None:
    outcome = tiny("bench", "tiny", *SMALL, "-pg", "8,2", "-d", "0,90")
    assert outcome.status == 0
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in outcome.out.splitlines()]
    assert lines[0] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert [line[5] for line in lines[2:]] == [
        "pp24", "tg4", "pp8+tg2", "pp24 @ d90", "tg4 @ d90", "pp8+tg2 @ d90",
    ]  # fmt: skip
    assert len({len(line) for line in outcome.out.splitlines()}) == 1
    assert "1 of 6: pp24, 1 thread\n" in outcome.err


def test_json_has_samples_and_environment_and_is_a_baseline(tiny: Program) -> None:
    outcome = tiny("bench", "tiny", "-q", *SMALL, "-o", "json")
    rows = json.loads(outcome.out)
    assert [row["test"] for row in rows] == ["pp24", "tg4"]
    assert all(len(row["samples_ts"]) == 3 and row["environment"]["python"] for row in rows)
    assert rows[0]["size"] == (tiny.cache / "tiny.gguf").stat().st_size
    for row in rows:
        row["samples_ts"] = [1e9, 1e9 + 1, 1e9 + 2]
    (tiny.here / "base.json").write_text(json.dumps(rows))
    compared = tiny("bench", "tiny", *SMALL, "--baseline", "base.json")
    assert compared.status == 0
    assert "tg4: " in compared.err
    failed = tiny("bench", "-q", "tiny", *SMALL, "--baseline", "base.json", "--fail-below", "5")
    assert failed.status == 8
    assert failed.err.startswith("Error: slower than the baseline by more than 5 %: pp24: ")


def test_csv_quotes_and_lines_are_objects(tiny: Program) -> None:
    rows = list(csv.DictReader(tiny("bench", "-q", "tiny", *SMALL, "-o", "csv").out.splitlines()))
    assert [row["test"] for row in rows] == ["pp24", "tg4"]
    assert float(rows[0]["ts_mean"]) > 0
    lines = tiny("bench", "-q", "tiny", *SMALL, "-n", "0", "-o", "jsonl").out.splitlines()
    assert [json.loads(line)["n_gen"] for line in lines] == [0]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-p", "0", "-n", "0"), "leave nothing to measure"),
        (("-p", "1-"), "'1-' is no number or range"),
        (("-pg", "5"), "'5' is not two numbers"),
        (("-p", "300"), "300 tokens are to be measured and the model's context has 256"),
        (("--fail-below", "5"), "--fail-below needs --baseline FILE"),
        (("--baseline", "absent"), "the baseline absent cannot be read"),
    ],
)
def test_mistakes(tiny: Program, flags: tuple[str, ...], message: str) -> None:
    outcome = tiny("bench", "-q", "tiny", "-n", "0", *flags)
    assert (outcome.status, outcome.out.count("\n") <= 2) == (2, True)
    assert message in outcome.err
