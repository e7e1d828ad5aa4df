"""Commands as rows of a table, imported when they run, so that `--help` stays fast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import click

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every command."""


@dataclass(frozen=True, slots=True)
class CommandRow:
    """One command: where its click command lives (`module:attribute`) and its line in the help."""

    name: str
    target: str
    summary: str
    aliases: tuple[str, ...] = ()

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.target.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command


class LazyGroup(click.Group):
    """A group over a table of rows. With `default`, arguments that name no row go to that command."""

    def __init__(
        self, rows: Sequence[CommandRow], *, default: CommandRow | None = None, **settings: object
    ) -> None:
        """`settings` are click.Group's own."""
        settings.setdefault("context_settings", HELP)
        super().__init__(**settings)  # type: ignore[arg-type]
        self._rows = rows
        self._default = default
        self._by_name = {name: row for row in rows for name in (row.name, *row.aliases)}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the rows, in their order."""
        return [row.name for row in self._rows]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command of that name or alias."""
        row = self._by_name.get(cmd_name)
        if row is None and self._default is not None and cmd_name == self._default.name:
            row = self._default
        return row.load() if row else None

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Send a line that starts with no known command to the default command."""
        if self._default is not None and (not args or args[0] not in self._by_name):
            args = [self._default.name, *args]
        return super().parse_args(ctx, args)

    def for_arguments(self, arguments: Sequence[str]) -> click.Command:
        """What a command line runs: this group, or the default command itself, under the program's name."""
        if self._default is None or (arguments and arguments[0] in self._by_name):
            return self
        return self._default.load()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table's summaries, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(row.name, row.summary) for row in self._rows])


class TolerantCommand(click.Command):
    """A command that knows the flags of other tools: a mistake with one of them gets the right spelling.

    `habits` maps a foreign flag to a sentence that says what to write here.
    """

    habits: Mapping[str, str] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; on a usage error name the habit that explains it."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            hint = self._habit(words)
            if hint and hint not in error.message:
                raise click.UsageError(f"{error.format_message()}\nHint: {hint}", ctx) from error
            raise

    def _habit(self, words: Sequence[str]) -> str:
        for word in words:
            if word == "--":
                break
            hint = self.habits.get(word.partition("=")[0])
            if hint:
                return hint
        return ""
