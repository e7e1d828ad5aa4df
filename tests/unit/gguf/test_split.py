"""Split sets: entered anywhere, checked to belong together."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

import gguf_bytes as build
from minfer.core.errors import ModelFileError
from minfer.core.split_names import SplitName
from minfer.gguf import errors, open_gguf


def _part(number: int, count: int, *, n_tensors: int | None = None, name: str = "") -> bytes:
    pairs = [
        build.pair("split.no", build.UINT16, struct.pack("<H", number)),
        build.pair("split.count", build.UINT16, struct.pack("<H", count)),
        build.pair("split.tensors.count", build.INT32, struct.pack("<i", n_tensors or count)),
    ]
    if number == 0:
        pairs.append(build.EVERY_TYPE["string"])
    tensor = build.Tensor(name or f"t{number}", (1,), build.F32, 0)
    return build.File(pairs=pairs, tensors=[tensor], data=struct.pack("<f", number)).build()


def _paths(folder: Path, count: int = 3) -> list[Path]:
    return [folder / f"my-model-0000{i + 1}-of-0000{count}.gguf" for i in range(count)]


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    paths = _paths(tmp_path)
    for i, path in enumerate(paths):
        path.write_bytes(_part(i, 3))
    return paths


def _raises(path: Path) -> ModelFileError:
    with pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    return caught.value


@pytest.mark.parametrize("entry", [0, 1, 2])
def test_any_part_opens_the_set(parts: list[Path], entry: int) -> None:
    with open_gguf(parts[entry]) as file:
        assert file.parts == tuple(parts)
        assert file.path == parts[0]
        assert file.n_bytes == sum(path.stat().st_size for path in parts)
        assert file.metadata.string("string") == "naïve"
        assert [info.part for info in file.tensors.values()] == [0, 1, 2]
        assert [struct.unpack("<f", file.data(f"t{i}")) for i in range(3)] == [(0,), (1,), (2,)]
        file.release("t2")


def test_missing_parts_are_named(parts: list[Path]) -> None:
    parts[0].unlink()
    parts[2].unlink()
    error = _raises(parts[1])
    assert isinstance(error, errors.SplitPartMissingError)
    assert error.fact == f"{parts[1]} is one of 3 parts; missing beside it: {parts[0].name}, {parts[2].name}"
    assert error.hint == f"put all parts into {parts[0].parent}"


def test_many_missing_parts_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-00090.gguf"
    path.write_bytes(_part(0, 90))
    assert _raises(path).fact.endswith("m-00006-of-00090.gguf and 84 more")


def test_a_renamed_part_is_explained(parts: list[Path], tmp_path: Path) -> None:
    renamed = parts[0].rename(tmp_path / "model.gguf")
    error = _raises(renamed)
    assert isinstance(error, errors.SplitMismatchError)
    assert error.fact == f"{renamed} is one of 3 parts of a split model, and its name does not say so"
    assert "NAME-00001-of-00003.gguf" in error.hint


def test_a_name_with_another_count_is_explained(parts: list[Path], tmp_path: Path) -> None:
    error = _raises(parts[0].rename(tmp_path / "my-model-00001-of-00002.gguf"))
    assert isinstance(error, errors.SplitMismatchError)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (_part(2, 3), "should be part 2 of 3; its metadata says split.no 2"),
        (_part(1, 4, n_tensors=3), "split.count 4"),
        (build.whole_file().build(), "split.no None"),
        (_part(1, 3, name="t0"), "has tensor 't0', which an earlier part has too"),
    ],
)
def test_parts_of_another_set_are_refused(parts: list[Path], content: bytes, words: str) -> None:
    parts[1].write_bytes(content)
    error = _raises(parts[0])
    assert isinstance(error, errors.SplitMismatchError)
    assert words in error.fact


def test_the_count_of_tensors_is_checked(tmp_path: Path) -> None:
    paths = _paths(tmp_path, 2)
    for i, path in enumerate(paths):
        path.write_bytes(_part(i, 2, n_tensors=5))
    error = _raises(paths[1])
    assert isinstance(error, errors.SplitMismatchError)
    assert "hold 2 tensors, and split.tensors.count says 5" in error.fact


def test_a_broken_part_is_named(parts: list[Path]) -> None:
    parts[2].write_bytes(b"<html>")
    error = _raises(parts[0])
    assert isinstance(error, errors.WebPageError)
    assert str(parts[2]) in error.fact


def test_a_set_of_one_needs_no_name(tmp_path: Path) -> None:
    path = tmp_path / "one.gguf"
    path.write_bytes(_part(0, 1))
    with open_gguf(path) as file:
        assert file.parts == (path,)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("m-00002-of-00003.gguf", ("m", 2, 3)),
        ("a-00001-of-00002-00002-of-00003.gguf", ("a-00001-of-00002", 2, 3)),
        ("m-0002-of-0003.gguf", None),
        ("m-00001-of-00001.gguf", None),
        ("m-00003-of-00002.gguf", None),
        ("m-00000-of-00002.gguf", None),
        ("m-00001-of-00002.GGUF", None),
        ("m-00002-of-00003.gguf.part", None),
        ("m-٠٠٠٠١-of-٠٠٠٠١.gguf", None),
        ("m.gguf", None),
    ],
)
def test_names_of_parts(name: str, parsed: tuple[str, int, int] | None) -> None:
    assert SplitName.parse(name) == parsed
    if parsed:
        assert str(SplitName(*parsed)) == name
