"""The file of distributions: what goes in comes out, and nothing else is taken for one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from minfer.run.scoring.base_file import BaseFileError, BaseReader, BaseRow, BaseWriter, Header

HEADER = Header("m.gguf", "native", n_vocab=50, n_ctx=8, n_windows=2, top=2)
WINDOWS = [tuple(range(8)), tuple(range(10, 18))]
ROWS = [[BaseRow(-0.5, (n, n + 1), (-0.25, -2.0)) for n in range(start, start + 3)] for start in (0, 20)]


def _written(path: Path) -> Path:
    writer = BaseWriter(path, HEADER)
    for window, rows in zip(WINDOWS, ROWS, strict=True):
        writer.add(window, rows)
    writer.close(is_complete=True)
    return path


def _read(path: Path) -> list[tuple[tuple[int, ...], list[BaseRow]]]:
    reader = BaseReader(path)
    try:
        found = list(reader.windows())
        assert reader.header == HEADER
        return found
    finally:
        reader.close()


def test_round_trip(tmp_path: Path) -> None:
    path = _written(tmp_path / "base")
    assert _read(path) == list(zip(WINDOWS, ROWS, strict=True))
    assert list(tmp_path.iterdir()) == [path]


def test_an_unfinished_file_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "base"
    path.write_text("old")
    writer = BaseWriter(path, HEADER)
    writer.add(WINDOWS[0], ROWS[0])
    writer.close(is_complete=False)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def _with_header(**changes: object) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        length = struct.unpack("<I", data[12:16])[0]
        words = json.dumps({**json.loads(data[16 : 16 + length]), **changes}).encode()
        return data[:12] + struct.pack("<I", len(words)) + words + data[16 + length :]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: b"GGUF" + data[4:],
        lambda data: data[:8] + b"\x02" + data[9:],
        lambda data: data[:12] + b"\xff\xff\xff\xff" + data[16:],
        lambda data: data[:16] + b"[" + data[17:],
        lambda data: data[:-1],
        lambda data: data + b"x",
        lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
        _with_header(n_windows=1 << 40),
        _with_header(n_windows=3),
        _with_header(top=0),
        _with_header(top="2"),
        _with_header(n_ctx=True),
        _with_header(n_vocab=5),
    ],
)
def test_damage_is_an_error_that_names_the_file(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = _written(tmp_path / "base")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BaseFileError, match=str(path)):
        _read(path)


def test_a_missing_file_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(BaseFileError, match="No such file"):
        BaseReader(tmp_path / "absent")
    with pytest.raises(BaseFileError, match="cannot be written"):
        BaseWriter(tmp_path / "absent" / "base", HEADER)
