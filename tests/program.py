"""Runs a tool of minfer as a user would: a process of its own, with a cache and a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest


class Outcome(NamedTuple):
    """What a process left: exit status, stdout, stderr, with the test's own paths written as names."""

    status: int
    out: str
    err: str


class Program:
    """One tool (`minfer.run`, …), its cache `models` and its working directory `here`."""

    def __init__(self, module: str, root: Path) -> None:
        self.module = module
        self.cache = root / "models"
        self.here = root / "here"
        for folder in (self.cache, self.here):
            folder.mkdir(exist_ok=True)

    def command(self, *words: str) -> list[str]:
        """The command line of a run."""
        return [sys.executable, "-m", self.module, *words]

    def environment(self, **extra: str) -> dict[str, str]:
        """The environment of a run."""
        own = {"MINFER_MODEL_DIR": str(self.cache), "COLUMNS": "100", "MINFER_OFFLINE": "1"}
        return {**os.environ, **own, **extra}

    def __call__(self, *words: str, stdin: str | None = None, **environment: str) -> Outcome:
        """Run to the end. Without `stdin` there is nothing to read."""
        done = subprocess.run(
            self.command(*words),
            env=self.environment(**environment),
            cwd=self.here,
            input="" if stdin is None else stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, self._named(done.stdout), self._named(done.stderr))

    def _named(self, text: str) -> str:
        return text.replace(str(self.cache), "CACHE").replace(str(self.here), "HERE")


@pytest.fixture
def minfer_run(tmp_path: Path) -> Program:
    """minfer-run in an empty world."""
    return Program("minfer.run", tmp_path)
