"""minfer-fetch as a process, run against a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gguf_bytes import whole_file


class Fetch:
    """Runs minfer-fetch against a cache of its own."""

    def __init__(self, cache: Path, directory: Path) -> None:
        self.cache = cache
        self.directory = directory

    def __call__(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """(exit status, stdout, stderr), with the cache's path written as CACHE."""
        settings = {**os.environ, "MINFER_MODEL_DIR": str(self.cache), "COLUMNS": "100", **environment}
        command = [sys.executable, "-m", "minfer.fetch", *words]
        done = subprocess.run(
            command, env=settings, cwd=self.directory, capture_output=True, text=True, check=False
        )
        out, err = (text.replace(str(self.cache), "CACHE") for text in (done.stdout, done.stderr))
        assert "Traceback" not in err
        return done.returncode, out, err

    def add(self, *paths: str) -> None:
        """Put a small model at each of `paths` in the cache."""
        for path in paths:
            target = self.cache / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(whole_file().build())
