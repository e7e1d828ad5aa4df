"""A daemon lets go of whoever started it: of the terminal, the pipes, the directory.

A child that kept only stderr would hold `$(minfer-fetch resolve X 2>&1)` open for its whole life.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from minfer.core.errors import MinferError

_READY = b"1"
_MAX_DESCRIPTOR = 1 << 16


def detached(log: Path, work: Callable[[Callable[[], None]], bool]) -> bool:
    """Run `work(on_ready)` in a process that outlives this one; True once it has called `on_ready`.

    No other thread may run yet. What the process says to stderr goes to `log`, which starts anew.
    """
    reader, writer = os.pipe()
    if os.fork() == 0:
        status = 1
        try:
            _let_go(log, writer)
            status = 0 if work(lambda: _say_ready(writer)) else 1
        except MinferError as error:
            print(error.render(), file=sys.stderr)
        except BaseException:  # noqa: BLE001 — the last word of this process, for its log
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        return answer.read(1) == _READY


def _let_go(log: Path, keep: int) -> None:
    os.setsid()
    os.chdir("/")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW
    nothing, words = os.open(os.devnull, os.O_RDWR), os.open(log, flags, 0o600)
    for standard, target in ((0, nothing), (1, nothing), (2, words)):
        os.dup2(target, standard)
    os.closerange(3, keep)
    os.closerange(keep + 1, _MAX_DESCRIPTOR)


def _say_ready(writer: int) -> None:
    os.write(writer, _READY)
    os.close(writer)
