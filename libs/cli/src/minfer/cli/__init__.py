"""What the command lines of minfer share: one edge for errors and signals, lazy commands, flag hints.

No tool repeats these, and no library below imports them.
"""

from minfer.cli.commands import HELP, CommandRow, LazyGroup, TolerantCommand
from minfer.cli.edge import main

__all__ = ["HELP", "CommandRow", "LazyGroup", "TolerantCommand", "main"]
