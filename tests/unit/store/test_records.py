"""Records say what was verified, and nothing about a file that changed since."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minfer.store.records import Record, all_records, read_record, record_path, remove_record, write_record

RECORD = Record("hf/a/b/x.gguf", 4, "0" * 64, "hf:a/b", "c" * 40, "v1", "2026-01-01T00:00:00+00:00", 123)


def test_round_trip(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    assert read_record(tmp_path, RECORD.path) == RECORD
    assert list(all_records(tmp_path)) == [RECORD]
    remove_record(tmp_path, RECORD.path)
    remove_record(tmp_path, RECORD.path)
    assert read_record(tmp_path, RECORD.path) is None
    assert list(all_records(tmp_path)) == []


def test_names_that_are_long_or_no_text_have_records_too(tmp_path: Path) -> None:
    for path in ("x" * 255 + "/" + "y" * 250 + ".gguf", "\udcff.gguf"):
        write_record(tmp_path, Record(path, 1, "1" * 64))
        found = read_record(tmp_path, path)
        assert found is not None
        assert found.path == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"path": "hf/a/b/x.gguf"}',
        '{"path": 1, "n_bytes": 4, "sha256": "0"}',
        "[" * 100000,
    ],
)
def test_damaged_records_are_no_records(tmp_path: Path, text: str) -> None:
    target = record_path(tmp_path, RECORD.path)
    target.parent.mkdir(parents=True)
    target.write_text(text)
    assert read_record(tmp_path, RECORD.path) is None
    assert list(all_records(tmp_path)) == []


def test_a_record_of_another_path_is_not_believed(tmp_path: Path) -> None:
    write_record(tmp_path, RECORD)
    os.rename(record_path(tmp_path, RECORD.path), record_path(tmp_path, "other.gguf"))
    assert read_record(tmp_path, "other.gguf") is None


def test_a_changed_file_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"1234")
    status = file.stat()
    record = Record("x.gguf", 4, "0" * 64, modified_ns=status.st_mtime_ns)
    assert record.fits(status)
    os.utime(file, ns=(0, status.st_mtime_ns + 1))
    assert not record.fits(file.stat())
