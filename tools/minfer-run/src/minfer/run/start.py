"""The first thing that runs: Ctrl-C is quiet before anything is imported, and the collector seldom called."""

from __future__ import annotations

import gc
import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run minfer-run."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    gc.set_threshold(100_000)  # what a start makes stays: looking through it again takes 5 ms of 138
    from minfer.run.cli import main as run

    run()
