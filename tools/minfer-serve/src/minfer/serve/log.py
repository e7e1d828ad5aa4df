"""What the server says on stderr: lines for people, or nothing but JSON objects, one a line."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from minfer.core.errors import MinferError


class Log:
    """The one writer to stderr. In JSON every line has `time`, `level` and `message`."""

    def __init__(self, form: Literal["text", "json", "none"]) -> None:
        """`none` leaves out the access log and nothing else."""
        self._form = form

    @property
    def is_json(self) -> bool:
        """Whether lines are for programs."""
        return self._form == "json"

    def say(self, text: str, level: str = "info", **facts: object) -> None:
        """Tell something; `facts` are further members of the JSON object, and not shown to people."""
        self._write(_line(level, text, **facts) if self.is_json else text)

    def request(self, facts: Mapping[str, object]) -> None:
        """One line of the access log."""
        if self.is_json:
            self._write(_line("info", "request", **facts))
        elif self._form == "text":
            path = str(facts["path"]).encode("unicode_escape").decode()
            self._write(
                f"{facts['client']} {facts['method']} {path} {facts['status']} {facts['ms']} ms"
                f" {facts['request_id']}"
            )

    def failed(self, error: MinferError) -> int:
        """Say what ends the process; its exit status."""
        self.say(error.fact, "error", code=error.code, hint=error.hint, candidates=error.candidates)
        return error.exit_status

    @contextmanager
    def in_charge(self) -> Iterator[None]:
        """While it lasts, what libraries log and what ends a thread is JSON too, if this log is."""
        if not self.is_json:
            yield
            return
        handler = _Forwarding(self)
        hook = threading.excepthook
        logging.getLogger().addHandler(handler)
        logging.captureWarnings(True)
        threading.excepthook = self._thread_ended
        try:
            yield
        finally:
            threading.excepthook = hook
            logging.captureWarnings(False)
            logging.getLogger().removeHandler(handler)

    def _thread_ended(self, ending: threading.ExceptHookArgs) -> None:
        name = ending.thread.name if ending.thread else "unknown"
        error = ending.exc_value
        self.say(f"the thread {name} ended: {ending.exc_type.__name__}: {error}", "error",
                 traceback=_trace(error) if error else "")  # fmt: skip

    def _write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


class _Forwarding(logging.Handler):
    """What libraries log, as lines of a Log."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        more = {"traceback": _trace(error)} if error else {}
        self._log.say(record.getMessage(), record.levelname.lower(), logger=record.name, **more)


def _line(level: str, message: str, **facts: object) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": now, "level": level, "message": message, **facts}, default=str)


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
