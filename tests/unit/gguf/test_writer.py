"""Writing: the same bytes back, and files that the reader's rules allow."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

import gguf_bytes as build
from minfer.gguf import QuantType, ValueType, open_bytes, open_gguf
from minfer.gguf.encode import encode_scalar
from minfer.gguf.writer import StoredTensor, encoded, tensors_of, write_gguf, write_split, write_stream
from paths import shared

_ONE = StoredTensor("t", (2, 1), QuantType.F32, struct.pack("<2f", 1, 2))


def _written(data: bytes) -> bytes:
    file = open_bytes(data)
    stream = io.BytesIO()
    write_stream(stream, file.metadata, tensors_of(file), version=file.version)
    return stream.getvalue()


@pytest.mark.parametrize("version", [2, 3])
def test_a_hand_made_file_comes_back_byte_for_byte(version: int) -> None:
    file = build.whole_file()
    file.version = version
    data = file.build()
    assert _written(data) == data + bytes(30)  # padding after the last tensor


def test_odd_text_comes_back_byte_for_byte() -> None:
    pairs = [
        build.pair("k", build.ARRAY, build.texts([b"\xff", b"\0"])),
        build.pair("s", build.STRING, build.text(b"\xc3")),
    ]
    data = build.File(pairs=pairs, alignment=1).build()
    assert _written(data) == data


@pytest.mark.parametrize(
    "name",
    [
        "architectures/llama-moe.gguf",
        "architectures/gemma3-dense.gguf",
        "vocab/ggml-vocab-llama-bpe.gguf",
        "vocab/ggml-vocab-bert-bge.gguf",
    ],
)
def test_real_files_come_back_byte_for_byte(name: str) -> None:
    data = shared(f"data/{name}").read_bytes()
    assert _written(data) == data


def test_metadata_can_be_changed_on_the_way(tmp_path: Path) -> None:
    source = open_bytes(build.whole_file().build())
    changed = encoded(source.metadata) | {"string": "new", "added": encode_scalar(1, ValueType.UINT8)}
    write_gguf(tmp_path / "new.gguf", changed, tensors_of(source))
    with open_gguf(tmp_path / "new.gguf") as file:
        assert file.metadata.string("string") == "new"
        assert list(file.metadata) == [*build.EVERY_TYPE, "added"]
        assert file.metadata.kind("added")[0] is ValueType.UINT8
        assert bytes(file.data("b")) == bytes(source.data("b"))


def test_an_open_file_can_be_replaced(tmp_path: Path) -> None:
    path = tmp_path / "same.gguf"
    path.write_bytes(build.whole_file().build())
    with open_gguf(path) as file:
        write_gguf(path, encoded(file.metadata) | {"string": "new"}, tensors_of(file))
        assert file.metadata.string("string") == "naïve"
    with open_gguf(path) as file:
        assert file.metadata.string("string") == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "old.gguf"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="two tensors have one name"):
        write_gguf(path, {}, [_ONE, _ONE])
    assert [entry.name for entry in tmp_path.iterdir()] == ["old.gguf"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("alignment", [1, 256])
def test_alignment_is_heeded(alignment: int) -> None:
    stream = io.BytesIO()
    other = StoredTensor("u", (1,), QuantType.F32, struct.pack("<f", 3))
    write_stream(stream, {"general.alignment": alignment}, [_ONE, other])
    file = open_bytes(stream.getvalue())
    assert file.alignment == alignment
    assert struct.unpack("<f", file.data("u")) == (3,)
    assert file.tensors["u"].offset % alignment == 0


def test_alignments_that_cannot_be_are_refused() -> None:
    for alignment in (0, 24, "x"):
        with pytest.raises(ValueError, match="no power of two"):
            write_stream(io.BytesIO(), {"general.alignment": alignment})


@pytest.mark.parametrize(
    ("shape", "quant", "n_bytes"),
    [((3,), QuantType.F32, 8), ((48,), QuantType.Q8_0, 34), ((2, 16), QuantType.Q8_0, 34)],
)
def test_data_that_does_not_fit_its_shape_is_refused(
    shape: tuple[int, ...], quant: QuantType, n_bytes: int
) -> None:
    with pytest.raises(ValueError, match="takes"):
        StoredTensor("t", shape, quant, bytes(n_bytes))


def test_a_split_set_holds_the_whole(tmp_path: Path) -> None:
    source = open_bytes(build.whole_file().build())
    tensors = [
        *tensors_of(source),
        StoredTensor("c", (8,), QuantType.F32, bytes(32)),
        StoredTensor("d", (100,), QuantType.F32, bytes(400)),
        StoredTensor("e", (1,), QuantType.F32, bytes(4)),
    ]
    paths = write_split(tmp_path, "set", source.metadata, tensors, max_part_bytes=70)
    assert [path.name for path in paths] == [f"set-0000{i}-of-00004.gguf" for i in (1, 2, 3, 4)]
    with open_gguf(paths[2]) as file:
        assert [(info.name, info.part) for info in file.tensors.values()] == [
            ("a", 0),
            ("b", 0),
            ("c", 1),
            ("d", 2),
            ("e", 3),
        ]
        assert [bytes(file.data(t.name)) for t in tensors] == [bytes(t.data) for t in tensors]
        assert {key: file.metadata[key] for key in source.metadata} == dict(source.metadata)
        assert file.metadata.integer("split.tensors.count") == 5
