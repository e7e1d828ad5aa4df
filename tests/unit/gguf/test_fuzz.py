"""Mutated files: whatever the bytes, a file opens and every part of it can be used, or it is refused."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import gguf_bytes as build
from minfer.core.errors import ModelFileError
from minfer.gguf import GGUFFile, open_bytes
from minfer.gguf.arrays import read_tensor
from minfer.gguf.identify import check_magic
from minfer.gguf.writer import tensors_of

_WHOLE = build.whole_file().build()
_NUMBERS = (0, 1, 8, 31, 32, 1 << 16, 1 << 22, 1 << 32, 1 << 40, 1 << 63, (1 << 64) - 8, (1 << 64) - 1)

_positions = st.integers(0, len(_WHOLE) - 1)
_mutations = st.one_of(
    st.tuples(_positions, st.binary(min_size=1, max_size=4)),
    st.tuples(_positions, st.sampled_from(_NUMBERS).map(build.u64)),
    st.tuples(_positions, st.integers(0, 45).map(build.u32)),
)


def _open(data: bytes) -> GGUFFile | ModelFileError:
    try:
        return open_bytes(data, "fuzz.gguf")
    except ModelFileError as error:
        return error


def _use(data: bytes) -> None:
    """Open and touch everything; a ModelFileError of reasonable length is a fine answer."""
    file = _open(data)
    if isinstance(file, ModelFileError):
        assert file.fact.startswith("fuzz.gguf")
        assert len(file.fact) < 500
        return
    values = dict(file.metadata)
    assert len(values) == len(file.metadata)
    for name, info in file.tensors.items():
        assert len(file.data(name)) == info.n_bytes
        assert read_tensor(file, name).shape == info.shape
    assert len(tensors_of(file)) == len(file.tensors)


@settings(max_examples=400, deadline=None)
@given(st.lists(_mutations, min_size=1, max_size=3), st.integers(0, len(_WHOLE)))
def test_mutated_files(mutations: list[tuple[int, bytes]], cut: int) -> None:
    data = bytearray(_WHOLE)
    for position, patch in mutations:
        data[position : position + len(patch)] = patch
    _use(bytes(data))
    _use(bytes(data[:cut]))


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_after_a_right_beginning(rest: bytes) -> None:
    _use(b"GGUF\x03\0\0\0" + rest)
    _use(b"GGUF\x03\0\0\0" + build.u64(1) + build.u64(1) + rest)


def _refusal(head: bytes) -> ModelFileError | None:
    try:
        check_magic(Path("x"), head)
    except ModelFileError as error:
        return error
    return None


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64))
def test_any_first_bytes_are_identified(head: bytes) -> None:
    error = _refusal(head)
    assert (error is None) == (head[:4] == b"GGUF")
    assert error is None or error.hint
