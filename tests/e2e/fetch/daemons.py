"""A cache with a runtime directory of its own, for daemons that are real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from minfer.store.address import socket_path
from minfer.store.daemon import connect
from minfer.store.daemon_client import DaemonClient
from minfer.store.settings import Settings


@dataclass
class Place:
    """Where one test's daemons live. `environment` is what its processes get."""

    directory: Path
    environment: dict[str, str]

    @property
    def cache(self) -> Path:
        return self.directory / "models"

    @property
    def settings(self) -> Settings:
        return Settings.of(self.environment)

    @property
    def socket(self) -> Path:
        return socket_path(self.settings)

    def popen(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "minfer.fetch", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**self.environment, **environment},
        )

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        process = self.popen(*words, **environment)
        stdout, stderr = process.communicate(timeout=60)
        assert "Traceback" not in stderr, stderr
        return process.returncode, stdout, stderr

    def client(self) -> DaemonClient:
        return connect(self.settings)

    def pids(self) -> list[int]:
        """The daemons of this place, found by their environment: the socket's name is theirs alone."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "environ").read_bytes() if entry.name.isdecimal() else b""
                is_daemon = b"daemon\0start" in (entry / "cmdline").read_bytes() if words else False
            except OSError:
                continue
            if is_daemon and f"TMPDIR={self.environment['TMPDIR']}\0".encode() in words:
                found.append(int(entry.name))
        return found


@contextmanager
def place(**environment: str) -> Iterator[Place]:
    """A place whose daemons are gone afterwards. Its path is short: sockets' names are limited."""
    with tempfile.TemporaryDirectory(prefix="mf") as name:
        directory = Path(name)
        inherited = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        del inherited["MINFER_STORE_SOCKET"]
        (directory / "run").mkdir(mode=0o700)
        (directory / "home").mkdir()
        here = Place(
            directory,
            {
                **inherited,
                "HOME": str(directory / "home"),
                "MINFER_MODEL_DIR": str(directory / "models"),
                "XDG_RUNTIME_DIR": str(directory / "run"),
                "TMPDIR": str(directory),
                "MINFER_STORE_IDLE": "60",
                **environment,
            },
        )
        try:
            yield here
        finally:
            for pid in here.pids():
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not here.pids())


def wait_until(is_so: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)
