"""What of an interrupted download is trusted later."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from minfer.fetch.download import partial as module
from minfer.fetch.download.partial import Identity, Partial

BODY = random.Random(1).randbytes(1000)
HEX = hashlib.sha256(BODY).hexdigest()
IDENTITY = Identity(len(BODY), HEX, "", "x.gguf")


def unheard(n_done: int, n_here: int) -> None:
    pass


@pytest.fixture(autouse=True)
def _small_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_BYTES", 100)


def write(directory: Path, n_bytes: int, identity: Identity = IDENTITY, etag: str = "") -> None:
    """A process that dies after `n_bytes` bytes."""
    with Partial(directory, "key") as partial:
        partial.resume(identity, unheard)
        partial.remember_etag(etag)
        for start in range(partial.n_bytes_here, n_bytes, 30):
            partial.append(BODY[start : min(start + 30, n_bytes)])
        partial.digest()


def resumed(directory: Path, identity: Identity = IDENTITY) -> int:
    with Partial(directory, "key") as partial:
        partial.resume(identity, unheard)
        assert partial.digest() == hashlib.sha256(partial.path.read_bytes()).hexdigest()
        assert partial.path.stat().st_size == partial.n_bytes_here
        return partial.n_bytes_here


def reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_boot", lambda: "another boot")


def test_within_a_boot_every_byte_counts(tmp_path: Path) -> None:
    write(tmp_path, 345)
    assert resumed(tmp_path) == 345


def test_after_a_reboot_bytes_count_up_to_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 345)
    checkpoints = [offset for offset, _ in json.loads((tmp_path / "key.json").read_text())["checkpoints"]]
    reboot(monkeypatch)
    assert resumed(tmp_path) == checkpoints[-1]
    assert 300 <= checkpoints[-1] < 345


def test_checkpoints_hold_the_digest_of_the_prefix(tmp_path: Path) -> None:
    write(tmp_path, 345)
    values = json.loads((tmp_path / "key.json").read_text())
    assert len(values["checkpoints"]) == 3
    for offset, digest in values["checkpoints"]:
        assert digest == hashlib.sha256(BODY[:offset]).hexdigest()


@pytest.mark.parametrize("has_rebooted", [False, True])
def test_a_damaged_stretch_is_given_up_from_its_checkpoint_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_rebooted: bool
) -> None:
    """As after a power cut that left zeros where data was not yet on the disk."""
    write(tmp_path, 950)
    first = json.loads((tmp_path / "key.json").read_text())["checkpoints"][0][0]
    with (tmp_path / "key.partial").open("r+b") as file:
        file.seek(first + 10)
        file.write(bytes(8))
    if has_rebooted:
        reboot(monkeypatch)
    assert resumed(tmp_path) == first


def test_bytes_of_another_file_count_nothing(tmp_path: Path) -> None:
    write(tmp_path, 345)
    assert resumed(tmp_path, Identity(len(BODY), "0" * 64, "", "x.gguf")) == 0


def test_without_digest_and_mark_nothing_counts(tmp_path: Path) -> None:
    anonymous = Identity(len(BODY), "", "", "x.gguf")
    write(tmp_path, 345, anonymous)
    assert resumed(tmp_path, anonymous) == 0
    write(tmp_path, 345, anonymous, etag='"mark"')
    assert resumed(tmp_path, anonymous) == 345


def test_a_file_without_journal_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "key.partial").write_bytes(BODY[:500])
    assert resumed(tmp_path) == 0


def test_a_checkpoint_behind_the_end_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 345)
    with (tmp_path / "key.partial").open("r+b") as file:
        file.truncate(250)
    reboot(monkeypatch)
    assert 200 <= resumed(tmp_path) <= 250


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.integers(0, 1000), max_size=5), damage=st.none() | st.integers(0, 999))
def test_what_is_kept_is_always_a_prefix_of_what_was_written(
    tmp_path: Path, steps: list[int], damage: int | None
) -> None:
    for name in ("key.partial", "key.json"):
        (tmp_path / name).unlink(missing_ok=True)
    for step in steps:
        write(tmp_path, step)
    size = max(steps, default=0)
    if damage is not None and damage < size:
        with (tmp_path / "key.partial").open("r+b") as file:
            file.seek(damage)
            file.write(bytes([BODY[damage] ^ 1]))
    kept = resumed(tmp_path)
    after = (tmp_path / "key.partial").read_bytes()
    assert len(after) == kept <= size
    if damage is None or damage >= size:
        assert after == BODY[:size]
    else:
        checkpoints = json.loads((tmp_path / "key.json").read_text())["checkpoints"]
        for offset, digest in checkpoints:
            assert hashlib.sha256(after[:offset]).hexdigest() == digest


def test_a_partial_that_is_a_link_or_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "key.partial").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        Partial(tmp_path, "key")
    assert (tmp_path / "victim").read_bytes() == b"precious"
