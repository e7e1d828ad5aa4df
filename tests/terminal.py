"""A program at a terminal: a pty whose other end is typed at and read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[=>()][0-9A-B]?)")
_SECONDS = 90.0


class Terminal:
    """Runs a program with all three streams on a terminal of a size that can change."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], here: Path) -> None:
        self._master, slave = pty.openpty()
        self.resize(24, 100)
        self.process = subprocess.Popen(
            command,
            env=environment | {"TERM": "xterm-256color", "LANG": "C.UTF-8"},
            cwd=here,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            # Ctrl-C becomes a signal only at the terminal that controls the program.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads here
        )
        os.close(slave)
        self.shown = ""  # everything so far, escapes taken out
        self._raw = b""
        self._seen = 0

    def resize(self, rows: int, columns: int) -> None:
        """Give the terminal another size; its program gets SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        """Press keys: text, or control characters."""
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> str:
        """Wait until `text` shows up behind all that was waited for before; what came up to its end."""
        end = time.monotonic() + _SECONDS
        while (at := self.shown.find(text, self._seen)) < 0:
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"{text!r} did not come; the terminal shows\n{self.shown[self._seen :]}")
        found = self.shown[self._seen : at + len(text)]
        self._seen = at + len(text)
        return found

    def wait_for_more(self, n_letters: int) -> None:
        """Wait until so much has come behind all that was waited for before, whatever it is."""
        end = time.monotonic() + _SECONDS
        while len(self.shown) < self._seen + n_letters:
            if time.monotonic() > end or not self._read():
                raise AssertionError(f"no {n_letters} letters came")
        self._seen = len(self.shown)

    def end(self) -> int:
        """Wait for the program to leave; its exit status, negative for a signal."""
        while self._read():
            pass
        return self.process.wait(_SECONDS)

    def close(self) -> None:
        """End the program whatever it does."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self) -> bool:
        """Take in what is there, waiting a little; False when the program has closed its end."""
        ready, _, _ = select.select([self._master], [], [], 0.2)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux reports the closed other end so
            return False
        if b"\x1b[6n" in data:
            self.type("\x1b[1;1R")  # prompt_toolkit asks where the cursor is
        self._raw += data
        self.shown = _ESCAPES.sub("", self._raw.decode("utf-8", "replace")).replace("\r", "")
        return bool(data)
