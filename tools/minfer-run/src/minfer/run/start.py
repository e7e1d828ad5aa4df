"""The first thing that runs: Ctrl-C is quiet before anything is imported."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run minfer-run."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from minfer.run.cli import main as run

    run()
