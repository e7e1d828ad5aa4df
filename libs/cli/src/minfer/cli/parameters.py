"""Flags made from a table of knobs, so that no command line lists a generation parameter itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class _Text(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """Text as the bytes that were typed: in a locale without UTF-8 Python has read them otherwise."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text, or a usage error for bytes that are not UTF-8."""
        try:
            return os.fsencode(value).decode()
        except UnicodeDecodeError as error:
            self.fail(
                f"not UTF-8 text: byte {error.object[error.start]:#04x} at offset {error.start}", param, ctx
            )


TEXT = _Text()
"""The type of an option whose value is text for the model."""

_TYPES: Mapping[str, click.ParamType[Any]] = {"int": click.INT, "float": click.FLOAT}


class Knob(Protocol):
    """What a flag needs to know; minfer.engine.params.Knob is one."""

    @property
    def kind(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def flags(self) -> tuple[str, ...]: ...
    @property
    def switches(self) -> tuple[tuple[str, Any], ...]: ...
    @property
    def is_list(self) -> bool: ...


def knob_options(knobs: Mapping[str, Knob], defaults: Callable[[str], object]) -> Callable[[F], F]:
    """A decorator that adds one option for each knob; `defaults(field)` is shown in the help.

    The options stay None (or empty) when not given: `given` tells what the user wrote.
    """

    def decorate(function: F) -> F:
        for name, knob in reversed(list(knobs.items())):
            for flag, value in knob.switches:
                text = f"same as {knob.flags[-1]} {value:g}"
                function = click.option(flag, _switch_name(flag), is_flag=True, help=text)(function)
            function = click.option(
                *knob.flags,
                name,
                type=_TYPES.get(knob.kind, TEXT),
                multiple=knob.is_list,
                default=None,
                metavar=_METAVARS.get(knob.kind, "TEXT"),
                help=f"{knob.help}  [default: {_shown(defaults(name))}]",
            )(function)
        return function

    return decorate


def given(
    knobs: Mapping[str, Knob], values: dict[str, Any], parse: Callable[[str, Sequence[str]], object]
) -> dict[str, object]:
    """Take the knobs' values out of a command's arguments; only those that the user wrote are returned.

    `parse(field, words)` makes the value of a list knob.
    """
    found: dict[str, object] = {}
    for name, knob in knobs.items():
        value = values.pop(name)
        if knob.is_list:
            if value:
                found[name] = parse(name, value)
        elif value is not None:
            found[name] = value
        for flag, switched in knob.switches:
            if values.pop(_switch_name(flag)):
                if name in found:
                    raise click.UsageError(f"{flag} and {knob.flags[-1]} exclude each other")
                found[name] = switched
    return found


_METAVARS = {"int": "N", "float": "X", "strings": "TEXT", "biases": "ID±X"}


def _switch_name(flag: str) -> str:
    return "switch_" + flag.lstrip("-").replace("-", "_")


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(repr(one) for one in value) if value else "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
