"""How much of a prompt a step may hold, on a clock made of costs that the pace does not know."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from minfer.engine.pace import Pace, StepWork, attended

TARGET = 0.1
MOST = 512


@dataclass
class Machine:
    """Seconds of a row, of a position attended to, of a step that decodes; and how they scatter."""

    row: float = 0.9e-3
    position: float = 0.6e-6
    decode: float = 0.015
    scatter: float = 0.05
    slower: float = 1.0
    _draw: random.Random = field(default_factory=lambda: random.Random(1))

    def exact(self, work: StepWork) -> float:
        decode = self.decode if work.n_decoding else 0.0
        return self.slower * (decode + self.row * work.n_rows + self.position * work.n_attended)

    def seconds(self, work: StepWork) -> float:
        return self.exact(work) * self._draw.lognormvariate(0, self.scatter)


def _decode(pace: Pace, machine: Machine, n_steps: int = 30, n: int = 4) -> None:
    for _ in range(n_steps):
        pace.observe(StepWork(n), machine.seconds(StepWork(n)))


def _prefill(
    pace: Pace, machine: Machine, stop: int = 4096, start: int = 0, n: int = 4
) -> tuple[list[float], list[int]]:
    """The seconds and the rows of each step in which a prompt comes in beside n that decode."""
    times, rows = [], []
    while start < stop:
        rows.append(min(stop - start, pace.prompt_rows(n, start, MOST)))
        work = StepWork(n, rows[-1], attended(start, rows[-1]))
        times.append(machine.seconds(work))
        pace.observe(work, times[-1])
        start += rows[-1]
    return times, rows


def _fewest(machine: Machine, stop: int = 4096, start: int = 0) -> int:
    """Steps of someone who knows all costs and fills each to the target."""
    n_steps = 0
    while start < stop:
        rows = MOST
        while rows > 8 and machine.exact(StepWork(4, rows, attended(start, rows))) > TARGET:
            rows -= 1
        start += rows
        n_steps += 1
    return n_steps


def _p99(times: list[float]) -> float:
    return sorted(times)[int(0.99 * len(times))]


MACHINES = {
    "as measured": Machine(),
    "attention costs little": Machine(row=0.5e-3, position=0.02e-6),
    "attention costs much": Machine(row=0.2e-3, position=0.5e-6),
    "fast": Machine(row=0.1e-3, position=0.05e-6, decode=0.005),
    "shared with others": Machine(scatter=0.15),
}


@pytest.mark.parametrize("name", MACHINES)
def test_steps_stay_within_the_target_and_prompts_do_not_crawl(name: str) -> None:
    machine = MACHINES[name]
    pace = Pace(TARGET)
    _decode(pace, machine)
    for _ in range(3):  # the first time nothing is known of prompts
        times, _rows = _prefill(pace, machine)
        assert _p99(times) <= (1.2 if machine.scatter > 0.1 else 1.1) * TARGET
        assert len(times) <= 1.75 * _fewest(machine) + 3


def test_what_long_steps_taught_holds_for_short_ones() -> None:
    machine, pace = Machine(), Pace(TARGET)
    for start in range(0, 4096, MOST):  # nobody decodes: steps are as large as they can be
        assert pace.prompt_rows(0, start, MOST) == MOST
        work = StepWork(0, MOST, attended(start, MOST))
        pace.observe(work, machine.seconds(work))
    _decode(pace, machine)
    times, rows = _prefill(pace, machine)
    assert max(times) <= 1.2 * TARGET
    assert 40 <= rows[0] <= 88


def test_a_prompt_that_begins_deep_in_the_cache() -> None:
    machine, pace = Machine(), Pace(TARGET)
    _decode(pace, machine)
    _prefill(pace, machine, stop=600)
    times, _rows = _prefill(pace, machine, start=6000, stop=7000)  # where nothing was measured
    assert max(times) <= 1.2 * TARGET
    times, rows = _prefill(pace, machine, stop=600)
    assert max(times) <= 1.2 * TARGET  # what is deep taught nothing wrong of what is not
    assert rows[0] >= 40


def test_a_machine_that_slows_down_and_recovers() -> None:
    machine, pace = Machine(), Pace(TARGET)
    _decode(pace, machine)
    _prefill(pace, machine)
    machine.slower = 2.0
    _decode(pace, machine)
    times, _rows = _prefill(pace, machine, stop=2048)
    assert sum(seconds > 1.2 * TARGET for seconds in times) <= 3
    machine.slower = 1.0
    _decode(pace, machine)
    _times, rows = _prefill(pace, machine, stop=2048)
    assert max(rows[:20]) >= 48


def test_a_stall_is_forgotten() -> None:
    machine, pace = Machine(), Pace(TARGET)
    _decode(pace, machine)
    _times, before = _prefill(pace, machine, stop=1024)
    pace.observe(StepWork(4), 30.0)
    pace.observe(StepWork(4, 64, attended(0, 64)), 30.0)
    _times, rows = _prefill(pace, machine, stop=1024)
    assert sum(rows[:15]) > sum(before[:15]) / 3
    _decode(pace, machine)
    _times, rows = _prefill(pace, machine, stop=1024)
    assert len(rows) < 1.5 * len(before)


def test_more_that_decode_leave_less_for_prompts() -> None:
    pace = Pace(TARGET)
    for n, seconds in ((1, 0.01), (8, 0.05)):
        for _ in range(20):
            pace.observe(StepWork(n), seconds)
    for _ in range(20):
        pace.observe(StepWork(1, 64, attended(0, 64)), 0.01 + 64e-3)
    assert pace.prompt_rows(8, 0, MOST) < pace.prompt_rows(2, 0, MOST) == pace.prompt_rows(1, 0, MOST)


def test_prompts_never_stop_nor_start_large() -> None:
    pace = Pace(TARGET)
    assert pace.prompt_rows(4, 0, MOST) == 32
    pace.observe(StepWork(4), 3.0)
    pace.observe(StepWork(4, 32, attended(0, 32)), 9.0)
    assert pace.prompt_rows(4, 4000, MOST) == 8
    assert pace.prompt_rows(4, 4000, 7) == 7


def test_without_a_target_or_listeners_nothing_is_held_back() -> None:
    machine, pace = Machine(), Pace(0.0)
    _decode(pace, machine)
    assert pace.prompt_rows(4, 0, MOST) == MOST
    assert Pace(TARGET).prompt_rows(0, 0, MOST) == MOST


def test_positions_attended() -> None:
    assert attended(0, 1) == 1
    assert attended(10, 3) == 11 + 12 + 13
