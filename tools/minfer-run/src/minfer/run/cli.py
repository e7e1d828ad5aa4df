"""The program `minfer-run`: a table of commands; a line that names none of them generates."""

from __future__ import annotations

import sys
from typing import NoReturn

from minfer.cli import CommandRow, LazyGroup
from minfer.cli import main as run_main

GENERATE = CommandRow("generate", "minfer.run.commands.generate:generate", "answer a prompt")

COMMANDS: tuple[CommandRow, ...] = (
    CommandRow("tokenize", "minfer.run.commands.tokenize:tokenize", "show the tokens of a text"),
    CommandRow("info", "minfer.run.commands.info:info", "show what a model is and what it would take"),
    CommandRow("bench", "minfer.run.commands.bench:bench", "measure tokens per second"),
    CommandRow(
        "perplexity", "minfer.run.commands.perplexity:perplexity", "measure how well a text is predicted"
    ),
    CommandRow("specverify", "minfer.run.commands.specverify:specverify", "measure what drafts cost"),
)

program = LazyGroup(COMMANDS, default=GENERATE, name="minfer-run")


def main() -> NoReturn:
    """Run the program."""
    arguments = sys.argv[1:]
    run_main(program.for_arguments(arguments), "minfer-run", arguments)
