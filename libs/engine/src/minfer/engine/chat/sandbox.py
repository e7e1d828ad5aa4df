"""The one Jinja environment in which chat templates run: sandboxed, limited, and keeping marks.

It renders what the environment of Hugging Face transformers renders (trim_blocks, lstrip_blocks, loop
controls, the generation tag, tojson, raise_exception, strftime_now), without filters that are random or
unbounded. Every operation passes through here: it is charged to a budget (limits.py), and text of the
caller stays marked in its result (marked_text.py).
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

import jinja2
import jinja2.nodes
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils
from jinja2.exceptions import SecurityError

from minfer.engine.chat.filters import (
    CALL_COST,
    JINJA_FILTERS,
    OWN_FILTERS,
    Value,
    limited_filter,
    limited_test,
    run_text_method,
    text,
)
from minfer.engine.chat.instrument import GenerationTag, Instrument
from minfer.engine.chat.limits import (
    BUDGET,
    Budget,
    LimitError,
    check_format,
    check_power,
    check_product,
    check_width,
    limited_range,
)
from minfer.engine.chat.marked_text import concatenated, written

MAX_SOURCE: Final = 128 * 1024
"""Characters of a template; the largest known has 30 thousand."""


class RefusalError(jinja2.TemplateError):
    """The template called raise_exception."""


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Charge what happens inside to the budget."""
    token = BUDGET.set(budget)
    try:
        yield
    finally:
        BUDGET.reset(token)


@jinja2.pass_context
def _finalize(context: jinja2.runtime.Context, value: object) -> str:
    """What is printed. It takes the context so that nothing is folded while compiling."""
    return text(value)


def _concat(parts: Iterable[str]) -> str:
    parts = list(parts)
    BUDGET.get().spend_text(sum(map(len, parts)))
    return concatenated(parts)


class _Counted:
    """An iterable that charges every item."""

    def __init__(self, items: Iterable[Value]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[Value]:
        spend = BUDGET.get().spend
        for item in self._items:
            spend(4)
            yield item

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[arg-type]  # TypeError says that there is none


_METHODS: Final = frozenset(
    {"items", "keys", "values", "get", "index", "count", "copy", "bit_length", "is_integer"}
)
"""Methods of values other than texts."""

_SCOPE_ARGUMENTS: Final = ("_loop_vars", "_block_vars")
"""Jinja passes them with every call; its context takes them out again."""

_OWNERS: Final = (jinja2.Environment, jinja2.runtime.LoopContext, jinja2.utils.Cycler, jinja2.utils.Joiner)
"""Their methods are Jinja's or ours."""


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})
    concat = staticmethod(_concat)

    def _parse(self, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        template: jinja2.nodes.Template = Instrument().visit(super()._parse(source, name, filename))
        return template

    def counted(self, items: Iterable[Value]) -> _Counted:
        """Around whatever a template iterates over."""
        return _Counted(items)

    def concatenate(self, *values: object) -> str:
        """The operator ~."""
        return concatenated([text(value) for value in values])

    def literal(self, value: Value) -> Value:
        """Around a list, tuple or dict that a template writes down."""
        return value

    def compared(self, value: Value) -> Value:
        """Around an operand of a comparison."""
        BUDGET.get().spend(BUDGET.get().weight(value) // 16)
        return value

    def sliced(self, value: Value) -> Value:
        """Around what a slice is cut out of."""
        if isinstance(value, str | list | tuple):
            BUDGET.get().spend(1 + len(value) // 8)
        return value

    def getattr(self, obj: Value, attribute: str) -> Value:
        BUDGET.get().spend(1)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Value, argument: Value) -> Value:
        BUDGET.get().spend(1)
        return super().getitem(obj, argument)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Value, right: Value) -> Value:
        budget = BUDGET.get()
        budget.spend(2)
        if operator == "*":
            check_product(left, right, budget)
        elif operator == "**":
            check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            return run_text_method(budget, "%", left, [right], {}, lambda: left % right)
        elif isinstance(left, str) and isinstance(right, str):
            budget.spend_text(len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        budget.account(result)
        if (
            isinstance(result, str)
            and operator == "*"
            and (budget.is_written(left) or budget.is_written(right))
        ):
            return written(result)
        return result

    def call(self, context: jinja2.runtime.Context, obj: Value, *args: Value, **kwargs: Value) -> Value:
        budget = BUDGET.get()
        budget.spend(CALL_COST)
        given = {name: value for name, value in kwargs.items() if name not in _SCOPE_ARGUMENTS}
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            return run_text_method(budget, obj.__name__, owner, args, given, lambda: obj(*args, **given))
        if owner is not None:  # list.index and loop.changed compare what they are given
            for value in args:
                budget.spend(budget.weight(value) // 16)
        if owner is not None and not isinstance(owner, _OWNERS) and obj.__name__ not in _METHODS:
            raise SecurityError(f"{obj.__name__!r} of {type(owner).__name__!r} may not be called")
        result = super().call(context, obj, *args, **kwargs)
        budget.account(result)
        return result

    def wrap_str_format(self, value: Value) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def format_text(*args: Value, **kwargs: Value) -> str:
            run = lambda: wrapped(*args, **kwargs)  # noqa: E731
            return str(run_text_method(BUDGET.get(), "format", value.__self__, args, kwargs, run))

        return format_text


def _raise_exception(message: object = "") -> str:
    raise RefusalError(str(message))


class _Namespace(jinja2.utils.Namespace):
    """Jinja's namespace, printed without its content."""

    def __repr__(self) -> str:
        return "<Namespace>"


def _dict(*args: Value, **kwargs: Value) -> dict[Value, Value]:
    return dict(*args, **kwargs)


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The environment of all chat templates."""
    sandbox = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,
        finalize=_finalize,
        extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
        cache_size=0,
    )
    filters = {name: sandbox.filters[name] for name in JINJA_FILTERS} | dict(OWN_FILTERS)
    sandbox.filters = {name: limited_filter(name, filter_) for name, filter_ in filters.items()}
    tests: Mapping[str, Value] = sandbox.tests
    sandbox.tests = {name: limited_test(name, test) for name, test in tests.items()}
    del sandbox.globals["lipsum"]
    sandbox.globals |= {
        "range": limited_range,
        "dict": _dict,
        "namespace": _Namespace,
        "raise_exception": _raise_exception,
    }
    return sandbox


def strftime_now(moment: datetime.date) -> Callable[[str], str]:
    """The function of that name, at a given moment."""

    def format_moment(format_: str) -> str:
        check_width(format_)
        check_format(format_)
        return moment.strftime(format_)

    return format_moment


def compile_template(source: str) -> jinja2.Template:
    """Compile; Jinja's errors pass through. Raises LimitError for a source of absurd length."""
    if len(source) > MAX_SOURCE:
        raise LimitError(f"it has {len(source)} characters, at most {MAX_SOURCE} are allowed")
    with spending(Budget(len(source), 5.0)):
        return environment().from_string(source)


def render_parts(template: jinja2.Template, variables: Mapping[str, Value], budget: Budget) -> list[str]:
    """The rendered text in parts, marked. Errors of the template pass through."""
    with spending(budget):
        parts = []
        for part in template.root_render_func(template.new_context(dict(variables))):
            budget.spend_text(len(part))
            parts.append(part)
        return parts
