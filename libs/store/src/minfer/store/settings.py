"""What the caller's environment decides: where the cache is, and whether the network may be used."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minfer.core.errors import UsageError

_TRUE = ("1", "true", "yes", "on")


class NoHomeError(UsageError):
    """A home directory is needed and none is known."""

    code = "no-home"


@dataclass(frozen=True, slots=True)
class Settings:
    """One caller's settings; they travel with its requests, no daemon replaces them with its own."""

    cache: Path  # absolute; need not exist
    offline: bool
    environment: Mapping[str, str]  # proxies, tokens and endpoints are read from here by the sources
    n_jobs: int = 4  # files of one model that are downloaded at a time

    @classmethod
    def of(cls, environment: Mapping[str, str] | None = None) -> Settings:
        """The settings that `environment` (default: this process's) asks for."""
        given = dict(os.environ if environment is None else environment)
        return cls(cache_directory(given), is_offline(given), given)


def cache_directory(environment: Mapping[str, str]) -> Path:
    """$MINFER_MODEL_DIR, else ~/.cache/minfer/models, else a directory below the temporary one."""
    chosen = environment.get("MINFER_MODEL_DIR")
    if chosen:
        return Path(expand_user(chosen, environment)).absolute()
    home = home_directory(environment)
    if home is None:
        return _temporary_directory() / "models"
    return home / ".cache" / "minfer" / "models"


def _temporary_directory() -> Path:
    """This user's directory below the temporary one, which everybody may write to."""
    import tempfile

    directory = Path(tempfile.gettempdir()) / f"minfer-{os.getuid()}"
    try:
        status = directory.lstat()
    except OSError:
        return directory
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise NoHomeError(
            f"{str(directory)!r} belongs to somebody else, and no home directory is known",
            hint="set MINFER_MODEL_DIR to a directory of yours",
        )
    return directory


def is_offline(environment: Mapping[str, str]) -> bool:
    """True when MINFER_OFFLINE or HF_HUB_OFFLINE says so."""
    return any(environment.get(name, "").lower() in _TRUE for name in ("MINFER_OFFLINE", "HF_HUB_OFFLINE"))


def home_directory(environment: Mapping[str, str], user: str = "") -> Path | None:
    """The home of `user` (default: the caller), None for a user without HOME or passwd entry."""
    if not user and environment.get("HOME", "").startswith("/"):
        return Path(environment["HOME"])
    try:
        import pwd
    except ImportError:  # not a POSIX system
        return None if user else Path.home()
    try:
        entry = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    except KeyError:
        return None
    return Path(entry.pw_dir) if entry.pw_dir.startswith("/") else None


def expand_user(path: str, environment: Mapping[str, str]) -> str:
    """`path` with a leading `~` or `~user` replaced. Raises NoHomeError when that home is not known."""
    if not path.startswith("~"):
        return path
    name, slash, rest = path[1:].partition("/")
    home = home_directory(environment, name)
    if home is None:
        raise NoHomeError(
            f"{path!r} begins with a home directory, and none is known for {name or 'this user'}",
            hint="write the whole path, or ./~… for a file of that name",
        )
    return str(home) + slash + rest
