"""How long a step takes, learned from steps, and how much of a prompt fits into one. Pure.

A row of a prompt costs the same product with every weight wherever it stands, and attention to all
positions before it: `row + position · depth`. A long prompt's last rows cost several times its first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_LEAST_ROWS: Final = 8  # fewer make a prompt wait for little: each step costs what decoding costs besides
_FIRST_ROWS: Final = 32  # while nothing is known of their cost
_GRAIN: Final = 8  # rows that kernels take at once
_MARGIN: Final = 0.85  # of the target: the rest is for what a step takes beyond its estimate
_MEMORY: Final = 0.3  # weight of the newest measurement in a mean
_DEARER: Final = 0.5  # weight of a step that took longer than estimated: it is believed at once,
_CHEAPER: Final = 0.2  # and a shorter one has to be repeated before steps grow
_MOST_SURPRISE: Final = 4.0  # a machine that slept says nothing of its speed
_FIRST_DEPTH: Final = 1000  # assumed at first: so many positions cost as much as the rest of a row
_SPREAD: Final = 300  # positions; measurements closer together say less of the slope than that assumption
_AGEING: Final = 0.98  # what a measurement still counts after one newer step


@dataclass(frozen=True, slots=True)
class StepWork:
    """What a step holds. n_decoding: sequences that decode; n_rows: rows of prompts; n_attended: the
    positions that these rows attend to, all together.
    """

    n_decoding: int
    n_rows: int = 0
    n_attended: int = 0


def attended(depth: int, n_rows: int) -> int:
    """The positions that n_rows rows attend to, of a sequence with `depth` positions before them."""
    return n_rows * depth + n_rows * (n_rows + 1) // 2


class Pace:
    """How many rows of prompts a step may hold so that those who decode meanwhile are not kept waiting."""

    def __init__(self, target: float = 0.0) -> None:
        """target: the longest step in seconds while somebody decodes; 0 sets no limit."""
        self._target = target
        self._cost = RowCost()
        self._decode: dict[int, float] = {}  # sequences that decode → seconds of a step without prompts

    def prompt_rows(self, n_decoding: int, depth: int, most: int) -> int:
        """The most rows of prompts for the next step, at least a few so that prompts always advance.

        depth: the positions before them; of several prompts, those of the deepest.
        """
        if not self._target or not n_decoding:
            return most
        left = max(0.0, self._target * _MARGIN - self._decode_step(n_decoding))
        rows = self._cost.rows_in(left, depth) if self._cost.is_known else _FIRST_ROWS
        return min(most, max(_LEAST_ROWS, rows - rows % _GRAIN))

    def observe(self, work: StepWork, seconds: float) -> None:
        """A step of that work took so long."""
        decode = self._decode_step(work.n_decoding) if work.n_decoding else 0.0
        if not work.n_rows:
            newest = min(seconds, 2 * decode) if decode else seconds
            self._decode[work.n_decoding] = _mixed(self._decode.get(work.n_decoding), newest)
            return
        if decode > seconds:  # it was measured while the machine was busy with something else
            self._decode[work.n_decoding] = decode = seconds
        if work.n_rows >= _LEAST_ROWS or not self._cost.is_known:
            self._cost.learn(work, max(seconds - decode, seconds / 10))

    def _decode_step(self, n_decoding: int) -> float:
        """Seconds of a step of so many sequences without prompts, or of the nearest number known."""
        nearest = min(self._decode, key=lambda n: abs(n - n_decoding), default=None)
        return 0.0 if nearest is None else self._decode[nearest]


@dataclass(slots=True)
class _Measured:
    """The mean of what was measured about some depth: seconds a row. age: steps since the last one."""

    depth: float
    seconds: float
    age: int = 0


class RowCost:
    """Seconds of a prompt's rows by their depth: a line through what was measured, times a level.

    The line keeps what each depth last cost, so a prompt that begins anew after a deep one finds the cost of
    beginnings. The level follows the newest steps, up fast and down slowly, so that it lies where most
    steps end and not in their middle: a machine that others use too makes it rise at every depth.
    """

    def __init__(self) -> None:
        self._measured: dict[int, _Measured] = {}  # by the octave of the depth
        self._row = self._position = 0.0
        self._level = 1.0

    @property
    def is_known(self) -> bool:
        """Whether anything was measured."""
        return bool(self._measured)

    def rows_in(self, seconds: float, depth: int) -> int:
        """How many rows after `depth` positions take so long."""
        # row · n + position · (n · depth + n² / 2) = seconds, for n
        row, position = self._level * self._row, self._level * self._position
        first = row + position * depth
        return int(2 * seconds / (first + math.sqrt(first * first + 2 * position * seconds)))

    def learn(self, work: StepWork, seconds: float) -> None:
        """The rows of that work took so long."""
        depth, newest = work.n_attended / work.n_rows, seconds / work.n_rows
        if self.is_known:
            estimate = self._level * (self._row + self._position * depth)
            surprise = min(_MOST_SURPRISE, max(1 / _MOST_SURPRISE, newest / estimate))
            self._level *= surprise ** (_DEARER if surprise > 1 else _CHEAPER)
            newest = estimate * surprise
        self._note(depth, newest)
        before = self._row + self._position * depth
        self._fit()
        if before:  # what the line has learned now is no longer the level's to add
            self._level = max(1.0, self._level * before / (self._row + self._position * depth))

    def _note(self, depth: float, seconds: float) -> None:
        for one in self._measured.values():
            one.age += 1
        octave = int(depth).bit_length()
        known = self._measured.get(octave)
        if known is None:
            self._measured[octave] = _Measured(depth, seconds)
        else:
            known.depth = _mixed(known.depth, depth)
            known.seconds = _mixed(known.seconds, seconds)
            known.age = 0

    def _fit(self) -> None:
        """The line by least squares, its slope held to the first assumption while depths lie close."""
        points = [(_AGEING**one.age, one.depth, one.seconds) for one in self._measured.values()]
        total = sum(weight for weight, _, _ in points)
        depth = sum(weight * x for weight, x, _ in points) / total
        seconds = sum(weight * y for weight, _, y in points) / total
        variance = sum(weight * (x - depth) ** 2 for weight, x, _ in points) / total
        covariance = sum(weight * (x - depth) * (y - seconds) for weight, x, y in points) / total
        assumed = seconds / (depth + _FIRST_DEPTH)
        slope = (covariance + _SPREAD**2 * assumed) / (variance + _SPREAD**2)
        self._position = min(max(slope, 0.0), 0.95 * seconds / depth)
        self._row = seconds - self._position * depth


def _mixed(known: float | None, newest: float) -> float:
    """A mean that forgets; the first value as it is."""
    return newest if known is None else known + _MEMORY * (newest - known)
