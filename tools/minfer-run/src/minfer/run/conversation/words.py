"""The commands of a conversation, as a table; what they do is in commands.py."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Final

from minfer.core.errors import UsageError


class UnknownCommandError(UsageError):
    """A line begins with a slash and names no command."""

    code = "unknown-command"


@dataclass(frozen=True, slots=True)
class Command:
    """One command: what it is called, what it takes ([…] may be left out), what it does."""

    name: str
    takes: str
    summary: str


COMMANDS: Final[tuple[Command, ...]] = (
    Command("help", "", "list the commands"),
    Command("clear", "", "forget the turns; the system message stays"),
    Command("regen", "", "answer the last message again, differently"),
    Command("undo", "", "take back the last message and its answer"),
    Command("edit", "N [TEXT]", "change message N and go on from there"),
    Command("branch", "[NAME]", "list branches; go to one, or start one here"),
    Command("system", "[TEXT]", "show or change the system message; - removes it"),
    Command("set", "NAME VALUE", "change a setting, as its flag would; - empties a list; alone: list them"),
    Command("show", "", "the model, the context and the turns"),
    Command("save", "FILE", "write the conversation"),
    Command("load", "FILE", "go on with a conversation that was written"),
    Command("read", "FILE", "put a text file in front of the next message"),
    Command("model", "REF", "go on with another model"),
    Command("why", "", "the candidates of the last token, stage by stage"),
    Command("exit", "", "leave"),
    Command("quit", "", "leave"),
)

_NAMES: Final = {command.name: command for command in COMMANDS}


def parse_line(line: str) -> tuple[Command | None, str]:
    """The command that a line names and its argument; None with the text for a message.

    Two slashes stand for a literal one. Raises UnknownCommandError with the nearest name.
    """
    if not line.startswith("/"):
        return None, line
    if line.startswith("//"):
        return None, line[1:]
    name, _, argument = line[1:].strip().partition(" ")
    command = _NAMES.get(name.strip())
    if command is None:
        near = difflib.get_close_matches(name, _NAMES, n=1)
        did_you_mean = f"did you mean /{near[0]}? " if near else ""
        raise UnknownCommandError(
            f"there is no command /{name[:60]}",
            hint=f"{did_you_mean}/help lists the commands; // stands for a literal slash",
        )
    return command, argument.strip()
