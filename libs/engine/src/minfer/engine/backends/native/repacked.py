"""Repacked weights in a file that the next process maps: an option, off unless MINFER_REPACK_CACHE is set.

    MINFER_REPACK_CACHE=~/.cache/minfer/repacked minfer-run MODEL …

A file is a header and then the arena as it lies in memory. What the header must say follows from the
model file, the plan and the compiled kernels, so checking it is comparing bytes. It appears under its name
only when it is complete. Nothing is lost with the folder: remove it at will.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minfer.core.units import human_bytes
from minfer.engine.backends.native import _native
from minfer.engine.backends.native.errors import ProgramMemoryError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from minfer.engine.backends.native.weights import WeightPlan
    from minfer.gguf import GGUFFile

HEADER_BYTES: Final = 1 << 16
"""The largest page there is: what follows can be mapped everywhere."""


@dataclass(frozen=True, slots=True)
class RepackedFile:
    """Where one model's repacked weights are kept, and the header they must have. n_bytes: of the arena."""

    path: Path
    header: bytes
    n_bytes: int

    def map_into(self, program: _native.Program) -> tuple[bool, str]:
        """Whether the program's arena is the file's from now on; else why one that exists is not used."""
        try:
            with self.path.open("rb", buffering=0) as stream:
                if why := self._difference(stream.read(HEADER_BYTES), os.fstat(stream.fileno()).st_size):
                    return False, f"{self.path} is not used: {why}"
                if program.map(stream.fileno(), HEADER_BYTES) != _native.OK:
                    raise ProgramMemoryError(
                        f"{self.path} cannot be mapped", hint="unset MINFER_REPACK_CACHE"
                    )
                return True, ""
        except FileNotFoundError:
            return False, ""
        except OSError as error:
            return False, f"{self.path} is not used: {error.strerror}"

    def save(self, program: _native.Program) -> str:
        """Keep the program's arena; what to tell the user. Losing a race or the disk's room is no error."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_kept = self._write(program)
        except OSError as error:
            return f"repacked weights are not kept in {self.path.parent}: {error.strerror}"
        if not is_kept:
            return f"repacked weights are not kept: another process writes {self.path}"
        return f"repacked weights ({human_bytes(self.n_bytes)}) are kept in {self.path}"

    def _write(self, program: _native.Program) -> bool:
        partial = self.path.with_name(f".{self.path.name}.partial")
        # One name and a lock, so that a killed writer leaves one file at most, which the next one takes over.
        with partial.open("ab", buffering=0) as stream, suppress(BlockingIOError):
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._publish(program, stream.fileno(), partial)
        return False

    def _publish(self, program: _native.Program, descriptor: int, partial: Path) -> bool:
        try:
            # Whoever held the lock before may have given this very file its final name.
            if os.fstat(descriptor).st_ino != partial.stat().st_ino:
                return False
            os.ftruncate(descriptor, 0)
            os.write(descriptor, self.header)
            program.save(descriptor)
            os.fsync(descriptor)
            partial.replace(self.path)
        except FileNotFoundError:
            return False
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def _difference(self, header: bytes, n_bytes: int) -> str:
        """What is wrong with a file of that header and size; empty when it is the one to use."""
        if len(header) < HEADER_BYTES:
            return f"it has {n_bytes} bytes only"
        if header != self.header:
            theirs, ours = (text.partition(b"\0")[0].split(b"\n") for text in (header, self.header))
            for mine, other, why in zip(ours, theirs, _REASONS, strict=False):
                if mine != other:
                    return why
            return "its header is damaged"
        whole = HEADER_BYTES + self.n_bytes
        return "" if n_bytes == whole else f"it has {n_bytes} bytes of {whole}"


_REASONS: Final = (
    "it is no file of repacked weights of this version",
    "it was made by other kernels",
    "the model file has changed since",
    "it was made for another use of the model's tensors",
)
"""For each line of a header, what it means when that line is another."""


def repacked_file(folder: Path, plan: WeightPlan, file: GGUFFile, isa: str) -> RepackedFile | None:
    """The file in `folder` for this model, or None when the model lies in memory only."""
    if not file.is_mapped(plan.matrices[0].name):
        return None
    extension = Path(_native.__file__).stat()
    lines = (
        "minfer repacked weights 1",
        f"kernels {isa} {extension.st_size} {extension.st_mtime_ns}",
        f"model {_digest(map(str, file.identity))}",
        f"plan {_digest(_uses(plan, file))} {plan.n_bytes}",
    )
    header = "\n".join(lines).encode().ljust(HEADER_BYTES, b"\0")
    where = file.path.resolve()
    name = f"{where.stem}-{_digest([str(where)])[:16]}.repacked"
    return RepackedFile(folder / name, header, plan.n_bytes)


def _uses(plan: WeightPlan, file: GGUFFile) -> Iterable[str]:
    """Every tensor's place in the file and in the arena."""
    for matrix in plan.matrices:
        yield f"{matrix} {file.tensors[matrix.name]}"
    for vector in plan.vectors:
        yield f"{vector} {file.tensors.get(vector.name)}"


def _digest(texts: Iterable[str]) -> str:
    digest = blake2b(digest_size=16)
    for text in texts:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()
