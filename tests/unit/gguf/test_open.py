"""Opening whole files: what is in them, and what touching it costs."""

from __future__ import annotations

import errno
import mmap
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import gguf_bytes as build
from minfer.core.errors import NotEnoughMemoryError
from minfer.gguf import QuantType, TensorInfo, open_bytes, open_gguf, read_beginning
from minfer.gguf.errors import TensorMissingError, TruncatedFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "whole.gguf"
    path.write_bytes(build.whole_file().build())
    return path


def test_the_tensor_table_is_read(path: Path) -> None:
    with open_gguf(path) as file:
        start = len(path.read_bytes()) - 66
        assert dict(file.tensors) == {
            "a": TensorInfo("a", (2, 3), QuantType.F32, 24, 0, start),
            "b": TensorInfo("b", (32,), QuantType.Q8_0, 34, 0, start + 32),
        }
        assert [info.n_weights for info in file.tensors.values()] == [6, 32]


def test_a_file_that_cannot_be_mapped_for_lack_of_room_is_not_at_fault(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(NotEnoughMemoryError, match=r"whole\.gguf cannot be mapped"):
        open_gguf(path)


def test_facts_of_the_file(path: Path) -> None:
    with open_gguf(str(path)) as file:
        assert (file.path, file.parts, file.version) == (path, (path,), 3)
        assert file.n_bytes == path.stat().st_size
        assert file.alignment == 32


def test_data_is_a_read_only_view(path: Path) -> None:
    with open_gguf(path) as file:
        view = file.data("a")
        assert view.readonly
        assert struct.unpack("<6f", view) == (0, 1, 2, 3, 4, 5)


def test_views_outlive_the_file_and_the_file_says_that_it_is_closed(path: Path) -> None:
    with open_gguf(path) as file:
        view = file.data("a")
    assert bytes(view[4:8]) == struct.pack("<f", 1)
    assert file.metadata.string("string") == "naïve"
    with pytest.raises(ValueError, match="is closed"):
        file.data("a")


def test_pages_can_be_dropped_and_read_again(path: Path) -> None:
    with open_gguf(path) as file:
        before = bytes(file.data("b"))
        file.prefetch("b")
        file.release("b")
        file.release("b")
        assert bytes(file.data("b")) == before


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux tells a process its resident size")
def test_released_pages_leave_the_process(tmp_path: Path) -> None:
    n = 1 << 25
    tensors = [build.Tensor("large", (n // 4,), build.F32, 0), build.Tensor("next", (1,), build.F32, n)]
    path = tmp_path / "large.gguf"
    path.write_bytes(build.File(tensors=tensors, data=bytes(n) + struct.pack("<f", 2)).build())
    with open_gguf(path) as file:
        before = _resident_bytes()
        assert not any(file.data("large")[:: mmap.PAGESIZE])
        assert _resident_bytes() - before > 0.8 * n
        file.release("large")
        assert _resident_bytes() - before < 0.2 * n
        assert struct.unpack("<f", file.data("next")) == (2,)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_a_missing_tensor_is_named(path: Path) -> None:
    with open_gguf(path) as file, pytest.raises(TensorMissingError, match=r"no tensor 'c\.weight'"):
        file.data("c.weight")


def test_version_2_reads_the_same(path: Path) -> None:
    older = build.whole_file()
    older.version = 2
    with open_bytes(older.build()) as file, open_gguf(path) as newer:
        assert file.version == 2
        assert dict(file.tensors) == dict(newer.tensors)
        assert dict(file.metadata) == dict(newer.metadata)


def test_in_memory_there_is_nothing_to_release() -> None:
    with open_bytes(build.whole_file().build(), "tiny") as file:
        file.release("a")
        assert struct.unpack("<6f", file.data("a"))[5] == 5
        assert file.path == Path("tiny")


@pytest.mark.parametrize("alignment", [1, 8, 64, 4096])
def test_alignment_is_heeded(alignment: int) -> None:
    file = build.File(
        pairs=[build.pair("general.alignment", build.UINT32, build.u32(alignment))],
        tensors=[build.Tensor("a", (1,), build.F32, 0), build.Tensor("b", (1,), build.F32, 4 * alignment)],
        data=bytes(4 * alignment) + struct.pack("<f", 2.5),
        alignment=alignment,
    )
    with open_bytes(file.build()) as opened:
        assert struct.unpack("<f", opened.data("b")) == (2.5,)


def test_a_file_without_tensors_may_end_after_its_metadata() -> None:
    with open_bytes(build.File(pairs=[build.EVERY_TYPE["string"]], alignment=1).build()) as file:
        assert not file.tensors
        assert file.metadata.string("string") == "naïve"


def test_the_beginning_of_a_file_is_enough_for_its_tables() -> None:
    whole = build.whole_file().build()
    header_bytes = len(whole) - 66
    n = 24
    while n < header_bytes:
        with pytest.raises(TruncatedFileError) as caught:
            read_beginning(whole[:n], len(whole), "remote")
        assert n < caught.value.needed_bytes <= header_bytes
        n = caught.value.needed_bytes
        if n > header_bytes - 32:
            break
    metadata, tensors = read_beginning(whole[:header_bytes], len(whole), "remote")
    assert metadata.string("string") == "naïve"
    assert list(tensors) == ["a", "b"]


def _vocabulary(n: int) -> bytes:
    tokens = [f"token {i}" for i in range(n)]
    pairs = [
        build.pair("tokenizer.ggml.tokens", build.ARRAY, build.texts(tokens)),
        build.pair("tokenizer.ggml.scores", build.ARRAY, build.array(build.FLOAT32, n, bytes(4 * n))),
    ]
    return build.File(pairs=pairs).build()


def test_a_vocabulary_of_262144_opens_in_a_blink(tmp_path: Path) -> None:
    """Import included; processor time, so that a busy machine does not count."""
    path = tmp_path / "large.gguf"
    path.write_bytes(_vocabulary(262_144))
    program = (
        "import sys, time; start = time.process_time()\n"
        "from minfer.gguf import open_gguf; file = open_gguf(sys.argv[1])\n"
        "print(time.process_time() - start)\n"
        "assert file.metadata.strings('tokenizer.ggml.tokens')[262143] == 'token 262143'"
    )
    command = [sys.executable, "-c", program, str(path)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.15


def test_opening_and_sizes_need_no_numpy(path: Path) -> None:
    program = (
        "import sys; from minfer.gguf import FORMATS, open_gguf\n"
        "file = open_gguf(sys.argv[1]); file.data('b'); dict(file.metadata)\n"
        "assert sum(form.block_bytes for form in FORMATS.values())\n"
        "print('numpy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
