"""The lock that makes processes share a download."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from minfer.fetch.download.lock import FileLock


def test_one_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert first.try_acquire()
    assert not second.try_acquire()
    first.close()
    assert second.try_acquire()
    second.close()
    assert not list(tmp_path.iterdir())


def test_whoever_waited_reads_the_note_and_holds_the_file_that_is_there(tmp_path: Path) -> None:
    first, second, third = (FileLock(tmp_path / "x.lock") for _ in range(3))
    assert first.try_acquire()
    assert not second.try_acquire()
    first.leave_note(b"done")
    first.close()
    assert third.try_acquire()  # a newcomer makes a new file before the one that waited looks again
    assert not second.try_acquire()
    third.close()
    assert second.try_acquire()
    assert second.note == b"done"
    assert third.note == b""
    second.close()


def test_giving_up_does_not_take_the_file_from_its_holder(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "x.lock"), FileLock(tmp_path / "x.lock")
    assert first.try_acquire()
    assert not second.try_acquire()
    second.close()
    assert (tmp_path / "x.lock").exists()
    assert not FileLock(tmp_path / "x.lock").try_acquire()
    first.close()


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "x.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(tmp_path / "x.lock").try_acquire()


def test_a_file_system_without_locks_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = FileLock(tmp_path / "x.lock")
    assert lock.try_acquire()
    assert not lock.is_trusted
    lock.close()


def test_a_file_system_that_locks_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    lock = FileLock(tmp_path / "x.lock")
    assert lock.try_acquire()
    assert not lock.is_trusted
    lock.close()


def test_a_real_lock_is_trusted(tmp_path: Path) -> None:
    with FileLock(tmp_path / "x.lock") as lock:
        assert lock.try_acquire()
        assert lock.is_trusted
