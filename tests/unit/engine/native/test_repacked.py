"""Files of repacked weights: the same bits, and no file that could be wrong is ever used."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine_steps import Runner, random_ids
from minfer.engine.testing import TinyModel, tiny_model
from minfer.gguf import QuantType, open_bytes, open_gguf

native = pytest.importorskip("minfer.engine.backends.native", reason="built without the extension")

_MODEL = TinyModel("llama", quant=QuantType.IQ4_NL)
_CONVERTED = "15 matrices of type IQ4_NL have no native kernel and are kept as Q8_0"
HEADER = 1 << 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that is asked for; nothing is there yet."""
    monkeypatch.setenv("MINFER_REPACK_CACHE", str(tmp_path / "a/repacked"))
    return tmp_path / "a/repacked"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model(_MODEL))
    return path


def _load(model: Path, isa: str = native.isas()[0]) -> tuple[tuple[str, ...], bytes]:
    """What is said about the weights beside their conversion, and some logits."""
    with open_gguf(model) as file:
        runner = Runner.of(native.NativeBackend(isa), file)
    first, *others = runner.program.notices
    assert first == _CONVERTED
    logits = np.asarray(runner.logits(random_ids(20))).tobytes()
    runner.program.close()
    return tuple(others), logits


def _only(folder: Path) -> Path:
    (path,) = folder.iterdir()
    assert path.suffix == ".repacked"
    return path


def test_the_second_load_maps_what_the_first_left(model: Path, folder: Path) -> None:
    said, logits = _load(model)
    kept = _only(folder)
    assert len(said) == 1
    assert said[0].endswith(f"are kept in {kept}")
    assert folder.stat().st_mode & 0o077 == 0
    assert _load(model) == ((), logits)
    # It is the file that counts: other weights in it give other logits.
    data = bytearray(kept.read_bytes())
    data[HEADER:] = bytes(len(data) - HEADER)
    kept.write_bytes(data)
    assert _load(model)[1] != logits


def _cut(kept: Path, model: Path) -> None:
    os.truncate(kept, kept.stat().st_size - 1)


def _cut_into_the_header(kept: Path, model: Path) -> None:
    os.truncate(kept, 40)


def _change_the_header(kept: Path, model: Path) -> None:
    data = bytearray(kept.read_bytes())
    data[HEADER - 1] ^= 1
    kept.write_bytes(data)


def _make_it_another_version(kept: Path, model: Path) -> None:
    data = kept.read_bytes()
    kept.write_bytes(data.replace(b"weights 1\n", b"weights 0\n", 1))


def _change_the_model(kept: Path, model: Path) -> None:
    """In place, with the time of its last change put back."""
    before = model.stat()
    with model.open("r+b") as stream:
        stream.write(tiny_model(TinyModel("llama", quant=QuantType.IQ4_NL, seed=1)))
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (model.stat().st_size, model.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_cut, "bytes of"),
        (_cut_into_the_header, "it has 40 bytes only"),
        (_change_the_header, "its header is damaged"),
        (_make_it_another_version, "it is no file of repacked weights of this version"),
        (_change_the_model, "the model file has changed since"),
    ],
)
def test_a_file_that_does_not_fit_is_made_anew(
    model: Path, folder: Path, harm: Callable[[Path, Path], None], why: str
) -> None:
    _, logits = _load(model)
    kept = _only(folder)
    harm(kept, model)
    (reason, saved), again = _load(model)
    assert f"{kept} is not used: " in reason
    assert why in reason
    assert saved.endswith(f"are kept in {kept}")
    assert (again == logits) == (harm is not _change_the_model)
    assert _load(model) == ((), again)
    assert _only(folder) == kept


def test_other_kernels_make_their_own(model: Path, folder: Path) -> None:
    best, *others = native.isas()
    _, logits = _load(model, best)
    for isa in others:
        said, same = _load(model, isa)
        assert "it was made by other kernels" in said[0]
        assert same == logits


def test_a_folder_that_cannot_be_is_said_and_harms_nothing(model: Path, folder: Path) -> None:
    folder.parent.write_text("in the way")
    said, _ = _load(model)
    assert "is not used: Not a directory" in said[0]
    assert said[1].startswith("repacked weights are not kept in ")


def test_a_full_disk_leaves_nothing_behind(model: Path, folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (HEADER + 10_000, limits[1]))
    try:
        said, _ = _load(model)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert said == (f"repacked weights are not kept in {folder}: File too large",)
    assert not list(folder.iterdir())


def test_what_a_killed_writer_left_is_taken_over(model: Path, folder: Path) -> None:
    _load(model)
    kept = _only(folder)
    partial = kept.rename(kept.with_name(f".{kept.name}.partial"))
    with partial.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        said, _ = _load(model)
        assert said == (f"repacked weights are not kept: another process writes {kept}",)
    assert len(_load(model)[0]) == 1
    assert _only(folder) == kept
    assert _load(model)[0] == ()


def test_a_model_in_memory_and_no_wish_leave_no_file(
    model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Runner.of(native.NativeBackend(native.isas()[0]), open_bytes(model.read_bytes())).program.close()
    assert not folder.exists()
    monkeypatch.delenv("MINFER_REPACK_CACHE")
    assert _load(model)[0] == ()
    assert not folder.exists()
