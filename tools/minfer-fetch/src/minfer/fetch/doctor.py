"""What could stand between a user and a model, looked at one by one."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from minfer.core.errors import MinferError
from minfer.core.units import human_bytes
from minfer.fetch.garbage import find_garbage
from minfer.store.catalog import read_catalog
from minfer.store.settings import Settings, home_directory

_LITTLE_SPACE = 2 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `state`: 'ok', 'note' (worth knowing), 'problem'. `hint` is the next step."""

    check: str
    state: str
    detail: str
    hint: str = ""


def examine(settings: Settings) -> Iterator[Finding]:
    """Run every check, in the order of CHECKS."""
    for check in CHECKS:
        yield from check(settings)


def _cache(settings: Settings) -> Iterator[Finding]:
    cache = settings.cache
    if not cache.is_dir():
        parent = next(path for path in cache.parents if path.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield Finding("cache", "note", f"{cache} does not exist yet; the first pull makes it")
        else:
            yield Finding(
                "cache", "problem", f"{cache} cannot be made", "set MINFER_MODEL_DIR to a directory of yours"
            )
        return
    if not os.access(cache, os.W_OK | os.X_OK):
        yield Finding(
            "cache", "note", f"{cache} is read-only for you: models in it can be used, none can be pulled"
        )
        return
    catalog = read_catalog(cache)
    total = sum(model.files.n_bytes or 0 for model in catalog.models)
    yield Finding("cache", "ok", f"{cache}: {len(catalog.models)} models, {human_bytes(total)}")
    for model in catalog.models:
        if not model.is_complete:
            detail = f"{model.path} lacks {len(model.files.missing)} parts"
            yield Finding("cache", "problem", detail, f"pull {model.reference or 'it'} again")
    for directory in catalog.unreadable:
        yield Finding("cache", "problem", f"{cache / directory} may not be read", "check its permissions")


def _space(settings: Settings) -> Iterator[Finding]:
    existing = next(path for path in (settings.cache, *settings.cache.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    state, hint = ("ok", "") if free >= _LITTLE_SPACE else ("note", "minfer-fetch gc; minfer-fetch rm MODEL")
    yield Finding("disk space", state, f"{human_bytes(free)} free for {settings.cache}", hint)


def _file_locks(settings: Settings) -> Iterator[Finding]:
    """Two descriptors of one file: on some network file systems both get the lock."""
    existing = next(path for path in (settings.cache, *settings.cache.parents) if path.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".minfer-doctor-") as first:
            second = os.open(first.name, os.O_RDWR)
            try:
                fcntl.flock(first.fileno(), fcntl.LOCK_EX)
                try:
                    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield Finding("file locks", "ok", "flock works where the cache is")
                    return
            finally:
                os.close(second)
    except OSError as error:
        yield Finding("file locks", "note", f"could not be tried: {error.strerror}")
        return
    yield Finding(
        "file locks",
        "problem",
        f"flock does nothing on the file system of {existing}",
        "pull from one process at a time, or set MINFER_MODEL_DIR to a local disk",
    )


def _daemon(settings: Settings) -> Iterator[Finding]:
    from minfer.store.address import NoDaemonError, daemon_address
    from minfer.store.daemon import connect, is_listening
    from minfer.store.tcp import TcpAddress

    try:
        address = daemon_address(settings)
        if isinstance(address, TcpAddress):
            connect(settings, may_start=False).close()
    except NoDaemonError as error:
        detail = f"none can run: {error.fact}"
        yield Finding(
            "daemon", "note", f"{detail}; downloads go through a process for each, and work the same"
        )
    except MinferError as error:
        yield Finding("daemon", "problem", error.fact, error.hint)
    else:
        state = "is running" if is_listening(address) else "is not running; tools start it when they need it"
        yield Finding("daemon", "ok", f"{state} ({address})")


def _leftovers(settings: Settings) -> Iterator[Finding]:
    garbage = find_garbage(settings.cache)
    n_bytes = sum(piece.n_bytes for piece in garbage)
    if garbage:
        detail = f"{human_bytes(n_bytes)} in {len(garbage)} places; interrupted pulls resume from them"
        yield Finding("leftovers", "note", detail, "minfer-fetch gc --dry-run lists them")
    else:
        yield Finding("leftovers", "ok", "none")


def _environment(settings: Settings) -> Iterator[Finding]:
    if home_directory(settings.environment) is None:
        yield Finding("home", "note", f"no home directory is known; the cache is {settings.cache}")
    if settings.offline:
        yield Finding(
            "network", "note", "downloads are switched off", "unset MINFER_OFFLINE and HF_HUB_OFFLINE"
        )
    for name in (
        "HF_ENDPOINT",
        "http_proxy",
        "https_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "REQUESTS_CA_BUNDLE",
    ):
        if value := settings.environment.get(name):
            yield Finding("environment", "note", f"{name} is {_without_password(value)}")


def _without_password(address: str) -> str:
    head, at, tail = address.rpartition("@")
    return f"{head.partition('//')[0]}//…@{tail}" if at else address


def _pip(settings: Settings) -> Iterator[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        yield Finding("pip", "ok", f"version {version('pip')}; pypi: references work")
    except PackageNotFoundError:
        yield Finding("pip", "problem", "pip is not installed here", "install pip into this environment")


def _sources(settings: Settings) -> Iterator[Finding]:
    """Does the Hub answer as one, and does the token (if any) count there?"""
    if settings.offline:
        return
    from minfer.fetch.download import HttpClient, HttpStatusError, NetworkSettings
    from minfer.fetch.download.redirects import Credentials
    from minfer.fetch.download.retry import BRIEF

    network = NetworkSettings.from_environment(settings.environment, home_directory(settings.environment))
    endpoint = network.hf_endpoint
    credentials = Credentials(network.hf_token, endpoint) if network.hf_token else None
    path = "/api/whoami-v2" if credentials else "/api/models?limit=1"
    client = HttpClient(network, retry=BRIEF)
    try:
        client.get(f"{endpoint}{path}", credentials=credentials)
        token = "and accepts your token" if credentials else "(no token is set)"
        yield Finding("Hugging Face", "ok", f"{endpoint} answers {token}")
    except HttpStatusError as error:
        hint = "make a new token and set HF_TOKEN" if error.status == 401 else error.hint
        yield Finding("Hugging Face", "problem", error.fact, hint)
    except MinferError as error:
        yield Finding("Hugging Face", "problem", error.fact, error.hint)
    finally:
        client.close()


CHECKS: Final[tuple[Callable[[Settings], Iterator[Finding]], ...]] = (
    _cache,
    _space,
    _file_locks,
    _daemon,
    _leftovers,
    _environment,
    _pip,
    _sources,
)
