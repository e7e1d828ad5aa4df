"""The registry of block formats, and decoding where no oracle package does it."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from minfer.gguf import FORMATS, BlockFormat, QuantType, blocks
from minfer.gguf.blocks.format import Field

_SHARED_MODULES = {"__init__", "format", "packing"}


def test_every_file_is_a_row_of_the_registry() -> None:
    folder = Path(next(iter(blocks.__path__)))
    files = {path.stem for path in folder.glob("*.py")} - _SHARED_MODULES
    assert files == {quant.name.lower() for quant in FORMATS}
    assert all(form.quant is quant for quant, form in FORMATS.items())


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.quant.name)
def test_sizes_agree_with_numpys(form: BlockFormat) -> None:
    assert form.dtype.itemsize == form.block_bytes
    assert form.n_bytes(6 * form.block_weights) == 6 * form.block_bytes
    assert not form.dtype.isalignedstruct


def test_sizes_derive_from_the_layout() -> None:
    layout = (Field("scale", "f2"), Field("sums", "i2", 3), Field("word", "u4"))
    form = BlockFormat(QuantType.Q8_1, 8, layout, lambda blocks: blocks["sums"].astype(np.float32))
    assert form.block_bytes == 2 + 6 + 4
    assert form.c_struct == (
        "typedef struct __attribute__((packed)) {\n"
        "    uint16_t scale;\n"
        "    int16_t sums[3];\n"
        "    uint32_t word;\n"
        "} block_q8_1;\n"
        '_Static_assert(sizeof(block_q8_1) == 12, "block_q8_1");\n'
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_c_agrees_on_every_size(tmp_path: Path) -> None:
    source = tmp_path / "sizes.c"
    source.write_text("#include <stdint.h>\n" + "".join(form.c_struct for form in FORMATS.values()))
    subprocess.run(["cc", "-std=c11", "-fsyntax-only", source], check=True)


def test_q8_k_is_scale_times_code() -> None:
    codes = list(range(-128, 128))
    raw = struct.pack("<f256b16h", 0.75, *codes, *[9] * 16)
    assert FORMATS[QuantType.Q8_K].decode(raw).tolist() == [[0.75 * code for code in codes]]


def test_q8_k_scales_that_are_no_numbers() -> None:
    raw = struct.pack("<f256b16h", float("inf"), *[0, 1, -1] * 85, 0, *[0] * 16)
    values = FORMATS[QuantType.Q8_K].decode(raw)[0]
    assert np.isnan(values[0])
    assert values[1:3].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("form", FORMATS.values(), ids=lambda form: form.quant.name)
def test_no_blocks_decode_to_nothing(form: BlockFormat) -> None:
    assert form.decode(b"").shape == (0, form.block_weights)
