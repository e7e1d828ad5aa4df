"""A minfer-serve process for tests, and tiny models for it."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from minfer.engine.testing import TinyModel, tiny_model

_START = "from minfer.serve.cli import main; main()"


class Server:
    """A running process. `url` has no final slash; `log` is what it said on stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = self.wait_for("Listening on ").split()[2]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            self._lines.put(line)

    def wait_for(self, beginning: str, timeout: float = 60.0) -> str:
        """The next line on stderr that begins so."""
        end = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {beginning!r} in {''.join(self.log)}") from None
            if line.startswith(beginning):
                return line

    def client(self, timeout: float = 60.0, key: str | None = None) -> httpx.Client:
        """An HTTP client of this server that no proxy setting reaches."""
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, timeout=timeout, trust_env=False, headers=headers)

    def async_client(self, timeout: float = 60.0) -> httpx.AsyncClient:
        """The same for asyncio."""
        limits = httpx.Limits(max_connections=200)
        return httpx.AsyncClient(base_url=self.url, timeout=timeout, trust_env=False, limits=limits)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        status = self.process.wait(timeout)
        self._reader.join(5)
        return status


@contextmanager
def serving(
    model: Path | str, *flags: str, wait: bool = True, kernels: str | None = None
) -> Iterator[Server]:
    """Serve while the block runs, on a free port."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MINFER_", "PYTEST_"))
    }
    if "MINFER_MODEL_DIR" in os.environ:
        environment["MINFER_MODEL_DIR"] = os.environ["MINFER_MODEL_DIR"]
    if kernels is not None:
        environment["MINFER_KERNELS"] = kernels
    command = [sys.executable, "-c", _START, str(model), "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        server = Server(process)
        if wait:
            server.wait_for("Ready")
        yield server
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        process.stderr.close()


def write_tiny(folder: Path, model: TinyModel | None = None, name: str = "tiny.gguf") -> Path:
    """A tiny model's file."""
    path = folder / name
    path.write_bytes(tiny_model(model or TinyModel("llama", n_context=4096)))
    return path
