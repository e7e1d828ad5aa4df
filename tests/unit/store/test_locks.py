"""Locks that death releases."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from minfer.store.locks import ModelInUseError, downloading, hold, is_locked, lock_path, removing

MODEL = "hf/a/b/x.gguf"


@contextmanager
def another_process(cache: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that takes a lock, says so, and keeps it until it is killed."""
    program = f"""
import sys
from pathlib import Path
from minfer.store.locks import downloading, hold
cache, model = Path({str(cache)!r}), {MODEL!r}
with {code}:
    print("locked", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        yield child
        child.kill()


def test_a_held_model_is_not_removed_until_the_holder_dies(tmp_path: Path) -> None:
    with another_process(tmp_path, "hold(cache, model)") as child:
        assert is_locked(tmp_path, MODEL, "hold")
        with hold(tmp_path, MODEL):  # holding is shared
            pass
        with pytest.raises(ModelInUseError), removing(tmp_path, MODEL):
            pass
        child.kill()
        child.wait()
    with removing(tmp_path, MODEL):
        assert is_locked(tmp_path, MODEL, "hold")
    assert not is_locked(tmp_path, MODEL, "hold")


def test_one_download_at_a_time_and_the_second_is_told_that_it_waits(tmp_path: Path) -> None:
    waits: list[str] = []
    with another_process(tmp_path, "downloading(cache, model, lambda: None)") as child:

        def on_wait() -> None:
            waits.append("waited")
            child.kill()

        with downloading(tmp_path, MODEL, on_wait):
            assert waits == ["waited"]
    with downloading(tmp_path, MODEL, on_wait):
        assert waits == ["waited"]


def test_models_do_not_share_locks(tmp_path: Path) -> None:
    with removing(tmp_path, MODEL), removing(tmp_path, "hf/a/b/y.gguf"):
        assert lock_path(tmp_path, MODEL, "hold") != lock_path(tmp_path, MODEL, "download")


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    target = lock_path(tmp_path, MODEL, "download")
    target.parent.mkdir(parents=True)
    target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), downloading(tmp_path, MODEL, lambda: None):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_cache_that_cannot_be_written_can_still_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with hold(tmp_path / "file", MODEL) as held:
        held.release()
        held.release()


def test_holding_does_not_leak_descriptors(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        hold(tmp_path, MODEL).release()
    assert len(os.listdir("/proc/self/fd")) == before
