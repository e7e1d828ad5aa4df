"""What a template may spend: bounded work for every operation, and a bounded number of operations.

A template comes with a model file from anywhere. Nothing in a process can interrupt a single C call such as
`'x' * 10**10`, so no such call is begun: the size of what it would make is known before. Together with a
charge for every operation that bounds time and memory without threads or signals.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from minfer.engine.chat.marked_text import MarkedText

_WORK: Final = 4_000_000  # units: one is a step of an interpreter or eight characters copied
_LARGEST: Final = 1_000_000  # the same units, of a single value
_UNITS_PER_CHARACTER: Final = 8  # of input: what a template may do with it
_CHECK_EVERY: Final = 2000
_MOST_ITEMS: Final = 100_000
_MOST_WIDTH: Final = 1000  # of a padded field or an indent
_MOST_BITS: Final = 4096  # of an integer
_NUMBER: Final = re.compile(r"\d+")


class LimitError(Exception):
    """The template would take more work or memory than is allowed."""


class Budget:
    """The account of one rendering. `input_size`: characters of the messages."""

    def __init__(self, input_size: int, seconds: float) -> None:
        self._left = _WORK + _UNITS_PER_CHARACTER * input_size
        self._largest = _LARGEST + input_size
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        self._next_check = self._left
        self._weights: dict[int, tuple[object, int, bool]] = {}

    def spend(self, units: int) -> None:
        """Charge work that is about to be done."""
        self._left -= units
        if self._left <= self._next_check:
            self._next_check = self._left - _CHECK_EVERY
            if self._left < 0:
                raise LimitError("it does more work than any chat template should")
            if time.monotonic() > self._deadline:
                raise LimitError(f"it runs for more than {self._seconds:g} seconds")

    def spend_text(self, n_characters: int) -> None:
        """Charge a text that is about to be made."""
        self.check_size(n_characters // 8)
        self.spend(1 + n_characters // 8)

    def check_size(self, units: int) -> None:
        """Refuse a single value that is too large."""
        if units > self._largest:
            raise LimitError("it makes a value larger than any chat template should")

    def account(self, value: object) -> None:
        """Charge a value that an operation made."""
        if isinstance(value, str):
            self.spend_text(len(value))
        elif isinstance(value, list | tuple | dict):
            self.check_size(self.weight(value))

    def weight(self, value: object) -> int:
        """Units that it takes to visit all of a value, each part as often as it occurs in it."""
        return len(value) // 8 + 1 if isinstance(value, str) else self._look(value)[0]

    def is_written(self, value: object) -> bool:
        """True if the value holds text of the caller."""
        return isinstance(value, MarkedText) if isinstance(value, str) else self._look(value)[1]

    def _look(self, value: object) -> tuple[int, bool]:
        """Weight and mark of a container, remembered: its parts were looked at when they were made."""
        if isinstance(value, Mapping):
            parts: list[Any] = [*value.keys(), *value.values()]
        elif isinstance(value, _SEQUENCES):
            parts = list(value)  # type: ignore[call-overload]  # mypy cannot read the tuple of types
        else:
            return 1, False
        known = self._weights.get(id(value))
        if known is not None:
            return known[1:]
        self.spend(1 + len(parts) // 4)
        weight, is_written = 1, False
        for part in parts:
            if isinstance(part, str):
                weight += len(part) // 8 + 1
                is_written = is_written or isinstance(part, MarkedText)
            elif isinstance(part, int | float):
                weight += 1
            else:
                part_weight, part_is_written = self._look(part)
                weight += part_weight
                is_written = is_written or part_is_written
        self._weights[id(value)] = (value, weight, is_written)  # the value too, so that its id stays taken
        return weight, is_written


_SEQUENCES: Final[tuple[type, ...]] = (list, tuple, type({}.items()), type({}.keys()), type({}.values()))

BUDGET: Final[ContextVar[Budget]] = ContextVar("budget")
"""The account of the rendering in progress."""


def check_width(width: object) -> None:
    """Refuse a padding, indent or precision that is too large."""
    if isinstance(width, int) and abs(width) > _MOST_WIDTH:
        raise LimitError(
            f"it asks for a width of {width}" if abs(width) < 10**9 else "it asks for a huge width"
        )
    if isinstance(width, str) and len(width) > _MOST_WIDTH:
        raise LimitError(f"it indents by {len(width)} characters")


def check_format(format_: str) -> None:
    """Refuse a format with widths that are too large or taken from values."""
    if any(len(digits) > 4 or int(digits) > _MOST_WIDTH for digits in _NUMBER.findall(format_)):
        raise LimitError("it formats with a huge width")
    if re.search(r"%[^a-zA-Z%]*\*|\{[^{}]+\{", format_):
        raise LimitError("it formats with a computed width")


def limited_range(*bounds: int) -> range:
    """range() of a bounded length."""
    numbers = range(*bounds)
    try:
        n = len(numbers)
    except OverflowError:
        n = _MOST_ITEMS + 1
    if n > _MOST_ITEMS:
        raise LimitError(f"it counts over a range of more than {_MOST_ITEMS} numbers")
    return numbers


def check_product(left: object, right: object, budget: Budget) -> None:
    """Refuse a product that is too large: of numbers, or of a text or list and a number."""
    for value, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(value, str | list | tuple):
            budget.check_size(budget.weight(value) * max(times, 0))
            budget.spend(len(value) * max(times, 0) // 8 + 1)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())


def check_power(base: object, exponent: object) -> None:
    """Refuse a power that is too large."""
    if isinstance(base, int) and isinstance(exponent, int):
        _check_bits(base.bit_length() * max(exponent, 0))


def _check_bits(n_bits: int) -> None:
    if n_bits > _MOST_BITS:
        raise LimitError("it computes with huge numbers")
