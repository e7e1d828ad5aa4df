"""Filters, tests and text methods of chat templates: charged before they run, marked in their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import jinja2
import jinja2.filters
from jinja2.exceptions import SecurityError

from minfer.engine.chat.limits import BUDGET, Budget, check_format, check_width, limited_range
from minfer.engine.chat.marked_text import MarkedText, joined, replaced, written

Value = Any
"""Whatever a template computes with."""

CALL_COST: Final = 8
"""Units for a call, filter or test."""


def text(value: object) -> str:
    """str() that keeps marks and is charged."""
    budget = BUDGET.get()
    if isinstance(value, str):
        budget.spend_text(len(value))
        return value
    budget.account(value)
    plain = str(value)
    budget.spend_text(len(plain))
    return written(plain) if budget.is_written(value) else plain


_PADS: Final = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "truncate", "round", "indent"})
_REFUSED: Final = frozenset(
    {"encode", "translate", "maketrans"}
)  # bytes and tables grow in ways nobody needs
_EXACT: Final = frozenset(
    {"join", "replace", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "upper", "lower"}
    | {"trim", "string", "default", "d", "first", "last", "min", "max", "attr"}
)
"""Operations that carry marks themselves or hand out one of their values as it is."""


def run_text_method(
    budget: Budget,
    name: str,
    owner: str,
    args: Sequence[Value],
    kwargs: Mapping[str, Value],
    run: Callable[[], Value],
) -> Value:
    """Run a method of a text: refused if it would grow too large, marked in its result."""
    if name in _REFUSED:
        raise SecurityError(f"the text method {name!r} may not be called")
    if name in {"%", "format", "format_map"}:
        check_format(owner)
    if name in _PADS:
        _check_pads(budget, name, owner, [*args, *kwargs.values()])
    if name == "join" and args:
        return _join(owner, args[0])
    if name == "replace" and len(args) >= 2:
        return _replace(*[owner, *args])
    budget.spend(len(owner) // 8)
    result = run()
    budget.account(result)
    return result if name in _EXACT else _marked_if_written(result, (owner, *args, *kwargs.values()))


def _marked_if_written(result: Value, values: Iterable[object]) -> Value:
    """Where nobody followed the caller's text through an operation, its result counts as the caller's."""
    is_plain = isinstance(result, str) and not isinstance(result, MarkedText)
    return written(result) if is_plain and any(map(BUDGET.get().is_written, values)) else result


def _check_pads(budget: Budget, name: str, value: object, args: Sequence[object]) -> None:
    for argument in args:
        check_width(argument)
    if name == "expandtabs" or (name == "indent" and isinstance(value, str)):
        widths = [len(arg) if isinstance(arg, str) else arg for arg in args if isinstance(arg, str | int)]
        n_places = str(value).count("\t" if name == "expandtabs" else "\n") + 1
        budget.spend_text(n_places * max([8, *widths]))


def _join(separator: object, values: Iterable[object]) -> str:
    """Joined texts; every value is made a text first, as the filter does."""
    parts, between = [text(value) for value in values], text(separator)
    BUDGET.get().spend_text(sum(map(len, parts)) + len(between) * len(parts))
    return joined(between, parts)


def _replace(value: object, old: object, new: object, count: int | None = None) -> str:
    """The filter and the method: at most count replacements."""
    whole, pattern, substitute = text(value), text(old), text(new)
    n = -1 if count is None else count
    n_found = whole.count(pattern) if n < 0 else min(n, whole.count(pattern))
    BUDGET.get().spend_text(len(whole) + len(substitute) * n_found)
    return replaced(whole, pattern, substitute, n)


@jinja2.pass_environment
def _join_filter(
    environment: jinja2.Environment, value: Iterable[object], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        value = map(jinja2.filters.make_attrgetter(environment, attribute), value)
    return _join(d, value)


def _sum_filter(value: Iterable[Value], attribute: str | None = None, start: Value = 0) -> Value:
    """The sum of numbers; of lists it would be quadratic."""
    if attribute is not None:
        raise SecurityError("sum with an attribute may not be used")
    numbers = list(value)
    if not all(isinstance(number, int | float) for number in (*numbers, start)):
        raise SecurityError("sum may only be used on numbers")
    return sum(numbers, start)


def _tojson(
    value: Value,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: not escaped for HTML."""
    for width in (indent, *(separators or ())):
        check_width(width)
    deep = (indent if isinstance(indent, int) else len(indent or "")) + sum(map(len, separators or ()))
    budget = BUDGET.get()
    budget.spend_text(budget.weight(value) * (deep + 8))
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


_ENTITIES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;"})


def _escape(value: object) -> str:
    """HTML entities, as text: there is no markup in a prompt, and markup would lose the marks."""
    whole = text(value)
    BUDGET.get().spend_text(6 * len(whole))
    return whole.translate(_ENTITIES)


OWN_FILTERS: Final[Mapping[str, Callable[..., Value]]] = {
    "join": _join_filter,
    "replace": _replace,
    "string": text,
    "sum": _sum_filter,
    "tojson": _tojson,
    "e": _escape,
    "escape": _escape,
    "safe": text,
    "trim": lambda value, chars=None: text(value).strip(chars),
    "upper": lambda value: text(value).upper(),
    "lower": lambda value: text(value).lower(),
}

JINJA_FILTERS: Final = (
    *("abs", "attr", "batch", "capitalize", "center", "count", "d", "default", "dictsort"),
    *(
        "first",
        "float",
        "format",
        "groupby",
        "indent",
        "int",
        "items",
        "last",
        "length",
        "list",
        "map",
        "max",
    ),
    *("min", "reject", "rejectattr", "reverse", "round", "select", "selectattr", "slice", "sort"),
    *("title", "truncate", "unique", "wordcount"),
)
"""Left out: what is random, touches markup, or can grow without need."""


_IMMEDIATE: Final = frozenset(
    {"length", "count", "first", "last", "default", "d", "attr", "items", "reverse"}
)
"""Filters that do not look at all of their value."""

_LOOKING_TESTS: Final = frozenset(
    {"in", "eq", "==", "equalto", "ne", "!=", "lt", "<", "lessthan", "le", "<=", "gt", ">", "greaterthan"}
    | {"ge", ">="}
)


def limited_filter(name: str, filter_: Callable[..., Value]) -> Callable[..., Value]:
    """The filter, refused where its result would be too large, with marks in its result."""
    n_passed = 1 if hasattr(filter_, "jinja_pass_arg") else 0

    @wraps(filter_)
    def run(*args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        values = (*args[n_passed:], *kwargs.values())
        budget.spend(CALL_COST)
        if name in _PADS:
            _check_pads(budget, name, values[0], values[1:])
        elif name == "format":
            check_format(text(values[0]))
        elif name in {"batch", "slice"} and len(values) > 1:
            limited_range(values[1])
        if name not in _IMMEDIATE:
            for value in values:
                budget.spend(budget.weight(value) // 16)
        result = filter_(*args, **kwargs)
        budget.account(result)
        return result if name in _EXACT else _marked_if_written(result, values)

    return run


def limited_test(name: str, test: Callable[..., Value]) -> Callable[..., Value]:
    """The test, charged."""

    @wraps(test)
    def run(*args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.spend(2)
        if name in _LOOKING_TESTS:
            for value in args:
                budget.spend(budget.weight(value) // 16)
        return test(*args, **kwargs)

    return run
