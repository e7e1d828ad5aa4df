"""Lists of numbers in a flag: `1,2,4`, ranges `128-512+128` and `1-16*2`, and the flag given again."""

from __future__ import annotations

import re
from typing import Final

import click

from minfer.core.errors import UsageError

_ITEM: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:([+*])(\d{1,9}))?)?")
_MAX_ITEMS: Final = 256


class TooDeepError(UsageError):
    """What is to be measured does not fit the model's context."""

    code = "measure-too-long"


class IntList(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """`a,b,…` where an item is a number, `first-last`, `first-last+step` or `first-last*factor`."""

    name = "N,…"

    def __init__(self, least: int, most: int) -> None:
        """Bounds of each number."""
        self._least, self._most = least, most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers in their order."""
        if not isinstance(value, str):
            return tuple(value)  # type: ignore[arg-type]  # a default that was converted already
        numbers: list[int] = []
        for item in value.split(","):
            found = _ITEM.fullmatch(item.strip())
            if found is None:
                self.fail(f"{item!r} is no number or range such as 128-512+128 or 1-16*2", param, ctx)
            numbers += self._expand(found, param, ctx)
            if len(numbers) > _MAX_ITEMS:
                self.fail(f"more than {_MAX_ITEMS} values", param, ctx)
        for number in numbers:
            if not self._least <= number <= self._most:
                self.fail(f"{number} is not in the range {self._least} to {self._most}", param, ctx)
        return tuple(numbers)

    def _expand(
        self, found: re.Match[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int]:
        first, last, sign, step = found.groups()
        number, end = int(first), int(last or first)
        by = int(step or 1)
        if last and (end < number or by < (2 if sign == "*" else 1) or (sign == "*" and not number)):
            self.fail(f"{found[0]!r} is an endless or empty range", param, ctx)
        numbers = [number]
        while len(numbers) <= _MAX_ITEMS:
            number = number * by if sign == "*" else number + by
            if number > end:
                break
            numbers.append(number)
        return numbers


def require_room(n_tokens: int, n_ctx_train: int, flag: str) -> None:
    """Raise TooDeepError when the model's context is shorter than what is to be measured."""
    if n_tokens > n_ctx_train:
        raise TooDeepError(
            f"{n_tokens} tokens are to be measured and the model's context has {n_ctx_train}",
            hint=f"lower {flag}",
        )
