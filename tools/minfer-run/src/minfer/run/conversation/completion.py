"""What Tab offers: commands, and behind a command what it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from minfer.engine.params import KNOBS
from minfer.run.conversation.words import COMMANDS

_MOST = 200


def suggestions(line: str) -> tuple[str, list[str]]:
    """The word that is being typed, and what it can become. Nothing for what is no command."""
    if not line.startswith("/") or line.startswith("//") or "\n" in line:
        return "", []
    name, space, rest = line.partition(" ")
    if not space:
        return name, [f"/{row.name}" for row in COMMANDS if f"/{row.name}".startswith(name)]
    row = next((row for row in COMMANDS if f"/{row.name}" == name), None)
    offer = _OFFERS.get(row.takes) if row else None
    if offer is None:
        return "", []
    typed = rest.lstrip()
    return typed, offer(typed)[:_MOST]


def _paths(typed: str) -> list[str]:
    """Names in the directory that is being typed; directories end in a slash."""
    _, _, start = typed.rpartition("/")
    prefix = typed[: len(typed) - len(start)]
    try:
        directory = Path(prefix or ".").expanduser()
        with os.scandir(directory) as entries:
            names = sorted(
                entry.name + ("/" if entry.is_dir() else "")
                for entry in entries
                if entry.name.startswith(start) and (start or not entry.name.startswith("."))
            )
    except (OSError, RuntimeError):  # RuntimeError: a ~user that is not there
        return []
    return [prefix + name for name in names]


def _models(typed: str) -> list[str]:
    import click

    from minfer.cli.model_type import MODEL

    if typed[:1] in ("/", ".", "~"):
        return _paths(typed)
    context = click.Context(click.Command("model"))
    found = MODEL.shell_complete(context, click.Argument(["model"]), typed)
    return [str(item.value) for item in found]


def _settings(typed: str) -> list[str]:
    return [name for name in (*KNOBS, "think", "overflow") if name.startswith(typed.replace("-", "_"))]


_OFFERS: Mapping[str, Callable[[str], list[str]]] = {
    "FILE": _paths,
    "REF": _models,
    "NAME VALUE": _settings,
}
