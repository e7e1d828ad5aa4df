"""What is at a path when it is not a model: said before anything is mapped."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from minfer.core.errors import MinferError, NotEnoughMemoryError
from minfer.core.split_names import SplitName
from minfer.gguf.errors import (
    DOWNLOAD_AGAIN,
    GitLFSPointerError,
    ModelFileMissingError,
    ModelFileUnreadableError,
    ModelIsDirectoryError,
    NotGGUFError,
    TruncatedFileError,
    WebPageError,
)
from minfer.gguf.header import MAGIC, MIN_BYTES

SNIFF_BYTES = 512
_MAX_CANDIDATES = 50
_WEB_PAGES = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<error", b"<!--", b'{"error', b'{"message')
_OTHER_FORMATS = (
    (b"PK\x03\x04", "a zip archive (PyTorch weights, perhaps)"),
    (b"tjgg", "the GGJT format that came before GGUF"),
    (b"fmgg", "the GGMF format that came before GGUF"),
    (b"lmgg", "the GGML format that came before GGUF"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x93NUMPY", "a numpy array"),
)


def check_kind(path: Path) -> None:
    """Raise unless a regular file is at `path`: missing, a directory, a device, out of reach."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        raise ModelFileMissingError(f"there is no file {path}", hint=_missing_hint(path)) from None
    except OSError as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(mode):
        candidates = model_files(path)
        hint = "name one of these files" if candidates else "it holds no .gguf file; name the model's file"
        raise ModelIsDirectoryError(f"{path} is a directory", hint=hint, candidates=candidates)
    if not stat.S_ISREG(mode):
        raise ModelFileUnreadableError(f"{path} is not a regular file", hint="name a .gguf file on disk")


def unreadable(path: Path, error: OSError) -> MinferError:
    """The error that says why the system does not open `path`."""
    if error.errno == errno.ENOMEM:
        return NotEnoughMemoryError(
            f"{path} cannot be mapped: the system gives this process no memory for it",
            hint="raise the limit on its address space (ulimit -v), or take a smaller model",
        )
    if error.errno == errno.ELOOP:
        return ModelFileUnreadableError(
            f"{path} is a link that leads back to itself",
            hint="remove it, and give the path of the model itself",
        )
    return ModelFileUnreadableError(
        f"{path} cannot be read: {error.strerror or error}", hint="check the permissions of the file"
    )


def check_magic(path: Path, head: bytes) -> None:
    """Raise the error that says what the file is, unless its first bytes `head` are those of GGUF."""
    if head.startswith(MAGIC):
        return
    if MAGIC.startswith(head):
        raise TruncatedFileError(f"{path} is cut off: it has {len(head)} bytes", needed_bytes=MIN_BYTES)
    if head.startswith(b"version https://git-lfs"):
        raise GitLFSPointerError(
            f"{path} is a Git LFS pointer, not the model itself",
            hint="run `git lfs pull` in its repository, or download the file again",
        )
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_WEB_PAGES):
        raise WebPageError(
            f"{path} is a web page or a server's error text, not a model",
            hint="download the file itself; on a model's page that is the `resolve` link, not `blob`",
        )
    for magic, kind in _OTHER_FORMATS:
        if head.startswith(magic):
            raise NotGGUFError(f"{path} is not a GGUF file but {kind}", hint="use the model's GGUF file")
    raise NotGGUFError(f"{path} is not a GGUF file: it begins with {head[:4]!r}", hint=DOWNLOAD_AGAIN)


def model_files(directory: Path) -> tuple[str, ...]:
    """Paths of the `.gguf` files in `directory`, else in its folders; of split sets the first part."""
    found = sorted(directory.glob("*.gguf")) or sorted(directory.glob("*/*.gguf"))
    models = [str(path) for path in found if path.is_file() and _is_entry(path.name)]
    return tuple(models[:_MAX_CANDIDATES])


def _is_entry(file_name: str) -> bool:
    split = SplitName.parse(file_name)
    return split is None or split.number == 1


def _missing_hint(path: Path) -> str:
    try:
        return f"it is a link to {os.readlink(path)}, which is gone"
    except (OSError, ValueError):
        return "check the spelling"
