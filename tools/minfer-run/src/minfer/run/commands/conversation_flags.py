"""The flags of a conversation: they mean something together with --cnv alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from minfer.run.settings import ConversationSettings

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--cnv", "--conversation", is_flag=True, help="have a conversation; /help lists its commands"
    ),
    click.option("-st", "--single-turn", is_flag=True, help="with --cnv: leave after one answer"),
    click.option(
        "-mli",
        "--multiline-input",
        is_flag=True,
        help="with --cnv: a message is several lines, ended by an empty one",
    ),
    click.option(
        "--color",
        type=click.Choice(["on", "off", "auto"]),
        help="with --cnv: coloured answers  [default: auto, on a terminal]",
    ),
    click.option(
        "--overflow",
        type=click.Choice(["shift", "drop", "stop"]),
        help="with --cnv, when the context is full: drop the oldest turns, also in the middle of an answer "
        "(shift) or between turns alone (drop), or refuse (stop)  [default: shift]",
    ),
    click.option(
        "--session",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="with --cnv: keep the conversation in a file and go on with the one that is there",
    ),
)
_FLAGS = {
    "single_turn": "-st",
    "multiline_input": "-mli",
    "color": "--color",
    "overflow": "--overflow",
    "session": "--session",
}


def conversation_options(function: F) -> F:
    """Add the flags to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def conversation_settings(values: dict[str, Any]) -> ConversationSettings | None:
    """Take the flags out of a command's arguments; None without --cnv. Raises UsageError for flags that
    would do nothing.
    """
    taken = {name: values.pop(name) for name in _FLAGS}
    if not values.pop("cnv"):
        idle = next((flag for name, flag in _FLAGS.items() if taken[name]), None)
        if idle:
            raise click.UsageError(f"{idle} needs --cnv: it is about conversations")
        return None
    for name, flag in (("no_template", "--no-template"), ("explain", "--explain")):
        if values[name]:
            raise click.UsageError(f"--cnv and {flag} exclude each other")
    return ConversationSettings(
        is_single=taken["single_turn"],
        multiline=taken["multiline_input"],
        color=taken["color"] or "auto",
        overflow=taken["overflow"] or "shift",
        session=taken["session"],
    )
