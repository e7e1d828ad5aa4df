"""Everything that can be wrong with a file: the right error, soon, without allocating what it claims."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

import gguf_bytes as build
from minfer.core.errors import ModelFileError
from minfer.gguf import FORMATS, errors, open_bytes, open_gguf

_HUGE = (1 << 40, 1 << 63, (1 << 64) - 1)


def _raises(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    return caught.value


def test_a_file_cut_at_any_byte_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    whole = build.whole_file().build()
    path.write_bytes(whole)
    for n in range(len(whole) - 1, -1, -1):
        os.truncate(path, n)
        error = _raises(path)
        assert isinstance(error, errors.TruncatedFileError), (n, error.fact)
        assert n < error.needed_bytes <= len(whole), n
        assert "is cut off" in error.fact


def test_cut_tensors_say_how_much_is_there(tmp_path: Path) -> None:
    path = tmp_path / "half.gguf"
    whole = build.whole_file().build()
    path.write_bytes(whole[:-10])
    error = _raises(path)
    assert error.fact == (
        f"{path} is cut off: it has {len(whole) - 10} bytes and its tensors need {len(whole)}"
    )
    assert error.hint == "download the file again; the copy here is not the one that was published"


def test_bytes_after_the_tensors_do_no_harm() -> None:
    assert len(open_bytes(build.whole_file().build() + b"more").tensors) == 2


def _lie(**fields: int) -> bytes:
    file = build.whole_file()
    for name, value in fields.items():
        setattr(file, name, value)
    return file.build()


def _one_pair(kind: int, value: bytes, key: str = "k") -> bytes:
    return build.File(pairs=[build.pair(key, kind, value)]).build() + bytes(200)


def _one_tensor(dimensions: tuple[int, ...], kind: int = build.F32, offset: int = 0) -> bytes:
    return build.File(tensors=[build.Tensor("t", dimensions, kind, offset)], data=bytes(4096)).build()


def _nest(depth: int) -> bytes:
    value = build.array(build.UINT8, 1, b"\1")
    for _ in range(depth):
        value = build.array(build.ARRAY, 1, value)
    return value


_CORRUPT: dict[str, bytes] = {
    **{f"{n} tensors": _lie(n_tensors=n) for n in (1 << 19, *_HUGE)},
    **{f"{n} pairs": _lie(n_pairs=n) for n in (1 << 17, *_HUGE)},
    **{f"key of {n}": build.File(pairs=[build.u64(n) + bytes(40)]).build() for n in (1 << 16, *_HUGE)},
    **{f"string of {n}": _one_pair(build.STRING, build.u64(n)) for n in _HUGE[1:]},
    **{f"{n} strings": _one_pair(build.ARRAY, build.array(build.STRING, n, b"")) for n in _HUGE[1:]},
    **{f"{n} numbers": _one_pair(build.ARRAY, build.array(build.UINT64, n, b"")) for n in _HUGE[1:]},
    **{f"{n} arrays": _one_pair(build.ARRAY, build.array(build.ARRAY, n, b"")) for n in _HUGE[1:]},
    "last string too long": _one_pair(build.ARRAY, build.array(build.STRING, 1, build.u64(1 << 63))),
    "second length past 64 bits": _one_pair(
        build.ARRAY, build.array(build.STRING, 2, build.u64((1 << 64) - 1))
    ),
    "value type 13": _one_pair(13, bytes(8)),
    "element type 99": _one_pair(build.ARRAY, build.array(99, 1, bytes(8))),
    "arrays nested 5 deep": _one_pair(build.ARRAY, _nest(5)),
    "a key twice": build.File(pairs=[build.EVERY_TYPE["int8"]] * 2).build(),
    "a tensor twice": build.File(tensors=[build.Tensor("t", (1,), 0, 0)] * 2, data=bytes(32)).build(),
    "5 dimensions": _one_tensor((1, 1, 1, 1, 1)),
    "a dimension of 0": _one_tensor((0, 1 << 63)),
    "dimensions past the file": _one_tensor((1 << 40, 1 << 40)),
    "dimensions past 64 bits": _one_tensor((1 << 63, 1 << 63, 1 << 63, 1 << 63)),
    "rows of part of a block": _one_tensor((48,), build.Q8_0),
    "offset between alignments": _one_tensor((8,), offset=16),
    "offset past the file": _one_tensor((8,), offset=1 << 63),
    "alignment 0": _one_pair(build.UINT32, build.u32(0), "general.alignment"),
    "alignment 24": _one_pair(build.UINT32, build.u32(24), "general.alignment"),
    "alignment of another type": _one_pair(build.UINT64, build.u64(32), "general.alignment"),
}


@pytest.mark.parametrize("name", _CORRUPT)
def test_statements_that_cannot_be_true_are_corruption(name: str) -> None:
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(errors.CorruptFileError, match="is corrupt") as caught:
        open_bytes(_CORRUPT[name], "lies.gguf")
    elapsed = time.process_time() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.fact.startswith("lies.gguf ")
    assert len(caught.value.fact) < 300
    assert elapsed < 0.5
    assert peak < 1_000_000


def test_counts_that_a_longer_file_could_have_are_truncation() -> None:
    data = _one_pair(build.ARRAY, build.array(build.STRING, 100_000, b""))
    with pytest.raises(
        errors.TruncatedFileError, match=r"the 100000 strings of 'k' needs at least 8\d+ bytes"
    ):
        open_bytes(data)


@pytest.mark.parametrize(
    ("element", "n", "words"),
    [
        (build.STRING, 1 << 26, "which no vocabulary has"),
        (build.ARRAY, 1 << 22, "which no vocabulary has"),
        (build.STRING, (1 << 22) - 1, "metadata key '' is there twice"),
        (build.ARRAY, (1 << 16) - 1, "metadata key '' is there twice"),
    ],
)
def test_a_large_file_that_claims_endless_elements_costs_little(
    tmp_path: Path, element: int, n: int, words: str
) -> None:
    path = tmp_path / "sparse.gguf"
    pair = build.pair("k", build.ARRAY, build.array(element, n, b""))
    path.write_bytes(build.File(pairs=[pair], n_pairs=3).build())
    os.truncate(path, 1 << 31)
    start = time.process_time()
    with pytest.raises(errors.CorruptFileError, match=words):
        open_gguf(path)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("version", "error", "words"),
    [
        (1, errors.GGUFVersionError, "GGUF version 1; versions 2 and 3"),
        (4, errors.GGUFVersionError, "GGUF version 4"),
        (0, errors.GGUFVersionError, "GGUF version 0"),
        (3 << 24, errors.BigEndianError, r"big-endian GGUF file \(version 3\)"),
    ],
)
def test_other_versions(version: int, error: type[ModelFileError], words: str) -> None:
    file = build.whole_file()
    file.version = version
    with pytest.raises(error, match=words):
        open_bytes(file.build())


@pytest.mark.parametrize(("kind", "shown"), [(16, "IQ2_XXS"), (4, "type 4"), (0xFFFFFFFF, "type 4294967295")])
def test_a_tensor_type_without_decoder_is_named(kind: int, shown: str) -> None:
    with pytest.raises(errors.TensorTypeError) as caught:
        open_bytes(_one_tensor((256,), kind), "odd.gguf")
    assert caught.value.fact == f"odd.gguf stores tensor 't' as {shown}, which minfer cannot read"
    assert all(quant.name in caught.value.hint for quant in FORMATS)


@pytest.mark.parametrize(
    ("content", "error", "fact"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4\n",
            errors.GitLFSPointerError,
            "is a Git LFS pointer, not the model itself",
        ),
        (b"<!DOCTYPE html><html>", errors.WebPageError, "is a web page or a server's error text"),
        (b"\xef\xbb\xbf \n<HTML lang=en>", errors.WebPageError, "is a web page or a server's error text"),
        (b"<?xml version='1.0'?><Error>", errors.WebPageError, "is a web page or a server's error text"),
        (b'{"error": "gated"}', errors.WebPageError, "is a web page or a server's error text"),
        (b"PK\x03\x04....", errors.NotGGUFError, "is not a GGUF file but a zip archive"),
        (b"tjgg\x03\0\0\0", errors.NotGGUFError, "is not a GGUF file but the GGJT format"),
        (b"\x88\0\0\0\0\0\0\0{", errors.NotGGUFError, r"it begins with b'\x88\x00\x00\x00'"),
        (b"FUGG" + bytes(40), errors.NotGGUFError, "it begins with b'FUGG'"),
        (b"", errors.TruncatedFileError, "is cut off: it has 0 bytes"),
        (b"GG", errors.TruncatedFileError, "is cut off: it has 2 bytes"),
    ],
)
def test_other_formats(tmp_path: Path, content: bytes, error: type[ModelFileError], fact: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    raised = _raises(path)
    assert type(raised) is error
    assert raised.fact.startswith(f"{path} ")
    assert fact in raised.fact
    assert raised.hint


def test_the_pointer_hint_names_the_command(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert _raises(path).render() == (
        f"Error: {path} is a Git LFS pointer, not the model itself\n"
        "Hint: run `git lfs pull` in its repository, or download the file again"
    )


def test_bytes_in_memory_are_refused_alike() -> None:
    with pytest.raises(errors.NotGGUFError, match="it begins with b'<htm'"):
        open_bytes(b"<html>")


def test_a_directory_lists_its_models(tmp_path: Path) -> None:
    names = ["b.gguf", "a.gguf", "s-00001-of-00002.gguf", "s-00002-of-00002.gguf", "notes.txt"]
    for name in names:
        (tmp_path / name).touch()
    error = _raises(tmp_path)
    assert isinstance(error, errors.ModelIsDirectoryError)
    assert error.fact == f"{tmp_path} is a directory"
    expected = ["a.gguf", "b.gguf", "s-00001-of-00002.gguf"]
    assert error.candidates == tuple(str(tmp_path / name) for name in expected)


def test_a_directory_of_directories_lists_what_is_in_those(tmp_path: Path) -> None:
    (tmp_path / "q4").mkdir()
    (tmp_path / "q4" / "m.gguf").touch()
    assert _raises(tmp_path).candidates == (str(tmp_path / "q4" / "m.gguf"),)


def test_a_directory_without_models_says_so(tmp_path: Path) -> None:
    error = _raises(tmp_path)
    assert error.candidates == ()
    assert error.hint == "it holds no .gguf file; name the model's file"


def _missing(folder: Path) -> Path:
    return folder / "none.gguf"


def _below_a_file(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "model.gguf"


def _impossible_name(folder: Path) -> Path:
    return folder / "a\0b.gguf"


def _broken_link(folder: Path) -> Path:
    (folder / "link.gguf").symlink_to(folder / "gone.gguf")
    return folder / "link.gguf"


@pytest.mark.parametrize("make", [_missing, _below_a_file, _impossible_name, _broken_link])
def test_nothing_there(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    path = make(tmp_path)
    error = _raises(path)
    assert isinstance(error, errors.ModelFileMissingError)
    assert error.fact == f"there is no file {path}"
    assert ("gone.gguf, which is gone" in error.hint) == (make is _broken_link)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    error = _raises(tmp_path / "pipe.gguf")
    assert isinstance(error, errors.ModelFileUnreadableError)
    assert "is not a regular file" in error.fact


def test_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "loop.gguf"
    path.symlink_to(path)
    error = _raises(path)
    assert isinstance(error, errors.ModelFileUnreadableError)
    assert error.fact == f"{path} is a link that leads back to itself"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(build.whole_file().build())
    path.chmod(0)
    assert isinstance(_raises(path), errors.ModelFileUnreadableError)


def test_names_in_messages_are_short_and_escaped() -> None:
    file = build.File(pairs=[build.pair("\x1b[31m" + "k" * 5000, 77, struct.pack("<I", 0))])
    with pytest.raises(errors.CorruptFileError) as caught:
        open_bytes(file.build())
    assert "\x1b" not in caught.value.fact
    assert len(caught.value.fact) < 300


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, ModelFileError) and kind is not ModelFileError
    ]
    assert len({kind.code for kind in kinds}) == len(kinds) == 16
    assert {kind.exit_status for kind in kinds} == {4}
