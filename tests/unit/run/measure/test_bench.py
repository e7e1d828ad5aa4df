"""Which tests the flags mean, what a run feeds, and what a baseline says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minfer.run.measure.baseline import BaselineError, SlowerError, check, compare, read_baseline
from minfer.run.measure.bench import NothingToMeasureError, Result, Workload, plan_tests
from minfer.run.measure.bench_report import Subject, row_of
from minfer.run.measure.environment import Disturbance, fingerprint

SUBJECT = Subject("m.gguf", 100, 50, "native")


def test_every_combination_is_a_test() -> None:
    tests = plan_tests((512, 0), (128,), ((64, 16),), (0, 256))
    assert [one.name for one in tests] == [
        "pp512", "tg128", "pp64+tg16", "pp512 @ d256", "tg128 @ d256", "pp64+tg16 @ d256",
    ]  # fmt: skip
    assert tests[-1].n_positions == 64 + 16 + 256


def test_nothing_and_too_much() -> None:
    with pytest.raises(NothingToMeasureError):
        plan_tests((0,), (0,), (), (0,))
    with pytest.raises(NothingToMeasureError, match="more than 1024"):
        plan_tests(tuple(range(1, 257)), (), (), tuple(range(5)))


def _result(*samples: float, name: str = "tg") -> Result:
    return Result(Workload(0, 16) if name == "tg" else Workload(16, 0), 2, samples)


def _baseline(folder: Path, *results: Result) -> Path:
    path = folder / "base.json"
    path.write_text(json.dumps([row_of(one, SUBJECT, {}) for one in results]))
    return path


def test_a_clear_loss_fails_and_noise_does_not(tmp_path: Path) -> None:
    baseline = read_baseline(_baseline(tmp_path, _result(100, 101, 99)))
    slower = compare(baseline, [_result(80, 81, 79)], "m.gguf")
    assert slower[0].percent == pytest.approx(-20)
    check(slower, 25)
    with pytest.raises(SlowerError, match=r"tg16: 80.00 t/s, was 100.00 \(-20.0 %, p = ") as failure:
        check(slower, 5)
    assert failure.value.exit_status == 8
    check(compare(baseline, [_result(60, 120, 70)], "m.gguf"), 5)  # far below, but it may be chance
    check(compare(baseline, [_result(80)], "m.gguf"), 5)  # one sample tells nothing


def test_lines_are_read_as_well_as_one_array(tmp_path: Path) -> None:
    rows = [row_of(_result(1, 2), SUBJECT, {}), row_of(_result(3, name="pp"), SUBJECT, {})]
    path = tmp_path / "lines"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    assert read_baseline(path) == {("m.gguf", "tg16", 2): (1.0, 2.0), ("m.gguf", "pp16", 2): (3.0,)}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "[1]", "x", '[{"model": "m"}]', "[" * 100_000,
     '[{"model": "m", "test": "t", "threads": 1, "samples_ts": [0]}]',
     '[{"model": "m", "test": "t", "threads": 1, "samples_ts": [NaN]}]'],
)  # fmt: skip
def test_a_broken_baseline_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "b").write_text(text)
    with pytest.raises(BaselineError, match=str(tmp_path / "b")):
        read_baseline(tmp_path / "b")


def test_a_check_that_compares_nothing_does_not_pass(tmp_path: Path) -> None:
    baseline = read_baseline(_baseline(tmp_path, _result(1, 2)))
    with pytest.raises(BaselineError, match="none of the tests"):
        compare(baseline, [_result(1, 2, name="pp")], "m.gguf")
    with pytest.raises(BaselineError, match="none of the tests"):
        compare(baseline, [_result(1, 2)], "other.gguf")


def test_what_disturbed_a_measurement(tmp_path: Path) -> None:
    for folder in ("proc", "sys/fs/cgroup"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/loadavg").write_text("9999.0 1 1 1/1 1\n")
    (tmp_path / "proc/stat").write_text("cpu  10 0 10 80 0 0 0 0 0 0\ncpu0 1\n")
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("nr_periods 5\nnr_throttled 2\n")
    before = Disturbance.now(tmp_path)
    (tmp_path / "proc/stat").write_text("cpu  20 0 20 150 0 0 0 10 0 0\ncpu0 1\n")
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("nr_periods 5\nnr_throttled 6\n")
    loaded, stolen, throttled = before.warnings()
    assert "load average 9999" in loaded
    assert "10 % of the CPU time" in stolen
    assert "4 times" in throttled
    (tmp_path / "proc/loadavg").write_text("0.0 1 1 1/1 1\n")
    assert Disturbance.now(tmp_path).warnings() == ()


def test_the_fingerprint_is_json(tmp_path: Path) -> None:
    facts = fingerprint(tmp_path)
    assert json.loads(json.dumps(facts)) == facts
    assert facts["governor"] is None
