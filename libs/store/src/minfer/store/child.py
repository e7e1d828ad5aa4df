"""`minfer-fetch` as a child process: how a library gets something downloaded without importing a network."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from minfer.core.errors import TransferError
from minfer.store.progress import OnProgress, Progress
from minfer.store.settings import Settings
from minfer.store.wire import error_from_json, progress_from_json

PARENT = "MINFER_FETCH_PARENT"  # whom a child works for; it stops when that process is gone
_SECONDS_TO_LEAVE = 10.0


class NoFetchToolError(TransferError):
    """minfer-fetch is neither beside this program nor in PATH."""

    code = "no-fetch-tool"


class FetchToolFailedError(TransferError):
    """minfer-fetch ended without an answer."""

    code = "fetch-tool-failed"


def fetch_command(settings: Settings) -> list[str]:
    """How to start minfer-fetch: with this interpreter if it has it, else from PATH."""
    if sys.executable and find_spec("minfer.fetch") is not None:
        # -P: the working directory must not decide which modules are imported
        return [sys.executable, "-P", "-m", "minfer.fetch"]
    found = shutil.which("minfer-fetch", path=settings.environment.get("PATH"))
    if found is None:
        raise NoFetchToolError(
            "the model has to be downloaded, and minfer-fetch is not installed",
            hint="install minfer-fetch, or give the path of a model file",
        )
    return [found]


def resolve_in_child(reference: str, settings: Settings, on_progress: OnProgress) -> Path:
    """The path that `reference` means after fetching it. The child's error is raised here as its own type."""
    command = [*fetch_command(settings), "resolve", "--json", "--progress", "json", "--", reference]
    status, answer = _run(command, settings, on_progress)
    if status == 130:
        raise KeyboardInterrupt
    if isinstance(error := answer.get("error"), dict):
        raise error_from_json(error)
    if status != 0 or not isinstance(answer.get("path"), str):
        raise FetchToolFailedError(
            f"minfer-fetch ended with status {status} and no answer for {reference!r}",
            hint=f"run it yourself to see why: minfer-fetch resolve {reference}",
        )
    return Path(answer["path"])


def _run(command: Sequence[str], settings: Settings, on_progress: OnProgress) -> tuple[int, dict[str, Any]]:
    """Run `command`, relaying the progress lines of its stderr; exit status and the object on its stdout."""
    # off: the child works by itself, it is what is left when no daemon can
    environment = {
        **settings.environment,
        "MINFER_MODEL_DIR": str(settings.cache),
        "MINFER_STORE_SOCKET": "off",
        PARENT: str(os.getpid()),
    }
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except OSError as error:
        raise NoFetchToolError(f"{command[0]!r} cannot be started: {error.strerror}") from error
    answer: list[str] = []
    # stdout is read beside stderr: a long list of candidates fills a pipe that nobody empties
    reader = threading.Thread(target=lambda: answer.append(_read(child.stdout)), daemon=True)
    reader.start()
    with child:
        try:
            _relay(child.stderr or (), on_progress)
        except BaseException:
            _let_go(child)
            raise
    reader.join()
    return child.returncode, _parse("".join(answer))


def _read(stream: IO[str] | None) -> str:
    return stream.read() if stream else ""


def _relay(lines: Iterable[str], on_progress: OnProgress) -> None:
    for line in lines:
        event = _parse(line)
        if event:
            on_progress(progress_from_json(event))
        elif line.strip():
            on_progress(Progress("minfer-fetch", note=line.rstrip("\n")))


def _let_go(child: subprocess.Popen[str]) -> None:
    """Ctrl-C, or a listener that failed: the child may finish saving what it has verified, then it goes."""
    child.terminate()
    try:
        child.wait(_SECONDS_TO_LEAVE)
    except subprocess.TimeoutExpired:
        child.kill()


def _parse(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
